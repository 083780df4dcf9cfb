## Algorithm   First and second derivative of log(gamma(x)): the asymptotic series DLMF 5.11.2 and 5.15.8, reached by
##             the recurrences 5.5.2 and 5.15.5, whose sum is one quotient, and for negative x the reflections 5.5.4 and
##             5.15.6.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.series import DIGAMMA_ZERO, chebyshev_series, horner, inverse_sums
%>\
<%
    T, M, steps, counts = (
        (ctype(dtype), "long", 6, ("", 8)) if dtype == "float64" else (ctype(dtype), "int", 4, ("", 8, 16))
    )
    number = lambda value: literal(value, dtype)
%>\
% for lanes in counts:
<%
    V, mask, log, (q, r, s) = (
        f"{T}{lanes}",
        f"{M}{lanes}",
        f"log_{T}{lanes}" if lanes else "log",
        [horner(c, "v", dtype, f"{T}{lanes}") for c in inverse_sums(steps)],
    )
%>\
/* sin(pi x) / pi for 0 <= x <= 1/2 */
static inline ${V} sine_of_turn_${V}(const ${V} x)
{
    const ${V} square = x * x;
    return x * ${minimax("sinpi", "square", dtype, V)};
}

static inline ${V} digamma_${V}(const ${V} x)
{
    const ${mask} negative = (${mask})(x < (${V})(0));
    const ${V} y = select(x, 1 - x, negative);
    const ${V} v = (y + 1) * (y + ${steps});
    const ${mask} small = (${mask})(y < (${V})(${steps + 1}));
    const ${V} below = select((${V})(0), 1 / y + (2 * y + ${steps + 1}) * ${r} / ${q}, small);
    const ${V} high = select(y, y + ${steps + 1}, small);
    const ${V} inverse = 1 / high;
    const ${V} square = inverse * inverse;
    ${V} result =
        ${log}(high) - (inverse * ${number(0.5)} + square * ${minimax("digamma", "square", dtype, V)} + below);
    if (${"negative" if lanes == "" else "some_lane(negative)"}) {
        const ${V} turn = x - rint(x);
        const ${V} size = fabs(turn);
        const ${V} left =
            result - copysign(${number(3.141592653589793)}
                * sine_of_turn_${V}(${number(0.5)} - size) / sine_of_turn_${V}(size), turn);
        result = select(result, select(left, (${V})(NAN), (${mask})(turn == (${V})(0))), negative);
    }
    /* The distance from the zero in two parts, so that it is exact. */
    const ${V} t = x * 4 - ${number(5.8)};
    const ${V} about_zero =
        ((x - ${number(DIGAMMA_ZERO[dtype][0])}) - ${number(DIGAMMA_ZERO[dtype][1])})
            * ${chebyshev_series("digamma", "t", dtype, V)};
    result = select(result, about_zero, (${mask})(x > (${V})(${number(1.2)}) && x < (${V})(${number(1.7)})));
    result = select(result, copysign((${V})(INFINITY), -x), (${mask})(x == (${V})(0)));
    return select(result, (${V})(NAN), (${mask})(x == (${V})(-INFINITY)));
}

static inline ${V} trigamma_${V}(const ${V} x)
{
    const ${mask} negative = (${mask})(x < (${V})(0));
    const ${V} y = select(x, 1 - x, negative);
    const ${V} v = (y + 1) * (y + ${steps});
    const ${V} divisor = ${q};
    const ${mask} small = (${mask})(y < (${V})(${steps + 1}));
    const ${V} below = select((${V})(0), 1 / (y * y) + ${s} / (divisor * divisor), small);
    const ${V} high = select(y, y + ${steps + 1}, small);
    const ${V} inverse = 1 / high;
    const ${V} square = inverse * inverse;
    ${V} result = below + (inverse + square * (inverse * ${minimax("trigamma", "square", dtype, V)} + ${number(0.5)}));
    if (${"negative" if lanes == "" else "some_lane(negative)"}) {
        const ${V} ratio = 1 / sine_of_turn_${V}(fabs(x - rint(x)));
        result = select(result, ratio * ratio - result, negative);
    }
    return select(result, (${V})(INFINITY), (${mask})(x == (${V})(-INFINITY)));
}

% endfor
