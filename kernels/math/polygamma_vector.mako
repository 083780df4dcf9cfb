## Algorithm   polygamma of vectors: the sum and the tail of kernels/math/polygamma.mako for arguments above zero, until
##             no lane needs another term. Rare arguments are computed lane by lane.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import EULER_MACLAURIN
%>\
<%
T, M, counts, eps = (ctype(dtype), "long", (8,), 1e-18) if dtype == "float64" else (ctype(dtype), "int", (8, 16), 1e-9)
number = lambda value: literal(value, dtype)
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} polygamma_${V}(const ${V} n0, const ${V} x0)
{
    const ${mask} usual =
        (${mask})(n0 >= (${V})(1)) & (${mask})(n0 <= (${V})(170)) & (${mask})(x0 > (${V})(0))
            & (${mask})(x0 < (${V})(INFINITY));
    const ${V} n = select((${V})(1), n0, usual);
    const ${V} x = select((${V})(20), x0, usual);
    const ${V} s = n + 1;
    const ${V} last = 12 + n;
    ${V} first = 1 / x;
    ${V} sum = 1;
    ${V} w = x;
    ${V} term = 1;
    for (int j = 1; some_lane((${mask})(n >= (${V})(j))); ++j)
        first = select(first, first * (j / x), (${mask})(n >= (${V})(j)));
    ${mask} active = (${mask})(w < last) & (${mask})(w > (${V})(${number(eps)}));
    while (some_lane(active)) {
        w = select(w, w + 1, active);
        term = select(term, pow_${V}(x / w, s), active);
        sum = select(sum, sum + term, active);
        active &= (${mask})(w < last) & (${mask})(term * w > (${V})(${number(eps)}));
    }
    const ${V} inverse = 1 / w;
    ${V} factor = s * inverse;
    ${V} tail = w / n - ${number(0.5)};
    % for k, ratio in enumerate(EULER_MACLAURIN):
    tail += factor * ${number(ratio)};
    factor *= (s + ${2 * k + 1}) * inverse * (s + ${2 * k + 2}) * inverse;
    % endfor
    sum = first * select(sum + term * tail, sum, (${mask})(w < last));
    const ${V} half_n = ${number(0.5)} * n;
    ${V} result = select(sum, -sum, (${mask})(rint(half_n) == half_n));
    if (!every_lane(usual))
        for (int k = 0; k < ${lanes}; ++k)
            if (!((${M} *)&usual)[k])
                ((${T} *)&result)[k] = polygamma_${T}(((const ${T} *)&n0)[k], ((const ${T} *)&x0)[k]);
    return result;
}

% endfor
