## Algorithm   Inverse of the incomplete beta function of vectors: the equation of kernels/math/betainc_inverse.mako,
##             with Halley's method, until every lane has converged; it starts from the normal approximation DLMF
##             8.17(vi) refers to (Abramowitz & Stegun 26.5.22) or from the limit for small x.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
    T, M, counts, close, least, most = (
        (ctype(dtype), "long", (8,), 3e-6, 0.05, 1e8)
        if dtype == "float64"
        else (ctype(dtype), "int", (8, 16), 2e-3, 0.25, 1e4)
    )
    number = lambda value: literal(value, dtype)
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} beta_start_${V}(const ${V} a, const ${V} b, const ${V} p, const ${V} q)
{
    const ${mask} is_low = (${mask})(p < q);
    ${mask} bent = (${mask})(a <= (${V})(1)) | (${mask})(b <= (${V})(1));
    const ${V} r = 1 / select(2 * a - 1, (${V})(1), bent);
    const ${V} s = 1 / select(2 * b - 1, (${V})(1), bent);
    const ${V} h = 2 / (r + s);
    const ${V} tail = ${number(2**0.5)} * erfcinv_${V}(2 * fmin(p, q));
    const ${V} deviate = select(-tail, tail, is_low);
    const ${V} spread = (deviate * deviate - 3) * ${number(1 / 6)};
    const ${V} w =
        deviate * sqrt(fmax(h + spread, (${V})(0))) / h - (s - r) * (spread + ${number(5 / 6)} - ${number(2 / 3)} / h);
    ${V} x = a / (a + b * exp_${V}(2 * w));
    bent |= (${mask})(x < (${V})(${number(0.02)}));
    if (some_lane(bent))
        x = select(x, exp_${V}((log_${V}(p) + gammaln_${V}(a + 1) + gammaln_${V}(b) - gammaln_${V}(a + b)) / a), bent);
    return fmin(x, (${V})(${number(0.5)}));
}

static inline ${V} betaincinv_${V}(const ${V} a0, const ${V} b0, const ${V} p0)
{
    const ${V} middle = ${number(0.5)};
    const ${V} limit = (${V})(${number(most)});
    const ${V} q0 = 1 - p0;
    ${mask} usual =
        (${mask})(a0 >= (${V})(${number(least)})) & (${mask})(b0 >= (${V})(${number(least)})) & (${mask})(a0 < limit)
            & (${mask})(b0 < limit)
        & (${mask})(p0 > (${V})(0)) & (${mask})(q0 > (${V})(0)), left;
    const ${V} a1 = select((${V})(1), a0, usual);
    const ${V} b1 = select((${V})(1), b0, usual);
    const ${V} p1 = select(middle, p0, usual);
    const ${V} q1 = select(middle, q0, usual);
    ${V} density;
    const ${mask} turned = (${mask})(p1 > beta_ratio_${V}(a1, b1, middle, (${mask})(0), &left, &density));
    usual &= ~left;
    const ${V} a = select(a1, b1, turned);
    const ${V} b = select(b1, a1, turned);
    const ${V} p = select(p1, q1, turned);
    const ${V} q = select(q1, p1, turned);
    const ${mask} upper = (${mask})(q < p);
    const ${V} goal = fmin(p, q);
    const ${V} width = 1 + sqrt(2 * a);
    /* Nothing is too small for the dtype at the mean. */
    ${V} x = beta_start_${V}(a, b, p, q);
    ${V} last = fmin(a / (a + b), middle);
    ${mask} active = usual & (${mask})(x > (${V})(0));
    for (int k = 0; k < 80 && some_lane(active); ++k) {
        const ${V} ratio = beta_ratio_${V}(a, b, x, upper, &left, &density);
        const ${V} y = 1 - x;
        const ${V} slope = density / y;
        const ${V} relative = slope / ratio;
        usual &= ~(left & active);
        const ${mask} inside = (${mask})(slope > (${V})(0)) & (${mask})(ratio > (${V})(0));
        const ${V} down = log_${V}(ratio / goal) / relative;
        const ${V} newton = select(-down, down, upper);
        const ${V} growth = a - (b - 1) * x / y;
        /* How the slope of the logarithm changes. */
        const ${V} bend = newton * (growth + select(-relative, relative, upper)) * ${number(0.5)};
        ${V} step = newton / (1 + fmin(fmax(bend, (${V})(${number(-0.5)})), (${V})(1)));
        step = fmin(fmax(step, (${V})(-3)), (${V})(3));
        /* Below the range of the dtype go half of the way back. */
        const ${V} there = fmin(x * select(exp_${V}(step), 1 + step, (${mask})(step > (${V})(${number(0.1)}))), middle);
        const ${V} next = select(sqrt(x) * sqrt(last), there, inside);
        const ${mask} done =
            inside & ((${mask})(fabs(step) * (width + fabs(growth)) < (${V})(${number(close)})) | (${mask})(next == x));
        last = select(last, x, inside);
        x = select(x, next, active);
        active &= usual & ~done & (${mask})(x > (${V})(0));
    }
    ${V} result = select(x, 1 - x, turned);
    if (!every_lane(usual))
        for (int k = 0; k < ${lanes}; ++k)
            if (!((${M} *)&usual)[k])
                ((${T} *)&result)[k] =
                    betaincinv_${T}(((const ${T} *)&a0)[k], ((const ${T} *)&b0)[k], ((const ${T} *)&p0)[k]);
    return result;
}

% endfor
