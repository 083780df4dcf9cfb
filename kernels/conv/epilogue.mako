## Convolutions whose elements go through a function before they are stored: `i0` is what was computed, i1.. come from further
## arrays, which have one element for each channel or lie as the output does. The defs see the arguments of the template that
## calls them: name, ctype, further (per array, whether it has one element for each channel), statements.
<%def name="declarations(lanes)">
<% V = f"{ctype}{lanes}" if lanes > 1 else ctype %>
typedef struct { long at[${max(1, len(further))}], step[${max(1, len(further))}]; } ${name}_further;  // offsets, steps from channel to channel
static inline ${V} ${name}_final(${", ".join(f"const {V} i{k}" for k in range(len(further) + 1))})
{
    ${V} o0;
    { ${statements} }
    return o0;
}
</%def>

## What kernels, and the functions that they call, take for further arrays.
<%def name="parameters(by='')">, ${f"const {name}_further *" if by else f"const {name}_further "}f${
    "".join(f", __global const {ctype} *F{k + 1}" for k in range(len(further)))}</%def>
<%def name="arguments()">, &f${"".join(f", F{k + 1}" for k in range(len(further)))}</%def>

## Apply the function to one element, or to a vector of neighbours, of a channel; the first is element `at` of the output.
<%def name="apply(value, f, channel, at, vector='', type='')">
${value} = ${name}_final(${value}${"".join(
    f", ({type or ctype})(F{k + 1}[{f}at[{k}] + ({channel}) * {f}step[{k}]])" if each else
    f", *(__global const {vector or ctype} *)(F{k + 1} + {f}at[{k}] + {at})" for k, each in enumerate(further))});
</%def>

## The same for `count` elements, element e of the vector is element at(e) of the output.
<%def name="apply_some(value, f, channel, at, count, vector, type)">
{
% for k in (k for k, each in enumerate(further) if not each):
    ${vector} some${k} = 0;
    for (long e = 0; e < ${count}; e++)
        ((${ctype} *)&some${k})[e] = F${k + 1}[${f}at[${k}] + ${at("e")}];
% endfor
    ${value} = ${name}_final(${value}${"".join(
    f", ({type})(F{k + 1}[{f}at[{k}] + ({channel}) * {f}step[{k}]])" if each else f", some{k}" for k, each in enumerate(further))});
}
</%def>
