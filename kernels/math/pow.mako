## Algorithm   pow of vectors. PoCL 3.0's own takes five times as long, and is wrong in lanes beside one that is zero,
##             infinite or NaN. A power is 2 ** (y * log2(x)), the logarithm a sum of two numbers (Dekker 1971).
##             Infinite and NaN arguments are left to the scalar function.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype
    from pytensor_cl.codegen.coefficients.minimax import minimax

    # Integer type; bits of the fraction; bias; bits of sqrt(1/2); a number as large as the significand; exponents of
    # results that are too large and too small; 2 / log(2) and a third of it, in two parts each; lanes.
    FLOAT = (
        "int",
        23,
        127,
        "0x3f3504f3",
        "0x1.8p23f",
        (130, 160),
        ("0x1.715476p+1f", "0x1.4ae0c0p-25f", "0x1.ec709ep-1f", "-0x1.e2fe02p-28f"),
        (8, 16),
    )
    OTHER = (
        "long",
        52,
        1023,
        "0x3fe6a09e667f3bcdL",
        "0x1.8p52",
        (1030, 1090),
        ("0x1.71547652b82fep+1", "0x1.777d0ffda0d24p-55", "0x1.ec709dc3a03fdp-1", "0x1.d27f05548af0cp-55"),
        (8,),
    )
%>\
<%
    M, digits, bias, root_half, magic, (highest, lowest), (c, c_low, third, third_low), counts = (
        OTHER if dtype == "float64" else FLOAT
    )
%>\
#ifdef POCL_DEVICE_ADDRESS_BITS
% for lanes in counts:
<% V, I = f"{ctype(dtype)}{lanes}", f"{M}{lanes}" %>\
static inline ${V} power_of_positive_${V}(const ${V} x, const ${V} y)
{
    const ${I} tiny = x < (${V})(${"FLT_MIN" if M == "int" else "DBL_MIN"});
    const ${V} scaled = select(x, x * 0x1p${digits}${"f" if M == "int" else ""}, tiny);
    const ${I} bits = (as_${I}(scaled) - ${root_half}) & ((${I})(-1) << ${digits});
    const ${V} exponent = convert_${V}(bits >> ${digits}) - select((${V})(0), (${V})(${digits}), tiny);
    const ${V} m = as_${V}(as_${I}(scaled) - bits);
    const ${V} sum = m + 1;
    const ${V} difference = m - 1;
    const ${V} missing = m - (sum - 1);
    /* log2(m) = 2 / log(2) * (r + r**3 / 3 + ...) with r = (m - 1) / (m + 1). */
    const ${V} inverse = 1 / sum;
    const ${V} r = difference * inverse;
    const ${V} r_low = fma(-r, missing, fma(-r, sum, difference)) * inverse;
    ${V} t = r * r;
    const ${V} cube = r * t;
    const ${V} cube_low = fma(r, t, -cube) + fma(r, r, -t) * r;
    const ${V} p = ${minimax("log2", "t", dtype, V)};
    const ${V} c = (${V})(${c});
    const ${V} third = (${V})(${third});
    const ${V} first = r * c;
    const ${V} second = cube * third;
    const ${V} low = fma(r, (${V})(${c_low}), fma(r, c, -first)) + fma(r_low, fma(third * 3, t, c), p * t * cube)
        + fma(cube_low, third, fma(cube, (${V})(${third_low}), fma(cube, third, -second)));
    const ${V} high = first + second;
    const ${V} rough = exponent + high;
    const ${V} rest = (first - high) + second + low;
    const ${V} log_high = rough + rest;
    const ${V} log_low = (high - (rough - exponent)) + (rest - (log_high - rough));
    /* 2 ** (y * log2(x)); so large a sum is rounded to an integer, which its last bits are. */
    ${V} product = y * log_high;
    const ${V} product_low = fma(y, log_low, fma(y, log_high, -product));
    const ${V} magic = (${V})(${magic});
    const ${I} huge = product >= (${V})(${highest});
    const ${I} none = product <= (${V})(-${lowest});
    product = select(product, (${V})(0), huge | none);
    const ${V} shifted = product + magic;
    const ${I} k = as_${I}(shifted) - as_${I}(magic);
    const ${I} half_k = k >> 1;
    t = (product - (shifted - magic)) + select(product_low, (${V})(0), huge | none);
    ${V} result =
        (t * ${minimax("exp2", "t", dtype, V)} + 1) * as_${V}((half_k + ${bias}) << ${digits})
            * as_${V}((k - half_k + ${bias}) << ${digits});
    result = select(result, (${V})(INFINITY), huge);
    return select(result, (${V})(0), none);
}

static inline ${V} pow_${V}(const ${V} x, const ${V} y)
{
    const ${V} size = fabs(x);
    const ${I} plain = size < (${V})(INFINITY) && fabs(y) < (${V})(INFINITY);
    const ${I} is_zero = size == (${V})(0);
    const ${V} exponent = select((${V})(0), y, plain);
    const ${V} half_of_it = exponent * ${"0.5f" if M == "int" else "0.5"};
    const ${I} is_whole = floor(exponent) == exponent;
    const ${I} odd = is_whole & (floor(half_of_it) != half_of_it);
    ${V} result = power_of_positive_${V}(select(size, (${V})(1), is_zero | ~plain), exponent);
    result = select(result, select((${V})(INFINITY), (${V})(0), exponent > (${V})(0)), is_zero);
    result = select(result, -result, (as_${I}(x) < 0) & odd);
    result = select(result, (${V})(NAN), x < (${V})(0) & ~is_whole);
    result = select(result, (${V})(1), exponent == (${V})(0));
    if (!every_lane(plain)) {
    % for k in range(lanes):
        if (!plain.s${f"{k:x}"})
            result.s${f"{k:x}"} = pow(x.s${f"{k:x}"}, y.s${f"{k:x}"});
    % endfor
    }
    return result;
}
% endfor
#else
% for lanes in counts:
#define pow_${ctype(dtype)}${lanes} pow
% endfor
#endif
