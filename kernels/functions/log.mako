## log, log2 and log10 of vectors where there is AVX-512: an instruction takes the significand m, from 3/4 to 3/2, and a register chooses a
## number near 1 / m by its first bits, and its logarithm (Tang 1990). What is left is a series in r = m / near - 1. No case is
## special: the instructions have the right exponent and significand for zero, infinities, NaN and subnormal numbers.
<%page args="dtype"/>\
<%!
from pytensor_cl.dtypes import ctype, literal, vector_type
from pytensor_cl.routines.minimax import minimax
from pytensor_cl.routines.register_tables import SCALES, chosen
%>\
<%
T, V, I, all_lanes, suffix, digits = (ctype(dtype), vector_type(dtype, 8), "long8", "(uchar)-1", "pd512_mask", 48) if dtype == "float64" else (ctype(dtype), "float16", "int16", "(ushort)-1", "ps512_mask", 19)
number = lambda value: f"({V})({literal(value, dtype)})"
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
    const ${V} exponent = __builtin_ia32_getexp${suffix}(x, x, ${all_lanes}, 4) - __builtin_ia32_getexp${suffix}(m, m, ${all_lanes}, 4);
    const ${I} interval = as_${I}(m) >> ${digits};
    const ${V} r = fma(m, ${chosen("log", 0, "interval", dtype)}, (${V})(-1)), square = r * r, near = ${chosen("log", column, "interval", dtype)};
    const ${V} rest = square * ${minimax("log1p", "r", dtype, V)} + r;
% if name == "log":
    return fma(exponent, ${number(0.6931471805599453)}, near + rest);
% else:
<% (high, low), (unit, unit_low) = SCALES[name, dtype] %>\
    /* The low parts are positive: an infinite exponent makes no NaN. */
    const ${V} sum = near + fma(rest, ${number(high)}, rest * ${number(low)});
    return ${"exponent + sum" if name == "log2" else f"fma(exponent, {number(unit)}, fma(exponent, {number(unit_low)}, sum))"};
% endif
}

% endfor
#endif
#endif
% for name in ("log", "log2", "log10"):
% if dtype == "float32":
#define ${name}_float8 ${name}
% endif
#ifndef LOG_BY_TABLE_${T}
#define ${name}_${V} ${name}
#endif
% endfor
#endif
