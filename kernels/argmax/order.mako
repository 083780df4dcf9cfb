## Text that the argmax kernels share: which of two values is kept, where a position is, and the last pass. The defs use
## the arguments of the template that calls them. NaN is preferred to every number, as in NumPy; of equal elements
## neither is preferred. The expressions serve scalars and vectors. Where the template has an argument `is_least`, less
## is preferred.
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, vector_type

    def is_real(dtype):
        return np.dtype(dtype).kind == "f"
%>
<%def name="beyond(b, a)" buffered="True" filter="trim">
(${b} ${"<" if context.get("is_least", False) else ">"} ${a})
</%def>

<%def name="beats(b, a)" buffered="True" filter="trim">
% if is_real(dtype):
(${beyond(b, a)} | ((${b} != ${b}) & (${a} == ${a})))
% else:
${beyond(b, a)}
% endif
</%def>

<%def name="greater(a, b)" buffered="True" filter="trim">
% if is_real(dtype):
(${beyond(b, a)} | (${b} != ${b}) ? ${b} : ${a})
% else:
${"min" if context.get("is_least", False) else "max"}(${a}, ${b})
% endif
</%def>

<%def name="same(a, b)" buffered="True" filter="trim">
% if is_real(dtype):
((${a} == ${b}) | ((${a} != ${a}) & (${b} != ${b})))
% else:
(${a} == ${b})
% endif
</%def>

<%def name="position(reduced_offset=None)">
## vectors that need not be aligned, unless the kernel says so: a driver may call a function for vloadn, and read chars
## one by one in it
% if lanes > 1:
<% most = context.get("load_alignment", np.dtype(dtype).itemsize) %>\
typedef ${vector_type(dtype, lanes)} ${name}_v __attribute__((aligned(${min(most, lanes * np.dtype(dtype).itemsize)})));
% endif
// Where element `rest` of the reduced range is, in C order of the reduced axes.
static ${index} ${name}_at(const ${name}_geometry *g, ${index} rest)
{
    % if reduced_offset:
    ${reduced_offset(context.get("is_run", False))}
    % elif reduced_dims == 1:
    return rest * g->reduced_in[0];
    % else:
    ${index} at = 0;
    for (int d = 0; rest; ++d) {
        at += rest % g->reduced[d] * g->reduced_in[d];
        rest /= g->reduced[d];
    }
    return at;
    % endif
}
</%def>

## Calls the body for each run (x, n, step) of the innermost reduced dimension in the task's chunk; it begins at `at`.
<%def name="runs()">
        for (long at = first, n; at < last; at += n) {
            const long inner = at % g.reduced[0];
            const long step = g.reduced_in[0];
            __global const ${ctype(dtype)} *x = input + ${name}_at(&g, at);
            n = min(g.reduced[0] - inner, last - at);
            ${caller.body()}
        }
</%def>

## Chooses among the positions that the chunks found: the earliest chunk wins where values are the same.
<%def name="finish(outer_offset, unrolled=False)">
__kernel void ${name}_finish(__global const ${ctype(dtype)} *input, const long input_at, __global const long *found,
    __global long *output, const long output_at, const ${name}_geometry g)
{
    for (${index} output_index = get_global_id(0); output_index < g.outputs; output_index += get_global_size(0)) {
        ${index} rest = output_index;
        ${index} in = 0;
        ${index} out = 0;
        ${outer_offset(unrolled)}
        __global const ${ctype(dtype)} *x = input + input_at + in;
        long where = found[output_index];
        ${ctype(dtype)} best = x[${name}_at(&g, where)];
        for (${index} chunk = 1; chunk < g.chunks; ++chunk) {
            const long candidate = found[chunk * g.outputs + output_index];
            const ${ctype(dtype)} value = x[${name}_at(&g, candidate)];
            if (${beats("value", "best")}) {
                best = value;
                where = candidate;
            }
        }
        output[output_at + out] = where;
    }
}
</%def>
