## Algorithm   The incomplete beta function I_x(a, b), regularised: a continued fraction on the side of the mean where
##             it converges fast (DLMF 8.17.4). It and its factor follow Didonato & Morris 1992 (ACM TOMS 18): no
##             difference of large numbers.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
%>\
/* How far x is from the mean: -log of the part of x**a y**b / B(a, b) that changes fast. */
static inline ${T} beta_distance_${T}(const ${T} a, const ${T} b, const ${T} x, const ${T} y)
{
    const ${T} away = x < y ? a - (a + b) * x : (a + b) * y - b;
    const ${T} left = a * log_excess_${T}(-away / a, x * ((a + b) / a));
    return left + b * log_excess_${T}(away / b, y * ((a + b) / b));
}

/* x**a y**b / B(a, b) for a <= b, where y = 1 - x. */
static ${T} beta_density_${T}(const ${T} a, const ${T} b, const ${T} x, const ${T} y)
{
    const ${T} log_y = x < ${number(0.5)} ? log1p(-x) : log(y);
    if (a >= 10) {
        const ${T} factor = stirling_${T}(a + b) / (stirling_${T}(a) * stirling_${T}(b));
        return sqrt(a / (a + b) * b * ${number(0.15915494309189535)}) * factor * exp(-beta_distance_${T}(a, b, x, y));
    }
    if (b < 1) {
        const ${T} gammas = tgamma(1 + a + b) / (tgamma(1 + a) * tgamma(1 + b));
        return a * (b / (a + b)) * gammas * pow(x, a) * exp(b * log_y);
    }
    if (b < ${10 if dtype == "float64" else 5}) {
        return a / tgamma(1 + a) * (tgamma(a + b) / tgamma(b)) * pow(x, a) * exp(b * log_y);
    }
    /* gamma(a + b) / gamma(b) = b**a * growth */
    const ${T} growth = exp((a + b - ${number(0.5)}) * log1p(a / b) - a) * stirling_${T}(a + b) / stirling_${T}(b);
    return a / tgamma(1 + a) * pow(b * x, a) * exp(b * log_y) * growth;
}

/* I_x / density: even part of the continued fraction, Didonato & Morris 1992,
    with x and y = 1 - x and the distance from
   the mean, a - (a + b) x, so that nothing is lost where one of x and y is tiny. */
static ${T} beta_fraction_${T}(const ${T} a, const ${T} b, const ${T} x, const ${T} y, const ${T} away)
{
    ${T} term = a / (a + 1) * (away + 1);
    ${T} product = term;
    ${T} c = term;
    ${T} d = 0;
    for (int n = 1; n < 20000; ++n) {
        const ${T} even = a + (2 * n - 1);
        const ${T} share = n * ((b - n) / even) * x;
        const ${T} numerator = (a + (n - 1)) / even * (a + b + (n - 1)) * share * x;
        term = n + share + (a + n) / (even + 2) * (away + 1 + n * (1 + y));
        d = 1 / (term + numerator * d);
        c = term + numerator / c;
        product *= c * d;
        if (fabs(c * d - 1) < ${number(3e-16 if dtype == "float64" else 1e-7)})
            return 1 / product;
    }
    return NAN; /* Only if both are huge; `beta_ratio` handles it. */
}

/* The same by a power series, DLMF 8.17.7, which is good while x and b x are small. */
static ${T} beta_quotient_${T}(const ${T} a, const ${T} b, const ${T} x, const ${T} y, const ${T} away)
{
    if (x > ${number(0.7)} || b * x > ${number(0.7)})
        return beta_fraction_${T}(a, b, x, y, away);
    ${T} term = 1;
    ${T} sum = 0;
    for (int n = 1; n < 200; ++n) {
        term *= x * ((n - b) / n);
        sum += term / (a + n);
        if (fabs(term) < ${number(1e-17 if dtype == "float64" else 1e-9)})
            break;
    }
    return exp(-b * log1p(-x)) * (1 / a + sum);
}

/* I_x(a, b) for b <= 0.1 and small y = 1 - x, where 1 - I_x is near 1: DLMF 8.17.7 without its first term. */
static ${T} beta_complement_${T}(const ${T} a, const ${T} b, const ${T} y)
{
    const ${T} power = b * log(y) + log_gamma_step_${T}(a, b) - lgamma1p_${T}(b);
    ${T} term = 1;
    ${T} sum = 0;
    for (int k = 1; k < 40; ++k) {
        term *= y * ((k - a) / k);
        sum += term / (b + k);
    }
    return -expm1(power) - exp(power) * b * sum;
}

static ${T} beta_any_density_${T}(const ${T} a, const ${T} b, const ${T} x, const ${T} y)
{
    return a <= b ? beta_density_${T}(a, b, x, y) : beta_density_${T}(b, a, y, x);
}

/* I_x(a, b) or its complement, where y = 1 - x and all are finite and above zero. */
static ${T} beta_ratio_${T}(const ${T} a, const ${T} b, const ${T} x, const ${T} y, const int upper)
{
    const ${T} small = ${number(0.05 if dtype == "float64" else 0.1)};
    const ${T} near = ${number(0.4)};
    if (!upper && b < small && y < near && a * y < 1)
        return beta_complement_${T}(a, b, y);
    if (upper && a < small && x < near && b * x < 1)
        return beta_complement_${T}(b, a, x);
    const ${T} density = beta_any_density_${T}(a, b, x, y);
    /* With b below 1 the result can be small even far above the mean. */
    const ${T} away = x < y ? a - (a + b) * x : (a + b) * y - b;
    const int easy = x <= ${number(0.7)} && b * x <= ${number(0.7)};
    const int above = away < 0 && !easy && (b >= 1 || (y < small && a * y < 1));
    if (!(density > 0))
        return (away < 0) == upper ? 0 : 1;
    ${T} tail = density * (above ? beta_quotient_${T}(b, a, y, x, -away) : beta_quotient_${T}(a, b, x, y, away));
    /* Both are huge: all but the first term of the uniform expansion DLMF 8.18.9 is beyond the precision. */
    if (tail != tail)
        tail = ${number(0.5)} * erfc((away < 0 == above ? 1 : -1) * sqrt(beta_distance_${T}(a, b, x, y)));
    return above == upper ? tail : 1 - tail;
}

static ${T} betainc_${T}(const ${T} a, const ${T} b, const ${T} x)
{
    if (!(a >= 0 && b >= 0 && x >= 0 && x <= 1) || (a == 0 && b == 0) || (a == INFINITY && b == INFINITY))
        return NAN;
    if (a == 0 || b == INFINITY || x == 1)
        return x > 0;
    if (b == 0 || a == INFINITY || x == 0)
        return x == 1;
    return beta_ratio_${T}(a, b, x, 1 - x, 0);
}

