## pow of float32 vectors. PoCL 3.0's own takes five times as long, and is wrong beside a lane that is zero, infinite or NaN.
## A power is 2 ** (y * log2(x)), the logarithm a sum of two numbers (Dekker 1971); both series have the least largest error
## (Remez). Infinite and NaN arguments are left to the scalar function.
<%page args="dtype"/>\
<%include file="every_lane.mako"/>\
<%!
from pytensor_cl.routines.series import horner
%>\
% for lanes in (8, 16):
<% V, I = f"float{lanes}", f"int{lanes}" %>\
#ifdef POCL_DEVICE_ADDRESS_BITS
static inline ${V} power_of_positive_${V}(const ${V} x, const ${V} y)
{
    const ${I} tiny = x < (${V})(FLT_MIN);
    const ${V} scaled = select(x, x * 0x1p23f, tiny);
    const ${I} bits = (as_${I}(scaled) - 0x3f3504f3) & (${I})(0xff800000);
    const ${V} exponent = convert_${V}(bits >> 23) - select((${V})(0), (${V})(23), tiny);
    const ${V} m = as_${V}(as_${I}(scaled) - bits), sum = m + 1, difference = m - 1, missing = m - (sum - 1);
    /* log2(m) = 2 / log(2) * (r + r**3 / 3 + ...) with r = (m - 1) / (m + 1). */
    const ${V} inverse = 1 / sum, r = difference * inverse;
    const ${V} r_low = fma(-r, missing, fma(-r, sum, difference)) * inverse;
    ${V} t = r * r;
    const ${V} cube = r * t, cube_low = fma(r, t, -cube) + fma(r, r, -t) * r;
    const ${V} p = ${horner((0.5770803093910217, 0.41184085607528687, 0.33803799748420715), "t", dtype, V)};
    const ${V} c = (${V})(2.885390043258667f), third = (${V})(0.9617967009544373f), first = r * c, second = cube * third;
    const ${V} low = fma(r, (${V})(3.851926067000022e-08f), fma(r, c, -first)) + fma(r_low, fma(third * 3, t, c), p * t * cube)
        + fma(cube_low, third, fma(cube, (${V})(-7.028461812552678e-09f), fma(cube, third, -second)));
    const ${V} high = first + second, rough = exponent + high, rest = (first - high) + second + low, log_high = rough + rest;
    const ${V} log_low = (high - (rough - exponent)) + (rest - (log_high - rough));
    /* 2 ** (y * log2(x)) */
    ${V} product = y * log_high;
    const ${V} product_low = fma(y, log_low, fma(y, log_high, -product));
    const ${I} huge = product >= (${V})(130), none = product <= (${V})(-160);
    product = select(product, (${V})(0), huge | none);
    const ${I} k = convert_${I}(product + copysign((${V})(0.5f), product));
    t = (product - convert_${V}(k)) + select(product_low, (${V})(0), huge | none);
    const ${V} q = ${horner((0.6931471824645996, 0.24022650718688965, 0.05550410971045494, 0.009618032723665237, 0.0013333425158634782, 0.00015468390483874888, 1.5316201825044118e-05), "t", dtype, V)};
    const ${I} half_k = k >> 1;
    ${V} result = fma(q, t, (${V})(1)) * as_${V}((half_k + 127) << 23) * as_${V}((k - half_k + 127) << 23);
    result = select(result, (${V})(INFINITY), huge);
    return select(result, (${V})(0), none);
}
#else
#define power_of_positive_${V} pow
#endif

static inline ${V} pow_${V}(const ${V} x, const ${V} y)
{
    const ${V} size = fabs(x), most = (${V})(0x1p24f);
    const ${I} plain = x == x && size < (${V})(INFINITY) && fabs(y) < (${V})(INFINITY), even = fabs(y) >= most;
    const ${V} exponent = select((${V})(0), y, plain), small = select(exponent, (${V})(0), even);
    const ${I} whole = convert_${I}(small), odd = (whole & 1) == 1;
    const ${I} is_zero = size == (${V})(0), is_whole = convert_${V}(whole) == small;
    ${V} result = power_of_positive_${V}(select(size, (${V})(1), is_zero | ~plain), exponent);
    result = select(result, select((${V})(INFINITY), (${V})(0), exponent > (${V})(0)), is_zero);
    result = select(result, -result, (x < (${V})(0) | (is_zero & as_${I}(x) < 0)) & is_whole & odd);
    result = select(result, (${V})(NAN), x < (${V})(0) & ~is_whole);
    result = select(result, (${V})(1), exponent == (${V})(0));
    if (!every_lane(plain)) {
    % for k in range(lanes):
        if (!plain.s${f"{k:x}"}) result.s${f"{k:x}"} = pow(x.s${f"{k:x}"}, y.s${f"{k:x}"});
    % endfor
    }
    return result;
}

% endfor
