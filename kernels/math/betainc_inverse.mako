## Algorithm   Inverse of the incomplete beta function: Newton's method for the logarithm of I or of its complement,
##             whichever is smaller, against the logarithm of x or of 1 - x, whichever is smaller.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
%>\
/* For a solution up to 1/2, where q = 1 - p. */
static ${T} beta_lower_inverse_${T}(const ${T} a, const ${T} b, const ${T} p, const ${T} q)
{
    const int upper = q < p;
    const ${T} goal = upper ? q : p;
    const ${T} middle = ${number(0.5)};
    ${T} x = a / (a + b);
    /* I = x**a / (a B(a, b)) for small x, DLMF 8.17.7 */
    if (a < 1)
        x = exp(((upper ? log1p(-q) : log(p)) + lgamma1p_${T}(a) - log_gamma_step_${T}(b, a)) / a);
    x = fmin(x, middle);
    ${T} last = x;
    for (int k = 0; k < 80; ++k) {
        const ${T} ratio = beta_ratio_${T}(a, b, x, 1 - x, upper);
        const ${T} slope = beta_any_density_${T}(a, b, x, 1 - x) / (1 - x);
        if (!(x > 0))
            break;
        if (!(slope > 0 && ratio > 0)) { /* Below the range of the dtype: go half of the way back. */
            x = sqrt(x) * sqrt(last);
            continue;
        }
        ${T} step = log(ratio / goal) * (ratio / slope);
        step = fmin(fmax(upper ? step : -step, (${T})(-3)), (${T})(3));
        last = x;
        x = fmin(x * (step > 0 ? 1 + step : exp(step)), middle);
        if (fabs(step) < ${number(4e-16 if dtype == "float64" else 1e-7)} || x == last)
            break;
    }
    return x;
}

static ${T} betaincinv_${T}(const ${T} a, const ${T} b, const ${T} p)
{
    if (!(a > 0 && b > 0 && p >= 0 && p <= 1))
        return NAN;
    if (p == 0 || p == 1)
        return p;
    /* SciPy has the limits for these orders only. */
    if (a == INFINITY)
        return b == 1 ? 1 : NAN;
    if (b == INFINITY)
        return a == 1 ? 0 : NAN;
    const ${T} middle = ${number(0.5)};
    if (p <= beta_ratio_${T}(a, b, middle, middle, 0))
        return beta_lower_inverse_${T}(a, b, p, 1 - p);
    return 1 - beta_lower_inverse_${T}(b, a, 1 - p, p);
}

