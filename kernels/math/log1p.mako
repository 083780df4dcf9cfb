## Algorithm   log1p, asinh, acosh and atanh of vectors, two or three times as fast as PoCL 3.0's own. The logarithm of
##             a number from sqrt(1/2) to sqrt(2) is a series in r = t / (2 + t), DLMF 4.6.4, of which the part that is
##             exact is taken out. Where there is AVX-512, tables as in kernels/math/log.mako.
<%page args="dtype"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.register_tables import chosen
%>\
<%
    T, M, counts, digits, root_half, log2 = (
        (ctype(dtype), "long", (8,), 52, "0x3fe6a09e667f3bcdL", ("0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45"))
        if dtype == "float64"
        else (ctype(dtype), "int", (8, 16), 23, "0x3f3504f3", ("0x1.62e4p-1f", "0x1.7f7d1cp-20f"))
    )
    number, far = lambda value: literal(value, dtype), "0x1p28" if dtype == "float64" else "0x1p13f"
%>\
% for lanes in counts:
<% V, I = f"{T}{lanes}", f"{M}{lanes}" %>\
% if lanes == counts[-1]:
<% suffix, all_lanes = ("pd512_mask", "(uchar)-1") if dtype == "float64" else ("ps512_mask", "(ushort)-1") %>\
#ifdef LOG_BY_TABLE_${T}
static inline ${V} log1p_${V}(const ${V} x)
{
    const ${V} one = (${V})(1);
    const ${V} sum = x + 1;
    const ${V} high = x > one ? x : one;
    const ${V} low = x > one ? one : x;
    const ${V} m = __builtin_ia32_getmant${suffix}(sum, 11, sum, ${all_lanes}, 4);
    const ${V} down =
        __builtin_ia32_getexp${suffix}(m, m, ${all_lanes}, 4)
            - __builtin_ia32_getexp${suffix}(sum, sum, ${all_lanes}, 4);
    const ${I} interval = as_${I}(m) >> ${digits - 4};
    const ${V} near = ${chosen("log", 0, "interval", dtype)};
    const ${V} lost = low - (sum - high);
    const ${V} r =
        fma(__builtin_ia32_scalef${suffix}(lost, down, lost, ${"-1" if dtype == "float64" else "-1"}, 4), near,
            fma(m, near, (${V})(-1)));
    const ${V} square = r * r;
    const ${V} rest = square * ${minimax("log1p", "r", dtype, V)} + r;
    const ${V} result =
        fma(down, (${V})(${number(-0.6931471805599453)}), ${chosen("log", 1, "interval", dtype)} + rest);
    const ${V} inside = x < (${V})(INFINITY) ? copysign(result, x) : x;
    return x == (${V})(-1) ? (${V})(-INFINITY) : inside;
}
#define LOG1P_BY_TABLE_${T}
#endif
#ifndef LOG1P_BY_TABLE_${T}
% endif
#if ${int(dtype == "float32")} || defined(POCL_DEVICE_ADDRESS_BITS)
static inline ${V} log1p_${V}(const ${V} x)
{
    const ${V} sum = x + 1;
    const ${I} bits = (as_${I}(sum) - ${root_half}) & ((${I})(-1) << ${digits});
    const ${V} scale = as_${V}(as_${I}((${V})(1)) - bits);
    const ${V} exponent = convert_${V}(bits >> ${digits});
    const ${V} t =
        select(fma(scale, x, scale - 1), as_${V}(as_${I}(sum) - bits) - 1,
            x > (${V})(${number(2.0**55 if dtype == "float64" else 2.0**24)}));
    const ${V} r = t / (2 + t);
    const ${V} square = r * r;
    const ${V} half_square = t * t * ${number(0.5)};
    const ${V} low =
        fma(exponent, (${V})(${log2[1]}), r * fma(square, ${minimax("log", "square", dtype, V)}, half_square))
            - half_square;
    ${V} result = fma(exponent, (${V})(${log2[0]}), low + t);
    result = select(x, result, fabs(x) > (${V})(${number(2.0**-70)}) && x < (${V})(INFINITY));
    result = select(result, (${V})(-INFINITY), x == (${V})(-1));
    return select(result, (${V})(NAN), x < (${V})(-1));
}
#else
#define log1p_${V} log1p
#endif
% if lanes == counts[-1]:
#endif
% endif

#ifdef POCL_DEVICE_ADDRESS_BITS
static inline ${V} asinh_${V}(const ${V} x)
{
    const ${V} size = fabs(x);
    const ${V} square = size * size;
    const ${I} far = size > (${V})(${far});
    const ${V} result =
        log1p_${V}(select(size + square / (1 + sqrt(1 + square)), size - 1, far))
            + select((${V})(0), (${V})(${number(0.6931471805599453)}), far);
    return copysign(result, x);
}

static inline ${V} acosh_${V}(const ${V} x)
{
    const ${V} t = x < (${V})(1) ? (${V})(NAN) : x - 1;
    const ${I} far = x > (${V})(${far});
    return log1p_${V}(select(t + sqrt(t * (t + 2)), t, far))
        + select((${V})(0), (${V})(${number(0.6931471805599453)}), far);
}

static inline ${V} atanh_${V}(const ${V} x)
{
    const ${V} size = fabs(x);
    const ${V} twice = size + size;
    return copysign(${number(0.5)} * log1p_${V}(twice / (1 - size)), x);
}
#else
#define asinh_${V} asinh
#define acosh_${V} acosh
#define atanh_${V} atanh
#endif
% endfor
