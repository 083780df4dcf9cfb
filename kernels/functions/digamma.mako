## First and second derivative of log(gamma(x)): DLMF 5.11.2 and 5.15.8 for x >= 10, reached by the recurrences 5.5.2
## and 5.15.5, and for negative x the reflections 5.5.4 and 5.15.6.
<%page args="dtype"/>\
<%!
from pytensor_cl.dtypes import ctype, literal
from pytensor_cl.routines.series import DIGAMMA_ZERO, chebyshev_series
## Bernoulli numbers B2, B4, ... B14
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
PI = 3.141592653589793
%>\
<%
T, M = ctype(dtype), "long" if dtype == "float64" else "int"
number = lambda value: literal(value, dtype)
%>\
<%def name="series(coefficients)">\
% for c in reversed(coefficients):
    sum = sum * square + (${V})(${number(c)});
% endfor
</%def>\
% for lanes in ("", 2, 4, 8, 16):
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} digamma_${V}(const ${V} x)
{
    const ${mask} negative = (${mask})(x < (${V})(0));
    ${V} y = select(x, 1 - x, negative), below = 0, sum = 0;
    for (int k = 0; k < 10; ++k) {
        const ${mask} small = (${mask})(y < (${V})(10));
        below += select((${V})(0), 1 / y, small);
        y += select((${V})(0), (${V})(1), small);
    }
    const ${V} square = 1 / (y * y);
    ${series([b / (2 * k + 2) for k, b in enumerate(BERNOULLI)])}\
    const ${V} right = log(y) - ${number(0.5)} / y - sum * square - below;
    /* Only the fraction counts; the filler keeps NaN out of tan. */
    const ${V} turn = select((${V})(${number(0.25)}), x - rint(x), (${mask})(fabs(x) < (${V})(INFINITY)));
    const ${V} left = right - ${number(PI)} / tan(${number(PI)} * turn);
    const ${mask} pole = negative & (${mask})(turn == (${V})(0));
    ${V} result = select(select(right, left, negative), (${V})(NAN), pole);
    /* The distance from the zero in two parts, so that it is exact. */
    const ${V} t = x * 4 - ${number(5.8)}, about_zero = ((x - ${number(DIGAMMA_ZERO[dtype][0])}) - ${number(DIGAMMA_ZERO[dtype][1])}) * ${chebyshev_series("digamma", "t", dtype, V)};
    result = select(result, about_zero, (${mask})(x > (${V})(${number(1.2)}) && x < (${V})(${number(1.7)})));
    result = select(result, copysign((${V})(INFINITY), -x), (${mask})(x == (${V})(0)));
    return select(result, (${V})(NAN), (${mask})(x == (${V})(-INFINITY)));
}

static inline ${V} trigamma_${V}(const ${V} x)
{
    const ${mask} negative = (${mask})(x < (${V})(0));
    ${V} y = select(x, 1 - x, negative), above = 0, sum = 0;
    for (int k = 0; k < 10; ++k) {
        const ${mask} small = (${mask})(y < (${V})(10));
        above += select((${V})(0), 1 / (y * y), small);
        y += select((${V})(0), (${V})(1), small);
    }
    const ${V} square = 1 / (y * y);
    ${series(BERNOULLI)}\
    const ${V} right = above + 1 / y + ${number(0.5)} * square + sum * square / y;
    const ${V} turn = select((${V})(${number(0.25)}), x - rint(x), (${mask})(fabs(x) < (${V})(INFINITY)));
    const ${V} ratio = ${number(PI)} / sin(${number(PI)} * turn);
    const ${V} result = select(right, ratio * ratio - right, negative);
    return select(result, (${V})(INFINITY), (${mask})(x == (${V})(-INFINITY)));
}

% endfor
