## Pooling and its gradients on schedule simt: a work-item per element of the output. Kind place tells where the first
## largest element of each window is; with that, an element of the gradient of kind scatter asks the windows that it is in.
<%page args="name, kind, dtype, other, index, mask, lowest, place, inner"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="parts" file="/pool/common.mako"/>
<%namespace name="windows" file="/pool/covering_windows.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<%
T, O = ctype(dtype), ctype(other)
is_grad = kind in ("scatter", "spread")
extent = "n" if is_grad else "count"
letter = "i" if is_grad else "o"
first = {"spread": None, "scatter": f"const {place} *const places_base"}.get(kind, f"const {T} *const x_base")
second = {"gather": f"const {O} *const v_base", "scatter": f"const {O} *const dy_base", "spread": f"const {O} *const dy_base"}.get(kind)
%>
${parts.header()}
__kernel void ${name}(\
% for argument in filter(None, (first, second)):
__global ${argument}, const long ${argument.split("*const ")[1]}_at, \
% endfor
__global ${place if kind == "place" else O} *const y, const long y_at, const ${name}_geometry g)
{
    const ${index} size = g.planes * g.${extent}[0] * g.${extent}[1] * g.${extent}[2];
    for (${index} number = get_global_id(0); number < size; number += get_global_size(0)) {
        const ${index} ${letter}2 = number % g.${extent}[2], rest = number / g.${extent}[2];
        const ${index} ${letter}1 = rest % g.${extent}[1], rest_too = rest / g.${extent}[1];
        const ${index} ${letter}0 = rest_too % g.${extent}[0], plane = rest_too / g.${extent}[0];
        % if is_grad:
        % if kind == "scatter":
        __global const ${place} *const places = places_base + places_base_at;
        % endif
        __global const ${O} *const dy = dy_base + dy_base_at;
        % for d in range(3):
        ${windows.cover(d)}
        % endfor
        ${windows.gather("plane")}
        y[y_at + number] = sum;
        % else:
        const ${index} at = plane * g.n[0] * g.n[1] * g.n[2];
        __global const ${T} *const x = x_base + x_base_at + at;
        % for d in range(3):
        ${parts.taps(d)}
        % endfor
        % if kind in ("place", "gather"):
        ${parts.search(order, lowest)}
        const ${place if kind == "place" else O} result = ${"best" if kind == "place" else "v_base[v_base_at + at + best]"};
        % else:
        ${parts.reduce(order, lowest)}
        % endif
        y[y_at + number] = result;
        % endif
    }
}
