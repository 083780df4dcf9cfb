## Algorithm   log(|gamma(x)|), without loops. Near: gamma(2 + a) and a product, the recurrence DLMF 5.5.1; far:
##             Stirling's series, 5.11.1; below zero the reflection 5.5.3. The zeros at 1 and 2 are exact.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
%>\
<%
T, M, far, counts = (ctype(dtype), "long", 6, ("", 8)) if dtype == "float64" else (ctype(dtype), "int", 4, ("", 8, 16))
number = lambda value: literal(value, dtype)
%>\
% for lanes in counts:
<% V, mask, log = f"{T}{lanes}", f"{M}{lanes}", f"log_{T}{lanes}" if lanes else "log" %>\
static inline ${V} gammaln_${V}(const ${V} x)
{
    const ${mask} negative = (${mask})(x < (${V})(0));
    const ${V} y = select(x, 1 - x, negative);
    const ${V} whole = floor(y + ${number(0.75)});
    const ${V} a = y - whole;
    const ${mask} far = (${mask})(y >= (${V})(${far}));
    const ${mask} below = (${mask})(whole < (${V})(2));
    /* gamma(y) is gamma(2 + a) over the product if it is below, else times the product. */
    ${V} product = select((${V})(1), select(y, y * (y + 1), (${mask})(whole < (${V})(1))), below);
    % for k in range(2, far):
    product = select(product, product * (a + ${k}), (${mask})(whole > (${V})(${k})));
    % endfor
    const ${V} power = ${log}(select(product, y, far));
    const ${V} inverse = 1 / y;
    const ${V} square = inverse * inverse;
    const ${V} near = a * ${minimax("lgamma2p", "a", dtype, V)} + select(power, -power, below);
    const ${V} series =
        (y - ${number(0.5)}) * (power - 1)
            + (inverse * ${minimax("stirling", "square", dtype, V)} + ${number(0.41893853320467274)});
    ${V} result = select(near, series, far);
    if (${"negative" if lanes == "" else "some_lane(negative)"}) {
        const ${V} turn = fabs(x - rint(x));
        const ${V} turns = turn * turn;
        const ${V} left = -${log}(turn * ${minimax("sinpi", "turns", dtype, V)}) - result;
        result = select(result, select(left, (${V})(INFINITY), (${mask})(turn == (${V})(0))), negative);
    }
    return select(result, x, (${mask})(x == (${V})(-INFINITY)));
}

% endfor
