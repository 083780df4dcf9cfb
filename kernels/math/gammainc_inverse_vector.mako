## Algorithm   Inverses of the incomplete gamma functions of vectors: the equation and the start of
##             kernels/math/gammainc_inverse.mako, with Halley's method, until every lane has converged. Rare arguments
##             are computed lane by lane.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
    T, M, counts, close, least = (
        (ctype(dtype), "long", (8,), 3e-6, 1e-3) if dtype == "float64" else (ctype(dtype), "int", (8, 16), 2e-3, 1e-2)
    )
    number = lambda value: literal(value, dtype)
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
/* P = p, where q = 1 - p. */
static inline ${V} gamma_start_${V}(const ${V} a, const ${V} p, const ${V} q)
{
    const ${V} power = exp_${V}((gammaln_${V}(a + 1) + log_${V}(p)) / a);
    const ${V} root = sqrt(a);
    const ${V} tail = erfcinv_${V}(2 * fmin(p, q));
    const ${V} normal = select(tail, -tail, (${mask})(p < q));
    const ${V} cube_root = 1 - 1 / (9 * a) + normal * ${number(2**0.5 / 3)} / root;
    const ${mask} is_power =
        (${mask})(a < (${V})(1)) | (${mask})(power < ${number(0.2)}
            * a) | (${mask})(cube_root <= (${V})(${number(0.2)}));
    return select(a * cube_root * cube_root * cube_root, power, is_power);
}

static inline ${V} gamma_inverse_${V}(const ${V} a0, const ${V} p0, const ${V} q0)
{
    const ${mask} usual =
        (${mask})(a0 >= (${V})(${number(least)})) & (${mask})(a0 < (${V})(${number(1e10)}))
            & (${mask})(p0 > (${V})(0)) & (${mask})(q0 > (${V})(0));
    const ${V} a = select((${V})(1), a0, usual);
    const ${V} p = select((${V})(${number(0.5)}), p0, usual);
    const ${V} q = select((${V})(${number(0.5)}), q0, usual);
    const ${mask} upper = (${mask})(q < p);
    const ${V} goal = fmin(p, q);
    const ${V} width = 1 + sqrt(a);
    /* Nothing is too small for the dtype at the mean. */
    ${V} x = gamma_start_${V}(a, p, q);
    ${V} last = select(x, a, (${mask})(a > (${V})(1)));
    ${V} density;
    ${mask} active = (${mask})(x > (${V})(0));
    for (int k = 0; k < 60 && some_lane(active); ++k) {
        const ${V} ratio = gamma_ratio_${V}(a, x, upper, 1, &density);
        const ${V} slope = a * density;
        const ${V} relative = slope / ratio;
        const ${mask} inside = (${mask})(slope > (${V})(0)) & (${mask})(ratio > (${V})(0));
        const ${V} down = log_${V}(ratio / goal) / relative;
        const ${V} newton = select(-down, down, upper);
        /* How the slope of the logarithm changes. */
        const ${V} bend = newton * ((a - x) + select(-relative, relative, upper)) * ${number(0.5)};
        ${V} step = newton / (1 + fmin(fmax(bend, (${V})(${number(-0.5)})), (${V})(1)));
        step = fmin(fmax(step, (${V})(-3)), (${V})(3));
        /* The tail of Q falls with x,
            not with log(x): do not run past the end of the range. Below it go half of the way back. */
        const ${V} next =
            select(sqrt(x) * sqrt(last),
                x * select(exp_${V}(step), 1 + step, (${mask})(step > (${V})(${number(0.1)}))), inside);
        last = select(last, x, inside);
        const ${mask} done = inside & (${mask})(fabs(step) * (width + fabs(a - x)) < (${V})(${number(close)}));
        x = select(x, next, active);
        active &= ~done & (${mask})(x > (${V})(0));
    }
    if (!every_lane(usual))
        for (int k = 0; k < ${lanes}; ++k)
            if (!((${M} *)&usual)[k])
                ((${T} *)&x)[k] =
                    gamma_inverse_${T}(((const ${T} *)&a0)[k], ((const ${T} *)&p0)[k], ((const ${T} *)&q0)[k]);
    return x;
}

static inline ${V} gammaincinv_${V}(const ${V} a, const ${V} p)
{
    return gamma_inverse_${V}(a, p, 1 - p);
}

static inline ${V} gammainccinv_${V}(const ${V} a, const ${V} q)
{
    return gamma_inverse_${V}(a, 1 - q, q);
}

% endfor
