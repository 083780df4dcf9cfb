## Algorithm   atan of vectors, in a third to a half of the time of PoCL 3.0's own. In float32 it is that of x or of 1 /
##             x; in float64 atan(x) = base + atan(r) with base 0, pi/4 or pi/2 and r = x, (x - 1) / (x + 1) or -1 / x,
##             up to tan(pi/8); where there is AVX-512, with one of sixteen points c that registers hold, base atan(c)
##             and r = (x - c) / (1 + c x), up to 1/4.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.register_tables import chosen
%>\
<%
    T, counts, first, last = (
        (ctype(dtype), (8,), 2**0.5 - 1, 2**0.5 + 1) if dtype == "float64" else (ctype(dtype), (8, 16), 0, 0)
    )
    number = lambda value: literal(value, dtype)
%>\
% if dtype == "float64":
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vpermi2varpd512)
#define ATAN_BY_TABLE_${T}
static inline double8 atan_double8(const double8 x)
{
    const double8 size = fabs(x);
    const double8 y = size > (double8)(0x1p500) ? (double8)(0x1p500) : size;
    const double8 place = y > (double8)(14) ? (double8)(14) : y;
    /* The last bits of the exponent, and the first of the significand. */
    const long8 interval = as_long8(place + 1) >> 50;
    const double8 point = ${chosen("atan", 0, "interval", dtype)};
    const double8 r = (y - point) / fma(y, point, (double8)(1));
    const double8 square = r * r;
    return copysign(${chosen("atan", 1, "interval", dtype)}
        + fma(r * square, ${minimax("atan_near", "square", dtype, "double8")}, r), x);
}
#endif
#endif
% endif
% for lanes in counts:
<% V = f"{T}{lanes}" %>\
#if defined(ATAN_BY_TABLE_${T})
#elif defined(POCL_DEVICE_ADDRESS_BITS)
static inline ${V} atan_${V}(const ${V} x)
{
    const ${V} size = fabs(x);
% if dtype == "float32":
    const ${V} inverse = 1 / size;
    const ${V} r = inverse < size ? inverse : size;
    const ${V} square = r * r;
    const ${V} near = fma(r * square, ${minimax("atan", "square", dtype, V)}, r);
    return copysign(size > (${V})(1) ? (${V})(${number(1.5707963267948966)}) - near : near, x);
% else:
    const ${V} above = size > (${V})(${number(first)}) ? size - 1 : size;
    const ${V} top = size > (${V})(${number(last)}) ? (${V})(-1) : above;
    const ${V} below = size > (${V})(${number(first)}) ? size + 1 : (${V})(1);
    const ${V} bottom = size > (${V})(${number(last)}) ? size : below;
    const ${V} quarter = size > (${V})(${number(first)}) ? (${V})(${number(0.7853981633974483)}) : (${V})(0);
    const ${V} base = size > (${V})(${number(last)}) ? (${V})(${number(1.5707963267948966)}) : quarter;
    const ${V} r = top / bottom;
    const ${V} square = r * r;
    /* The base has a rounding error in proportion to it. */
    const ${V} rest =
        fma(base, (${V})(${number(6.123233995736766e-17 / 1.5707963267948966)}),
            r * (square * ${minimax("atan", "square", dtype, V)}));
    return copysign(base + (r + rest), x);
% endif
}
#else
#define atan_${V} atan
#endif

% endfor
