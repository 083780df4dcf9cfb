## Algorithm   The Gauss hypergeometric function F(a, b; c; z) by its series about 0 and about 1. Each also returns the
##             ratio of its largest term to the result: the caller takes the series with the least cancellation.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
PI = 3.141592653589793
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
eps, least, largest = (1e-17, 1e-18, 100) if dtype == "float64" else (1e-9, 1e-12, 15)
%>\
static inline int hyp_pole_${T}(const ${T} x)
{
    return x <= 0 && x == rint(x) && x > -INFINITY;
}

/* DLMF 15.2.1 */
static ${T} hyp_series_${T}(const ${T} a, const ${T} b, const ${T} c, const ${T} z, ${T} *loss)
{
    const ${T} turn = -fmin(fmin(a, b), fmin(c, 0));
    ${T} term = 1;
    ${T} sum = 1;
    ${T} most = 1;
    for (int k = 0; k < 30000; ++k) {
        /* Two quotients, for the product may overflow. */
        term *= (a + k) / (c + k) * ((b + k) / (k + 1)) * z;
        sum += term;
        most = fmax(most, fabs(term));
        if (term == 0 || (k > turn && fabs(term) < ${number(eps)} * fabs(sum))) {
            /* Rounding errors add up, too. */
            *loss = sum == 0 ? INFINITY : most / fabs(sum) * (1 + ${number(0.02)} * k);
            return sum;
        }
        if (!(most < INFINITY))
            break;
    }
    *loss = INFINITY;
    return sum;
}

/* The sign of gamma(x). */
static inline ${T} hyp_sign_${T}(const ${T} x)
{
    return x < 0 && rint(${number(0.5)} * floor(x)) != ${number(0.5)} * floor(x) ? -1 : 1;
}

/* gamma(a) gamma(b) / (gamma(c) gamma(d)) */
static ${T} hyp_gammas_${T}(const ${T} a, const ${T} b, const ${T} c, const ${T} d)
{
    if (hyp_pole_${T}(c) || hyp_pole_${T}(d))
        return 0;
    const ${T} most = fmax(fmax(fabs(a), fabs(b)), fmax(fabs(c), fabs(d)));
    const ${T} least = fmin(fmin(fabs(a), fabs(b)), fmin(fabs(c), fabs(d)));
    if (most < ${largest} && least > ${number(1e-30)}) {
        /* Numerators and denominators by size, so that nothing overflows on the way. */
        const ${T} above = tgamma(fmax(a, b)) / tgamma(fmax(c, d));
        const ${T} below = tgamma(fmin(a, b)) / tgamma(fmin(c, d));
        return above * below;
    }
    const ${T} sign = hyp_sign_${T}(a) * hyp_sign_${T}(b) * hyp_sign_${T}(c) * hyp_sign_${T}(d);
    return sign * exp((lgamma(fmax(a, b)) - lgamma(fmax(c, d))) + (lgamma(fmin(a, b)) - lgamma(fmin(c, d))));
}

/* Whether gamma(x + t) and gamma(x) have a pole between them or nearly so. */
static inline int hyp_crosses_${T}(const ${T} x, const ${T} t)
{
    return x < -${number(200)} || (fmin(x, x + t) <= ${number(0.05)} && fabs(x - rint(x)) <= ${number(1.1)} * fabs(t));
}

/* F(a, b; c; 1 - y), where s = c - a - b = m + t >= 0 and t is not small: DLMF 15.8.4. */
static ${T} hyp_about_one_apart_${T}( const ${T} a, const ${T} b, const ${T} c, const ${T} ca, const ${T} cb,
    const ${T} s, const ${T} y, ${T} *loss)
{
    ${T} first_loss, second_loss;
    const ${T} first = hyp_gammas_${T}(c, s, ca, cb) * hyp_series_${T}(a, b, 1 - s, y, &first_loss);
    const ${T} second = hyp_gammas_${T}(c, -s, a, b) * pow(y, s) * hyp_series_${T}(ca, cb, 1 + s, y, &second_loss);
    const ${T} sum = first + second;
    *loss = (first == 0 ? 0 : fabs(first) * first_loss) + (second == 0 ? 0 : fabs(second) * second_loss);
    *loss = sum == 0 ? INFINITY : *loss / fabs(sum);
    return sum;
}

/* The same for small t, where the two series have nearly the same large terms: they are paired, and the difference
   of a pair, (1 - ratio) / t, comes from the logarithm of the ratio. t = 0 is the limit DLMF 15.8.10. */
static ${T} hyp_about_one_close_${T}( const ${T} a, const ${T} b, const ${T} c, const ${T} ca, const ${T} cb,
    const ${T} s, const ${T} y, ${T} *loss)
{
    const ${T} m = rint(s);
    const ${T} t = fabs(s - m) < ${number(least)} ? ${number(least)} : s - m;
    const ${T} shape = ${number(PI)} * t / sinpi(t);
    ${T} sum = 0;
    ${T} most = 0;
    ${T} pair;
    if (m == 0)
        pair = hyp_gammas_${T}(c, 1, ca, cb) / tgamma(1 - t);
    else {
        ${T} term = hyp_gammas_${T}(c, s, ca, cb);
        for (int k = 0; k < m - 1; ++k) {
            sum += term;
            most = fmax(most, fabs(term));
            term *= (a + k) / (k + 1) * ((b + k) / (1 + k - s)) * y;
        }
        sum += term;
        most = fmax(most, fabs(term));
        pair = -term * (a + (m - 1)) * ((b + (m - 1)) / m) * y / shape;
    }
    ${T} an = a + m;
    ${T} bn = b + m;
    ${T} ratio = log_gamma_step_${T}(an, t) + log_gamma_step_${T}(bn, t);
    ratio = log(y) + (ratio + log_gamma_step_${T}(1, -t) - log_gamma_step_${T}(m + 1, t)) / t;
    for (int n = 0; n < 30000; ++n) {
        const ${T} term = -pair * shape * (expm1(t * ratio) / t);
        sum += term;
        /* The ratio has an error of several units in the last place of 1. */
        most = fmax(most, fmax(fabs(term), 4 * fabs(pair * shape)));
        if (pair == 0 || (fabs(pair * ratio) < ${number(eps)} * fabs(sum) && n > -an && n > -bn))
            break;
        pair *= an / (n + 1 - t) * (bn / (m + n + 1)) * y;
        ratio += (log1p(t / an) + log1p(t / bn) + log1p(-t / (n + 1)) - log1p(t / (m + n + 1))) / t;
        an += 1;
        bn += 1;
    }
    *loss = sum == 0 ? INFINITY : most / fabs(sum);
    return sum;
}

static ${T} hyp_about_one_${T}( const ${T} a, const ${T} b, const ${T} c, const ${T} ca, const ${T} cb, const ${T} s,
    const ${T} y, ${T} *loss)
{
    const ${T} m = rint(s);
    const ${T} t = s - m;
    if (fabs(t) < ${number(0.1 if dtype == "float64" else 0.3)} && m < 1000 && !hyp_crosses_${T}(a + m, t)
        && !hyp_crosses_${T}(b + m, t)) {
        return hyp_about_one_close_${T}(a, b, c, ca, cb, s, y, loss);
    }
    return hyp_about_one_apart_${T}(a, b, c, ca, cb, s, y, loss);
}

