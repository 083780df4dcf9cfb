## Algorithm   The Gauss hypergeometric function of vectors where the first way of kernels/math/hyp2f1.mako is good: the
##             series about 0 of z, or of z / (z - 1), up to 3/4, where no series ends (no parameter, c - a or c - b is
##             zero or a negative integer). Other arguments are computed lane by lane.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
    T, M, counts, enough, eps = (
        (ctype(dtype), "long", (8,), 100, 1e-17) if dtype == "float64" else (ctype(dtype), "int", (8, 16), 5, 1e-9)
    )
    number = lambda value: literal(value, dtype)
    most = 300
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${mask} hyp_poles_${V}(const ${V} x)
{
    return (${mask})(x <= (${V})(0)) & (${mask})(x == rint(x));
}

static inline ${V} hyp2f1_${V}(const ${V} p0, const ${V} q0, const ${V} c0, const ${V} z0)
{
    const ${V} limit = (${V})(1000);
    const ${V} ca0 = c0 - p0;
    const ${V} cb0 = c0 - q0;
    ${mask} usual =
        (${mask})(fabs(p0) < limit) & (${mask})(fabs(q0) < limit) & (${mask})(fabs(c0) < limit)
            & (${mask})(z0 <= (${V})(${number(0.75)})) & (${mask})(z0 >= (${V})(-3));
    usual &= ~(hyp_poles_${V}(p0) | hyp_poles_${V}(q0) | hyp_poles_${V}(c0) | hyp_poles_${V}(ca0)
        | hyp_poles_${V}(cb0));
    const ${V} a = select((${V})(1), fmin(p0, q0), usual);
    const ${V} b = select((${V})(1), fmax(p0, q0), usual);
    const ${V} c = select((${V})(1), c0, usual);
    const ${V} z = select((${V})(0), z0, usual);
    /* F(a, b; c; z) = y**power F(first, second; c; w), DLMF 15.8.1,
        of numbers above zero if it can be: then no terms alternate. */
    const ${V} y = 1 - z;
    const ${V} ca = c - a;
    const ${V} cb = c - b;
    const ${V} s = ca - b;
    const ${mask} left = (${mask})(z < (${V})(0));
    const ${mask} below = (${mask})(cb < (${V})(0));
    const ${mask} turned = ~(left | below) & (${mask})(s < (${V})(0));
    const ${V} first = select(a, select(cb, ca, left), (left & below) | turned);
    const ${V} second = select(b, select(ca, cb, left), (left & ~below) | turned);
    const ${V} w = select(z, z / (z - 1), left);
    const ${V} turn = -fmin(fmin(first, second), fmin(c, (${V})(0)));
    ${V} term = 1;
    ${V} sum = 1;
    ${V} largest = 1;
    ${V} steps = 0;
    ${mask} active = usual;
    for (int k = 0; k < ${most} && some_lane(active); ++k) {
        term *= (first + k) * (second + k) / ((c + k) * (k + 1)) * w;
        sum = select(sum, sum + term, active);
        largest = select(largest, fmax(largest, fabs(term)), active);
        steps = select(steps, (${V})(k), active);
        active &= ~((${mask})(term == (${V})(0))
            | ((${mask})((${V})(k) > turn) & (${mask})(fabs(term) < ${number(eps)} * fabs(sum))));
    }
    const ${V} loss = largest / fabs(sum) * (1 + ${number(0.02)} * steps);
    usual &= ~active & (${mask})(loss < (${V})(${enough}));
    ${V} result = sum;
    if (some_lane(left | turned)) {
        const ${V} power = pow_${V}(y, select(s, -select(a, b, below), left));
        result = select(sum, sum * power, left | turned);
        usual &= ~(left | turned) | ((${mask})(power < (${V})(INFINITY)) & (${mask})(power > (${V})(${number(1e-30)})));
    }
    if (!every_lane(usual))
        for (int k = 0; k < ${lanes}; ++k)
            if (!((${M} *)&usual)[k])
                ((${T} *)&result)[k] =
                    hyp2f1_${T}(((const ${T} *)&p0)[k], ((const ${T} *)&q0)[k], ((const ${T} *)&c0)[k],
                        ((const ${T} *)&z0)[k]);
    return result;
}

% endfor
