## tanh of vectors: near zero a polynomial, else 1 - 2 / (exp(2 |x|) + 1). In float32, where there is AVX-512, sixteen intervals
## with a polynomial each, which registers hold.
<%page args="dtype"/>\
<%!
from pytensor_cl.dtypes import ctype, literal
from pytensor_cl.routines.minimax import minimax
from pytensor_cl.routines.register_tables import chosen
%>\
<%
T, M, counts, most, digits, bias = (ctype(dtype), "long", (8,), 20, 52, 1023) if dtype == "float64" else (ctype(dtype), "int", (8, 16), 10, 23, 127)
number = lambda value: literal(value, dtype)
%>\
<%include file="exp_parts.mako" args="dtype=dtype, counts=counts"/>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
% if lanes == 16:
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_permvarsf512)
#define TANH_BY_TABLE
static inline float16 tanh_float16(const float16 x)
{
    const float16 size = fabs(x), y = size > (float16)(9.1f) ? (float16)(9.1f) : size;
    /* The last bits of the exponent, and the first of the significand. */
    const int16 interval = as_int16(y + 1) >> 21;
    const float16 t = y - ${chosen("tanh", 0, "interval", dtype)};
    float16 p = ${chosen("tanh", 7, "interval", dtype)};
    % for column in range(6, 0, -1):
    p = p * t + ${chosen("tanh", column, "interval", dtype)};
    % endfor
    return copysign(p, x);
}
#endif
#endif
#ifndef TANH_BY_TABLE
% endif
static inline ${V} tanh_${V}(const ${V} x)
{
    const ${V} square = x * x, size = fabs(x);
    ${mask} k;
    const ${V} p = exp_parts_${V}(2 * select(size, (${V})(${most}), size > (${V})(${most})), (${V})(0), &k), scale = as_${V}((k + ${bias}) << ${digits});
    const ${V} far = 1 - 2 / (fma(scale, p, scale) + 1);
    const ${V} near = fma(square * ${minimax("tanh", "square", dtype, V)}, size, size);
    return copysign(select(far, near, size < (${V})(${number(0.6)})), x);
}
% if lanes == 16:
#endif
% endif

% endfor
