## Algorithm   Inverses of the incomplete gamma functions P and Q: Newton's method for the logarithm of the smaller of
##             the two against log(x), where both are concave. It starts from the limit for small x (DLMF 8.11.4) or, if
##             that is better, from the normal approximation of the cube root (Wilson & Hilferty 1931, PNAS 17).
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
%>\
/* P = p, where q = 1 - p. */
static ${T} gamma_start_${T}(const ${T} a, const ${T} p, const ${T} q)
{
    const ${T} small = (a <= 1 ? lgamma1p_${T}(a) : lgamma(a + 1)) + (p < q ? log(p) : log1p(-q));
    const ${T} power = exp(small / a);
    if (a < 1 || power < ${number(0.2)} * a)
        return power;
    const ${T} normal = p < q ? -erfcinv_${T}(2 * p) : erfcinv_${T}(2 * q);
    const ${T} cube_root = 1 - 1 / (9 * a) + normal * ${number(2**0.5)} / (3 * sqrt(a));
    return cube_root > ${number(0.2)} ? a * cube_root * cube_root * cube_root : power;
}

static ${T} gamma_inverse_${T}(const ${T} a, const ${T} p, const ${T} q)
{
    if (!(a >= 0 && p >= 0 && q >= 0))
        return NAN;
    if (p == 0)
        return 0;
    if (q == 0)
        return INFINITY;
    if (a == 0 || a == INFINITY)
        return NAN;
    const int upper = q < p;
    const ${T} goal = upper ? q : p;
    ${T} x = gamma_start_${T}(a, p, q);
    ${T} last = x;
    for (int k = 0; k < 60; ++k) {
        const ${T} ratio = gamma_ratio_${T}(a, x, upper);
        const ${T} slope = a * gamma_density_${T}(a, x);
        if (!(x > 0))
            break;
        if (!(slope > 0 && ratio > 0)) { /* Below the range of the dtype: go half of the way back. */
            x = sqrt(x) * sqrt(last);
            continue;
        }
        ${T} step = log(ratio / goal) * (ratio / slope);
        step = fmin(fmax(upper ? step : -step, (${T})(-3)), (${T})(3));
        last = x;
        /* The tail of Q falls with x, not with log(x): do not run past the end of the range. */
        x *= step > 0 ? 1 + step : exp(step);
        if (fabs(step) < ${number(4e-16 if dtype == "float64" else 2e-7)})
            break;
    }
    return x;
}

static ${T} gammaincinv_${T}(const ${T} a, const ${T} p)
{
    return gamma_inverse_${T}(a, p, 1 - p);
}

static ${T} gammainccinv_${T}(const ${T} a, const ${T} q)
{
    return gamma_inverse_${T}(a, 1 - q, q);
}

