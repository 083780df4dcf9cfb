## Epilogue of a convolution: a function of each element that the kernel computed, applied before it is stored.
##
## Algorithm   in the function's statements `i0` is the kernel's element, i1.. are elements of further arrays, o0 is the
##             result.
## Operands    a further array has one element for each channel (then `further` is True), or the layout of the output.
## The defs take the arguments of the template that calls them: name, ctype, lanes, further, offsets (the struct) and
## statements. `f` is how the struct of offsets is accessed: "f." or "f->".
<%def name="declarations(name, ctype, lanes, further, offsets, statements)">
<% vector = f"{ctype}{lanes}" if lanes > 1 else ctype %>
${offsets.c_typedef(f"{name}_further", "offsets, and strides from channel to channel")}
static inline ${vector} ${name}_final(${", ".join(f"const {vector} i{k}" for k in range(len(further) + 1))})
{
    ${vector} o0;
    { ${statements} }
    return o0;
}
</%def>

## Parameters of kernels, and of the functions that they call (`by_pointer`); what these get from the
## kernels, and from one another (`is_pointer`).
<%def name="parameters(name, ctype, further, by_pointer=False)" buffered="True" filter="trim">
, const ${name}_further ${"*" if by_pointer else ""}f${
    "".join(f", __global const {ctype} *F{k + 1}" for k in range(len(further)))}
</%def>
<%def name="arguments(further, is_pointer=False)" buffered="True" filter="trim">
, ${"" if is_pointer else "&"}f${"".join(f", F{k + 1}" for k in range(len(further)))}
</%def>

## Element of a channel, as a value of some type.
<%def name="of_channel(k, f, channel, type)" buffered="True" filter="trim">
(${type})(F${k + 1}[${f}at[${k}] + (${channel}) * ${f}step[${k}]])
</%def>

## Apply the function to one element, or to a vector of contiguous ones, of a channel; the first is element `at` of the
## output.
<%def name="apply(name, ctype, further, value, f, channel, at, vector='', type='')">
<%
    operands = [
        of_channel(k, f, channel, type or ctype) if is_of_channel
        else f"*(__global const {vector or ctype} *)(F{k + 1} + {f}at[{k}] + {at})"
        for k, is_of_channel in enumerate(further)
    ]
%>\
${value} = ${name}_final(${", ".join([value, *operands])});
</%def>

## The same for `count` elements: element e of the vector is element at(e) of the output.
<%def name="apply_some(name, ctype, further, value, f, channel, at, count, vector, type)">
<%
    operands = [
        of_channel(k, f, channel, type) if is_of_channel else f"some{k}" for k, is_of_channel in enumerate(further)
    ]
%>\
{
% for k, is_of_channel in enumerate(further):
    % if not is_of_channel:
    ${vector} some${k} = 0;
    for (long e = 0; e < ${count}; e++)
        ((${ctype} *)&some${k})[e] = F${k + 1}[${f}at[${k}] + ${at("e")}];
    % endif
% endfor
    ${value} = ${name}_final(${", ".join([value, *operands])});
}
</%def>
