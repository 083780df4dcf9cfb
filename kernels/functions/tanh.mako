## tanh of vectors: near zero a polynomial, else 1 - 2 / (exp(2 |x|) + 1).
<%page args="dtype"/>\
<%!
from pytensor_cl.dtypes import ctype, literal
from pytensor_cl.routines.minimax import minimax
%>\
<%
T, M, counts, most, digits, bias = (ctype(dtype), "long", (8,), 20, 52, 1023) if dtype == "float64" else (ctype(dtype), "int", (8, 16), 10, 23, 127)
number = lambda value: literal(value, dtype)
%>\
<%include file="exp_parts.mako" args="dtype=dtype, counts=counts"/>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} tanh_${V}(const ${V} x)
{
    const ${V} square = x * x, size = fabs(x);
    ${mask} k;
    const ${V} p = exp_parts_${V}(2 * select(size, (${V})(${most}), size > (${V})(${most})), (${V})(0), &k), scale = as_${V}((k + ${bias}) << ${digits});
    const ${V} far = 1 - 2 / (fma(scale, p, scale) + 1);
    const ${V} near = fma(square * ${minimax("tanh", "square", dtype, V)}, size, size);
    return copysign(select(far, near, size < (${V})(${number(0.6)})), x);
}

% endfor
