## Pooling and its gradients, schedule simt. Kinds: those of cpu.mako; max_grad and sum_grad of grad.mako.
##
## Algorithm   An output is a reduction of its window of x; an element of a gradient is a sum over the windows that it
##             is in (covering_windows.mako), so that no atomics are needed.
## Operands    x, v and gradients C-contiguous, as in cpu.mako and grad.mako.
## NDRange     work-items loop over the elements of the output, with the NDRange as step; neighbours take neighbours
##             along the last dimension.
<%page args="name, kind, dtype, other, index, mask, lowest, place, inner, square, skipped, in_pairs, spacing,
             geometry"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="parts" file="/pool/common.mako"/>
<%namespace name="windows" file="/pool/covering_windows.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<%
T, O = ctype(dtype), ctype(other)
is_grad = kind in ("max_grad", "sum_grad")
extent = "n" if is_grad else "count"
letter = "i" if is_grad else "o"
unsigned = "uint" if index == "int" else "ulong"
first = {"sum_grad": None, "max_grad": f"const {place} *const argmax_base"}.get(kind, f"const {T} *const x_base")
second = f"const {O} *const dy_base" if is_grad else f"const {O} *const v_base" if kind == "max_gather" else None
%>
${parts.header()}
__kernel void ${name}(\
% for argument in filter(None, (first, second)):
__global ${argument}, const long ${argument.split("*const ")[1]}_at, \
% endfor
__global ${place if kind == "argmax" else O} *const y, const long y_at, const ${name}_geometry g)
{
    const ${index} size = g.planes * g.${extent}[0] * g.${extent}[1] * g.${extent}[2];
    for (${index} number = get_global_id(0); number < size; number += get_global_size(0)) {
        ${unsigned} rest = number;
        % for d in (2, 1, 0):
        % if d < skipped:
        const ${index} ${letter}${d} = 0;
        % else:
        const ${index} ${letter}${d} = rest % (${unsigned})g.${extent}[${d}];
        rest /= (${unsigned})g.${extent}[${d}];
        % endif
        % endfor
        const ${index} plane = rest;
        % if is_grad:
        % if kind == "max_grad":
        __global const ${place} *const argmax = argmax_base + argmax_base_at;
        % endif
        __global const ${O} *const dy = dy_base + dy_base_at;
        % for d in range(3):
        ${windows.cover(d)}
        % endfor
        ${windows.sum_gradients("plane")}
        y[y_at + number] = sum;
        % else:
        const ${index} at = plane * g.n[0] * g.n[1] * g.n[2];
        __global const ${T} *const x = x_base + x_base_at + at;
        % for d in range(3):
        ${parts.taps(d)}
        % endfor
        % if kind in ("argmax", "max_gather"):
        ${parts.search(order, lowest, 1, in_pairs)}
        % if kind == "argmax":
        const ${place} result = best;
        % else:
        const ${O} result = ${"best < 0 ? 0 : " if spacing == "dilated" else ""}v_base[v_base_at + at + best];
        % endif
        % else:
        ${parts.reduce(order, lowest, 1, in_pairs)}
        % endif
        y[y_at + number] = result;
        % endif
    }
}
