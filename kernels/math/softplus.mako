## Algorithm   log(1 + exp(x)) of vectors, without overflow: x if it is positive, and the logarithm of 1 + exp(-|x|), a
##             series in r = t / (2 + t), DLMF 4.6.4, for t up to 1.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
%>\
<%
    T, M, counts, lowest = (
        (ctype(dtype), "long", (8,), -760) if dtype == "float64" else (ctype(dtype), "int", (8, 16), -110)
    )
    number = lambda value: literal(value, dtype)
%>\
<%include file="/math/exp_parts.mako" args="dtype=dtype, counts=counts"/>\
% for lanes in counts:
<% V, I = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} softplus_${V}(const ${V} x)
{
    const ${V} below = -fabs(x);
    ${I} k;
    const ${V} p = exp_parts_${V}(select(below, (${V})(${lowest}), below < (${V})(${lowest})), (${V})(0), &k);
    const ${V} t = times_power_${V}(p + 1, k);
    const ${V} r = t / (t + 2);
    const ${V} square = r * r;
    const ${V} half_square = t * t * ${number(0.5)};
    const ${V} low = r * fma(square, ${minimax("log_near_1", "square", dtype, V)}, half_square) - half_square;
    return low + t + select(x, (${V})(0), x < (${V})(0));
}

% endfor
