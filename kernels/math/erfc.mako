## Algorithm   erf and erfc of vectors. Near zero erf is a polynomial; from 1 on it is 1 - exp(log(erfc)), whose
##             logarithm is a polynomial too. erfc is exp(-x**2) times a polynomial in 1 / (x + k) (after Shepherd &
##             Laframboise 1981, Math. Comp. 36). In float32, where there is AVX-512, both have 32 intervals with a
##             polynomial each; erfc, if no lane is beyond them.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import constant_term, minimax
%>\
<%
    double = dtype == "float64"
    T, M, counts, last, digits, bias = (
        (ctype(dtype), "long", (8,), 4.95, 52, 1023) if double else (ctype(dtype), "int", (8, 16), 2.95, 23, 127)
    )
    number = lambda value: literal(value, dtype)
    largest, k = (28, 2.5) if double else (10.2, 1.5)
    low, high = 1 / (largest + k), 1 / (0.8 + k)
%>\
<%include file="/math/exp_parts.mako" args="dtype=dtype, counts=counts"/>\
<%include file="/math/lane_vote.mako"/>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
% if lanes == 16:
<%include file="/math/erfc_table.mako"/>\
#ifndef ERF_BY_TABLE
% endif
static inline ${V} erf_${V}(const ${V} x)
{
    const ${V} size = fabs(x);
    const ${V} above = size - 1;
    const ${V} square = x * x;
    const ${V} t = select(above, (${V})(${number(last)}), above > (${V})(${number(last)}));
    ${mask} k;
    const ${V} power = exp_parts_${V}(${minimax("log_erfc", "t", dtype, V)}, (${V})(0), &k);
    const ${V} scale = as_${V}((k + ${bias}) << ${digits});
    const ${V} far = copysign(fma(-scale, power, 1 - scale), x);
    return select(far, x * ${minimax("erf", "square", dtype, V)} + x, size < (${V})(1));
}
% if lanes == 16:
#endif
% endif

% if double:
#ifndef POCL_DEVICE_ADDRESS_BITS
#define erfc_${V} erfc /* Intel's is as fast */
#else
% endif
static inline ${V} erfc_${V}(const ${V} x)
{
% if lanes == 16:
#ifdef ERF_BY_TABLE
    if (every_lane(is_near_erfc(x)))
        return erfc_near_float16(x);
#endif
% endif
    const ${V} y = select(fabs(x), (${V})(${number(largest)}), fabs(x) > (${V})(${number(largest)}));
    const ${V} square = y * y;
    /* Beyond the largest y the result is zero. exp(-y**2), with the rounding error of the square,
        times exp(y**2) erfc(y). */
    ${mask} k;
    const ${V} power = exp_parts_${V}(-square, fma(-y, y, square), &k);
    const ${V} sum = y + ${number(k)};
    const ${V} q = 1 / sum;
    const ${V} missing = fma(-q, sum, (${V})(1)) - q * (y - (sum - ${number(k)}));
    const ${V} t = (${number(2 / (high + low) - k)} - y) * (q * ${number((high + low) / (high - low))});
    const ${V} first = (${V})(${constant_term("erfcx", dtype)});
    const ${V} rest = t * ${minimax("erfcx", "t", dtype, V, 1)};
    const ${V} factor = fma(q, first, q * fma(missing, first + rest, rest));
    const ${V} right = times_power_${V}(fma(factor, power, factor), k);
    return select(select(right, 2 - right, x < (${V})(0)), 1 - (x * ${minimax("erf", "square", dtype, V)} + x),
        y < (${V})(${number(0.8)}));
}
% if double:
#endif
% endif

% endfor
