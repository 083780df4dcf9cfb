## Algorithm   log, log2 and log10 of vectors where there is AVX-512: an instruction takes the significand m, from 3/4
##             to 3/2, and a register chooses a number near 1 / m by its first bits, and its logarithm (Tang 1990). The
##             rest is a series in r = m / near - 1. There are no special cases: the instructions have the right
##             exponent and significand for zero, infinities, NaN and subnormal numbers. With AVX2, the series of
##             kernels/math/log1p.mako: PoCL 3.0's own take twice as long.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal, vector_type
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.register_tables import SCALES, chosen
%>\
<%
    T, V, I, all_lanes, suffix, digits = (
        (ctype(dtype), vector_type(dtype, 8), "long8", "(uchar)-1", "pd512_mask", 48)
        if dtype == "float64"
        else (ctype(dtype), "float16", "int16", "(ushort)-1", "ps512_mask", 19)
    )
    number = lambda value: f"({V})({literal(value, dtype)})"
    scalar, bits, counts, root_half, least, parts = (
        ("long", 52, (8,), "0x3fe6a09e667f3bcdL", "DBL_MIN", ("0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45"))
        if dtype == "float64"
        else ("int", 23, (8, 16), "0x3f3504f3", "FLT_MIN", ("0x1.62e4p-1f", "0x1.7f7d1cp-20f"))
    )
%>\
#ifndef LOG_${T}
#define LOG_${T}
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_getmant${suffix}) && __has_builtin(__builtin_ia32_getexp${suffix})
#define LOG_BY_TABLE_${T}
% for name, column in (("log", 1), ("log2", 2), ("log10", 3)):
static inline ${V} ${name}_${V}(const ${V} x)
{
    const ${V} m = __builtin_ia32_getmant${suffix}(x, 11, x, ${all_lanes}, 4);
    const ${V} exponent =
        __builtin_ia32_getexp${suffix}(x, x, ${all_lanes}, 4) - __builtin_ia32_getexp${suffix}(m, m, ${all_lanes}, 4);
    const ${I} interval = as_${I}(m) >> ${digits};
    const ${V} r = fma(m, ${chosen("log", 0, "interval", dtype)}, (${V})(-1));
    const ${V} square = r * r;
    const ${V} near = ${chosen("log", column, "interval", dtype)};
    const ${V} rest = square * ${minimax("log1p", "r", dtype, V)} + r;
% if name == "log":
    return fma(exponent, ${number(0.6931471805599453)}, near + rest);
% else:
<% (high, low), (unit, unit_low) = SCALES[name, dtype] %>\
    /* The low parts are positive: an infinite exponent makes no NaN. */
    const ${V} sum = near + fma(rest, ${number(high)}, rest * ${number(low)});
% if name == "log2":
    return exponent + sum;
% else:
    return fma(exponent, ${number(unit)}, fma(exponent, ${number(unit_low)}, sum));
% endif
% endif
}

% endfor
#endif
#endif
#if defined(POCL_DEVICE_ADDRESS_BITS) && defined(__AVX2__) && defined(__FMA__) && !defined(__AVX512F__)
#define LOG_BY_SERIES_${T}
% for lanes in counts:
<% V, I = vector_type(dtype, lanes), f"{scalar}{lanes}" %>\
/* The significand less one is t, exactly; its logarithm the sum of t and what is returned. */
static inline ${V} log_parts_${V}(const ${V} x, ${V} *exponent, ${V} *t)
{
    const ${I} tiny = x < (${V})(${least});
    const ${I} whole = as_${I}(tiny ? x * (${V})(${literal(2.0**bits, dtype)}) : x);
    const ${I} power = (whole - ${root_half}) & ((${I})(-1) << ${bits});
    *exponent = convert_${V}(power >> ${bits}) - (tiny ? (${V})(${bits}) : (${V})(0));
    *t = as_${V}(whole - power) - 1;
    const ${V} r = *t / (2 + *t);
    const ${V} square = r * r;
    const ${V} half_square = *t * *t * ${literal(0.5, dtype)};
    return r * (square * ${minimax("log", "square", dtype, V)} + half_square) - half_square;
}

static inline ${V} log_else_${V}(const ${V} x, const ${V} result)
{
    const ${V} outside = x == (${V})(0) ? (${V})(-INFINITY) : (x > (${V})(0) ? x : (${V})(NAN));
    return x > (${V})(0) & x < (${V})(INFINITY) ? result : outside;
}

% for name in ("log", "log2", "log10"):
static inline ${V} ${name}_${V}(const ${V} x)
{
    ${V} exponent, t;
    const ${V} low = log_parts_${V}(x, &exponent, &t);
% if name == "log":
    return log_else_${V}(x, exponent * ${parts[0]} + (exponent * ${parts[1]} + low + t));
% else:
<% (high, high_low), (unit, unit_low) = SCALES[name, dtype] %>\
    const ${V} sum = t * ${number(high)} + (t * ${number(high_low)} + low * ${number(high)});
% if name == "log2":
    return log_else_${V}(x, exponent + sum);
% else:
    return log_else_${V}(x, exponent * ${number(unit)} + (exponent * ${number(unit_low)} + sum));
% endif
% endif
}

% endfor
% endfor
#endif
% for name in ("log", "log2", "log10"):
#ifndef LOG_BY_SERIES_${T}
% if dtype == "float32":
#define ${name}_float8 ${name}
% endif
#ifndef LOG_BY_TABLE_${T}
#define ${name}_${V} ${name}
#endif
#endif
% endfor
#endif
