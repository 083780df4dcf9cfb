## Algorithm   sqrt(2) erfinv(2 exp(x) - 1). Far below, erfc(z) = 2 exp(x) is solved for z with the asymptotic series of
##             erfc, DLMF 7.12.1; a step of this iteration gains a factor 2 z**2.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
T, M, counts = (ctype(dtype), "long", ("", 8)) if dtype == "float64" else (ctype(dtype), "int", ("", 8, 16))
number = lambda value: literal(value, dtype)
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
<% own = lambda name: f"{name}_{V}" if lanes else name %>\
static inline ${V} ndtri_exp_${V}(const ${V} x)
{
    const ${V} below = -${own("expm1")}(x);
    const ${V} power = ${own("exp")}(x);
    const ${mask} far = (${mask})(x < (${V})(-700));
    const ${mask} deep = (${mask})(x < (${V})(-1));
    /* Of 1 - exp(x),
        whose rounding error the quotient takes away: log(1 + t) is log(s) t / (s - 1) for s = 1 + t (Kahan). */
    const ${V} sum = 1 - power;
    const ${V} safe = select(sum - 1, (${V})(-1), (${mask})(sum == (${V})(1)));
    const ${V} log_sum = ${own("log")}(select(below, sum, deep));
    const ${V} complement =
        select(log_sum, select(log_sum * (-power / safe), -power, (${mask})(sum == (${V})(1))), deep);
    const ${V} w = -(x + complement + ${number(1.3862943611198906)});
    ${V} result =
        ${number(-(2**0.5))} * (1 - 2 * power) * erfinv_ratio_${V}(select(fmax(w, (${V})(0)), (${V})(1), far));
    if (${"far" if lanes == "" else "some_lane(far)"}) {
        const ${V} goal = select((${V})(1000), -x, far) - ${number(0.6931471805599453)};
        ${V} square = goal;
        for (int k = 0; k < 5; ++k) {
            const ${V} r = 1 / square;
            square = goal - ${number(0.5)} * (${own("log")}(square) + ${number(1.1447298858494002)})
                + log1p(r * (r * (${number(0.75)} - r * ${number(1.875)}) - ${number(0.5)}));
        }
        result = select(result, ${number(-(2**0.5))} * sqrt(square), far);
    }
    result = select(result, (${V})(INFINITY), (${mask})(x == (${V})(0)));
    result = select(result, (${V})(-INFINITY), (${mask})(x == (${V})(-INFINITY)));
    return select(result, (${V})(NAN), (${mask})(x > (${V})(0)));
}

% endfor
