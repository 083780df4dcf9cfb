## Algorithm   tanh of vectors from exp(2 |x|) = s (c + r) / (c - r), where s is a power of two and c = r coth(r / 2) a
##             short series: one quotient, accurate near zero too. In float32, where there is AVX-512, sixteen intervals
##             with a polynomial each, which registers hold.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.register_tables import chosen
%>\
<%
    T, M, counts, most, digits, bias = (
        (ctype(dtype), "long", (8,), 20, 52, 1023)
        if dtype == "float64"
        else (ctype(dtype), "int", (8, 16), 10, 23, 127)
    )
    number = lambda value: literal(value, dtype)
    log2 = ("0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45") if dtype == "float64" else ("0x1.62e4p-1f", "0x1.7f7d1cp-20f")
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
% if lanes == 16:
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_permvarsf512)
#define TANH_BY_TABLE
static inline float16 tanh_float16(const float16 x)
{
    const float16 size = fabs(x);
    const float16 y = size > (float16)(9.1f) ? (float16)(9.1f) : size;
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
    const ${V} size = fabs(x);
    const ${V} y = size > (${V})(${most}) ? (${V})(${most}) : size;
    /* So large a sum is rounded to an integer, which its last bits are. */
    const ${V} magic = (${V})(${number(1.5 * 2**digits + bias)});
    const ${V} sum = fma(y, (${V})(${number(2.8853900817779268)}), magic);
    const ${V} k = sum - magic;
    const ${V} r = fma(k, (${V})(-${log2[1]}), fma(k, (${V})(-${log2[0]}), 2 * y));
    const ${V} square = r * r;
    const ${V} c = fma(square, ${minimax("coth", "square", dtype, V)}, (${V})(2));
    const ${V} s = as_${V}(as_${mask}(sum) << ${digits});
    const ${V} above = s - 1;
    const ${V} below = s + 1;
    return copysign(fma(above, c, below * r) / fma(below, c, above * r), x);
}
% if lanes == 16:
#endif
% endif

% endfor
