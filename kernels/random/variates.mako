## Algorithm   How the distributions of NumPy's Generator use its numbers: each draw takes as many numbers as NumPy
##             takes for it, in the same order.
## Operands    r: the work-item's stream; parameters, and constants that the host computed from them. tables: for the
##             normal distribution the limits, widths and densities of 256 layers, then those of the exponential one.
##             `needed`: the functions that are rendered. <generator>_<name>_of: parameters without constants.
## NDRange     None: functions of one work-item.
## Workspace   One <generator>_stream in private memory, with a block of the generator's numbers.
## Invariants  is_odd is set where a function was used whose last digit differs between libraries.
## Reference   Ziggurat: G. Marsaglia, W. W. Tsang, J. Stat. Softw. 5 (2000). Gamma: the same, ACM Trans. Math. Softw.
##             26 (2000). Poisson: W. Hoermann, Insur. Math. Econ. 12 (1993), PTRS. Binomial: V. Kachitvichyanukul,
##             B. W. Schmeiser, Commun. ACM 31 (1988), BTPE. Inverse Gaussian: J. R. Michael, W. R. Schucany,
##             R. W. Haas, Am. Stat. 30 (1976). Von Mises: D. J. Best, N. I. Fisher, Appl. Stat. 28 (1979).
##             Hypergeometric: E. Stadlober, J. Comput. Appl. Math. 31 (1990), HRUA.
##             Integers: D. Lemire, ACM Trans. Model. Comput. Simul. 29 (2019).
<%page args="generator, needed"/>\
<%!
    LOG_GAMMA = (  # coefficients of the series after the first
        "1.796443723688307e-01", "-2.955065359477124e-02", "6.410256410256410e-03",
        "-1.917526917526918e-03", "8.417508417508418e-04", "-5.952380952380952e-04",
        "7.936507936507937e-04", "-2.777777777777778e-03", "8.333333333333333e-02",
    )
%>\
<% G = generator %>\
% if G == "philox":
<%include file="/random/philox.mako"/>\
% else:
typedef struct {
    ${G}_state state;          /* after the block */
    ulong raw[RANDOM_BLOCK];
    long base;                 /* position of the first number of the block */
    int at;                    /* of the next one in the block */
    int is_odd;                /* whether a function whose last digit differs between libraries was used */
    double u;                  /* the number that it was used with */
    uint pending;              /* the half of a number that was left before the first position */
    __global const ulong *tables;
} ${G}_stream;

static inline long ${G}_position(const ${G}_stream *r) { return r->base + r->at; }
static ulong ${G}_next(${G}_stream *r)
{
    if (r->at == RANDOM_BLOCK) {
        ${G}_fill(&r->state, r->raw);
        r->base += RANDOM_BLOCK;
        r->at = 0;
    }
    return r->raw[r->at++];
}
static inline double ${G}_unit(${G}_stream *r) { return (double)(${G}_next(r) >> 11) * (1.0 / 9007199254740992.0); }
% endif

% if "normal" in needed or "exponential" in needed:
#ifndef RANDOM_IS_BELOW
#define RANDOM_IS_BELOW
/* Whether y < f exp(t) for t of at least 0, by polynomials on both sides; -1 if y is between them. The function takes
   ten times as long. */
static inline int random_is_below(const double y, const double f, const double t)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double cube = t * t * t, low = f * (1.0 + t + 0.5 * t * t + cube * (1.0 / 6.0));
    if (y < low * (1.0 - 1e-12)) return 1;
    return t < 0.5 && y > (low + f * t * cube * 0.0625) * (1.0 + 1e-12) ? 0 : -1;
}
#endif
% endif
% if "normal" in needed:
static double ${G}_normal_rare(${G}_stream *r, double x, int i, ulong a, int *is_done)
{
    #pragma OPENCL FP_CONTRACT OFF
    *is_done = 1;
    if (i == 0) {
        double u, v, w;
        do {
            w = ${G}_unit(r);
            u = -0.27366123732975827203338247596 * log1p(-w);
            v = -log1p(-${G}_unit(r));
        } while (!(v + v > u * u));
        r->is_odd = 1;
        r->u = (a >> 8) & 1 ? -w : w;
        u += 3.6541528853610087963519472518;
        return (a >> 8) & 1 ? -u : u;
    }
    const double f = as_double(r->tables[512 + i]), d = as_double(r->tables[511 + i]) - f;
    const double y = d * ${G}_unit(r) + f, edge = as_double(r->tables[256 + i]) * 4503599627370496.0;
    *is_done = random_is_below(y, f, 0.5 * (edge - fabs(x)) * (edge + fabs(x)));
    if (*is_done < 0) *is_done = y < exp(-0.5 * x * x);
    return x;
}
% endif
% if "normal" in needed:
static inline double ${G}_normal(${G}_stream *r)
{
    #pragma OPENCL FP_CONTRACT OFF
    int is_done;
    double x;
    do {
        const ulong n = ${G}_next(r), a = (n >> 9) & 0x000fffffffffffffUL;
        const int i = n & 255;
        x = (double)(long)a * as_double(r->tables[256 + i]);
        x = as_double(as_ulong(x) ^ ((n << 55) & 0x8000000000000000UL));
        if (a < r->tables[i]) break;
        x = ${G}_normal_rare(r, x, i, a, &is_done);
    } while (!is_done);
    return x;
}
% endif
% if "exponential" in needed:
static inline double ${G}_exponential(${G}_stream *r)
{
    #pragma OPENCL FP_CONTRACT OFF
    for (;;) {
        const ulong n = ${G}_next(r) >> 3, a = n >> 8;
        const int i = n & 255;
        const double x = (double)(long)a * as_double(r->tables[1024 + i]);
        if (a < r->tables[768 + i]) return x;
        if (i == 0) {
            r->is_odd = 1;
            r->u = ${G}_unit(r);
            return 7.69711747013104972 - log1p(-r->u);
        }
        const double f = as_double(r->tables[1280 + i]), d = as_double(r->tables[1279 + i]) - f;
        const double y = d * ${G}_unit(r) + f;
        int is_done = random_is_below(y, f, as_double(r->tables[1024 + i]) * 9007199254740992.0 - x);
        if (is_done < 0) is_done = y < exp(-x);
        if (is_done) return x;
    }
}
% endif
% if "gamma" in needed:
static double ${G}_gamma(${G}_stream *r, const double shape, const double b, const double c)
{
    #pragma OPENCL FP_CONTRACT OFF
    if (shape == 1.0) return ${G}_exponential(r);
    if (shape == 0.0) return 0.0;
    if (shape < 1.0) {  /* powers by exp and log: pow takes three times as long on PoCL, and last digits may differ */
        r->is_odd = 1;
        for (;;) {
            const double u = ${G}_unit(r), v = ${G}_exponential(r);
            r->is_odd = 1;
            if (u <= 1.0 - shape) {
                const double x = exp(b * log(u));
                if (x <= v) return x;
            } else {
                const double y = -log((1.0 - u) / shape), x = exp(b * log(1.0 - shape + shape * y));
                if (x <= v + y) return x;
            }
        }
    }
    for (;;) {
        double x, v;
        do {
            r->is_odd = 0;
            x = ${G}_normal(r);
            v = 1.0 + c * x;
        } while (!(v > 0.0));
        v = v * v * v;
        const double u = ${G}_unit(r);
        if (u < 1.0 - 0.0331 * (x * x) * (x * x)) return b * v;
        if (log(u) < 0.5 * x * x + b * (1.0 - v + log(v))) return b * v;
    }
}
% endif
% if "beta" in needed:
static double ${G}_beta(${G}_stream *r, const double a, const double ab, const double ac, const double b,
                        const double bb, const double bc)
{
    #pragma OPENCL FP_CONTRACT OFF
    if (a <= 1.0 && b <= 1.0) {
        r->is_odd = 1;
        for (;;) {
            const double u = ${G}_unit(r), v = ${G}_unit(r), x = exp(log(u) / a), y = exp(log(v) / b), s = x + y;
            if (s <= 1.0 && u + v > 0.0) {
                if (s > 0.0) return x / s;
                const double lx = log(u) / a, ly = log(v) / b, m = max(lx, ly);
                return exp(lx - m - log(exp(lx - m) + exp(ly - m)));
            }
        }
    }
    const double x = ${G}_gamma(r, a, ab, ac);
    const int was_odd = r->is_odd;
    const double y = ${G}_gamma(r, b, bb, bc);
    r->is_odd |= was_odd;
    return x / (x + y);
}
% endif
% if "student" in needed:
static double ${G}_student(${G}_stream *r, const double root, const double shape, const double b, const double c)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double x = ${G}_normal(r);
    const int was_odd = r->is_odd;
    const double y = ${G}_gamma(r, shape, b, c);
    r->is_odd |= was_odd;
    return root * x / sqrt(y);
}
% endif
% if "f" in needed:
static double ${G}_f(${G}_stream *r, const double df, const double a, const double ab, const double ac,
                     const double other_df, const double b, const double bb, const double bc)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double x = 2.0 * ${G}_gamma(r, a, ab, ac) * other_df;
    const int was_odd = r->is_odd;
    const double y = 2.0 * ${G}_gamma(r, b, bb, bc) * df;
    r->is_odd |= was_odd;
    return x / y;
}
% endif
% if "wald" in needed:
static double ${G}_wald(${G}_stream *r, const double mean, const double scale)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double n = ${G}_normal(r);
    const double d = 1.0 + sqrt(1.0 + 4.0 * scale / (mean * n * n)), x = mean * (1.0 - 2.0 / d);
    return ${G}_unit(r) <= mean / (mean + x) ? x : mean * mean / x;
}
% endif
% if "geometric" in needed:
static long ${G}_geometric(${G}_stream *r, const double p, const double log_q)
{
    #pragma OPENCL FP_CONTRACT OFF
    if (p >= 0.333333333333333333333333) {
        const double q = 1.0 - p, u = ${G}_unit(r);
        double total = p, term = p;
        long x = 1;
        while (u > total) {
            term *= q;
            total += term;
            ++x;
        }
        return x;
    }
    const double z = ceil(-${G}_exponential(r) / log_q);
    return z >= 9.223372036854775807e18 ? LONG_MAX : (long)z;
}
% endif
% if "poisson" in needed:
/* log(k!) as NumPy computes it, from the series of Zhang and Jin. */
static double ${G}_log_factorial(const long k)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double x = (double)k + 1.0;
    if (x == 1.0 || x == 2.0) return 0.0;
    const int n = x < 7.0 ? (int)(7.0 - x) : 0;
    double x0 = x + n;
    const double x2 = 1.0 / x0 * (1.0 / x0);
    double s = -1.39243221690590e+00;
% for term in LOG_GAMMA:
    s = s * x2 + ${term};
% endfor
    double g = s / x0 + 0.5 * 1.8378770664093453e+00 + (x0 - 0.5) * log(x0) - x0;
    for (int i = 1; i <= n; ++i) {
        g -= log(x0 - 1.0);
        x0 -= 1.0;
    }
    return g;
}
% endif
% if "poisson" in needed:
static long ${G}_poisson(${G}_stream *r, const double lam, const double limit, const double log_lam, const double a,
                         const double b, const double log_inverse, const double vr)
{
    #pragma OPENCL FP_CONTRACT OFF
    if (lam == 0.0) return 0;
    if (lam < 10.0) {
        long x = 0;
        for (double product = ${G}_unit(r); product > limit; product *= ${G}_unit(r)) ++x;
        return x;
    }
    for (;;) {
        const double u = ${G}_unit(r) - 0.5, v = ${G}_unit(r), us = 0.5 - fabs(u);
        const long k = (long)floor((2.0 * a / us + b) * u + lam + 0.43);
        if (us >= 0.07 && v <= vr) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (log(v) + log_inverse - log(a / (us * us) + b) <= -lam + k * log_lam - ${G}_log_factorial(k)) return k;
    }
}
% endif
% if "negative_binomial" in needed or (G == "philox" and "poisson" in needed):
/* Poisson with a rate of its own for each draw. */
static long ${G}_poisson_of(${G}_stream *r, const double lam)
{
    #pragma OPENCL FP_CONTRACT OFF
    if (lam < 10.0) return ${G}_poisson(r, lam, exp(-lam), 0.0, 0.0, 0.0, 0.0, 0.0);
    const double b = 0.931 + 2.53 * sqrt(lam);
    const double a = -0.059 + 0.02483 * b;
    const double log_inverse = log(1.1239 + 1.1328 / (b - 3.4));
    const double vr = 0.9277 - 3.6224 / (b - 2.0);
    return ${G}_poisson(r, lam, 0.0, log(lam), a, b, log_inverse, vr);
}
% endif
% if "negative_binomial" in needed:
static long ${G}_negative_binomial(${G}_stream *r, const double scale, const double shape, const double b,
                                   const double c)
{
    #pragma OPENCL FP_CONTRACT OFF
    return ${G}_poisson_of(r, scale * ${G}_gamma(r, shape, b, c));
}
% endif
% if "binomial" in needed:
/* Inversion; `first` is the probability of zero, computed by the host. */
static long ${G}_binomial_inversion(${G}_stream *r, const long n, const double p, const double first, const long bound)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double q = 1.0 - p;
    long x = 0;
    double px = first, u = ${G}_unit(r);
    while (u > px) {
        ++x;
        if (x > bound) {
            x = 0;
            px = first;
            u = ${G}_unit(r);
        } else {
            u -= px;
            px = ((n - x + 1) * p * px) / (x * q);
        }
    }
    return x;
}
% endif
% if "bounded32" in needed:
/* A number from 0 to `range`, of 32 bits and of 64: the method of Lemire (2019). A compiler may compute the threshold
   before it is known to be needed, also where the count is 0. */
static uint ${G}_next32(${G}_stream *r, long *word)
{
    const long w = (*word)++;
    if (w < 0) return r->pending;
    if (w & 1L) return (uint)(r->raw[r->at - 1] >> 32);
    return (uint)${G}_next(r);
}
% endif
% if "bounded32" in needed:
static uint ${G}_bounded32(${G}_stream *r, long *word, const uint range)
{
    if (range == 0xFFFFFFFFU) return ${G}_next32(r, word);
    const uint count = range + 1U;
    uint n = ${G}_next32(r, word), low = n * count;
    if (low < count) {
        const uint threshold = (0xFFFFFFFFU - range) % max(count, 1U);
        while (low < threshold) {
            n = ${G}_next32(r, word);
            low = n * count;
        }
    }
    return mul_hi(n, count);
}
% endif
% if "bounded64" in needed:
static ulong ${G}_bounded64(${G}_stream *r, const ulong range)
{
    if (range == 0xFFFFFFFFFFFFFFFFUL) return ${G}_next(r);
    const ulong count = range + 1UL;
    ulong n = ${G}_next(r), low = n * count;
    if (low < count) {
        const ulong threshold = (0xFFFFFFFFFFFFFFFFUL - range) % max(count, 1UL);
        while (low < threshold) {
            n = ${G}_next(r);
            low = n * count;
        }
    }
    return mul_hi(n, count);
}
% endif
% if "vonmises" in needed:
static double ${G}_vonmises(${G}_stream *r, const double mu, const double kappa, const double s)
{
    #pragma OPENCL FP_CONTRACT OFF
    if (kappa < 1e-8) return M_PI * (2.0 * ${G}_unit(r) - 1.0);
    double w, y, v;
    do {
        const double z = cos(M_PI * ${G}_unit(r));
        w = (1.0 + s * z) / (s + z);
        y = kappa * (s - w);
        v = ${G}_unit(r);
    } while (!(y * (2.0 - y) - v >= 0.0 || log(y / v) + 1.0 - y >= 0.0));
    double x = acos(w);
    if (${G}_unit(r) < 0.5) x = -x;
    x += mu;
    const double folded = fmod(fabs(x) + M_PI, 2.0 * M_PI) - M_PI;
    return x < 0.0 ? -folded : folded;
}
% endif
% if "binomial" in needed:
/* Terms of Stirling's series of log(x!). */
static double ${G}_stirling(const double x)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double x2 = x * x;
    return (13860.0 - (462.0 - (132.0 - (99.0 - 140.0 / x2) / x2) / x2) / x2) / x / 166320.0;
}
static long ${G}_binomial_rejection(${G}_stream *r, const double n, const double p, const double m, const double p1,
                                    const double xm, const double xl, const double xr, const double c,
                                    const double left, const double right, const double p2, const double p3,
                                    const double p4)
{
    #pragma OPENCL FP_CONTRACT OFF
    const double q = 1.0 - p, variance = n * p * q;
    for (;;) {
        const double u = ${G}_unit(r) * p4;
        double v = ${G}_unit(r), y;
        if (u <= p1) return (long)floor(xm - p1 * v + u);
        if (u <= p2) {
            const double x = xl + (u - p1) / c;
            v = v * c + 1.0 - fabs(m - x + 0.5) / p1;
            if (v > 1.0) continue;
            y = floor(x);
        } else if (u <= p3) {
            y = floor(xl + log(v) / left);
            if (y < 0.0 || v == 0.0) continue;
            v = v * (u - p2) * left;
        } else {
            y = floor(xr - log(v) / right);
            if (y > n || v == 0.0) continue;
            v = v * (u - p3) * right;
        }
        const double k = fabs(y - m);
        if (!(k > 20.0 && k < variance / 2.0 - 1.0)) {
            const double s = p / q, a = s * (n + 1.0);
            double f = 1.0;
            for (double i = m + 1.0; i <= y; i += 1.0) f *= a / i - s;
            for (double i = y + 1.0; i <= m; i += 1.0) f /= a / i - s;
            if (v > f) continue;
            return (long)y;
        }
        const double rho = k / variance * ((k * (k / 3.0 + 0.625) + 0.16666666666666666) / variance + 0.5);
        const double t = -k * k / (2.0 * variance), logarithm = log(v);
        if (logarithm < t - rho) return (long)y;
        if (logarithm > t + rho) continue;
        const double x1 = y + 1.0, f1 = m + 1.0, z = n + 1.0 - m, w = n - y + 1.0;
        const double bound = xm * log(f1 / x1) + (n - m + 0.5) * log(z / w) + (y - m) * log(w * p / (x1 * q))
                             + ${G}_stirling(f1) + ${G}_stirling(z) - ${G}_stirling(x1) - ${G}_stirling(w);
        if (!(logarithm > bound)) return (long)y;
    }
}
static long ${G}_binomial(${G}_stream *r, const double n, const double p, const double first, const double bound,
                          const double flip, const double rejects, const double m, const double p1,
                          const double xm, const double xl, const double xr, const double c, const double left,
                          const double right, const double p2, const double p3, const double p4)
{
    #pragma OPENCL FP_CONTRACT OFF
    const long x = rejects != 0.0 ? ${G}_binomial_rejection(r, n, p, m, p1, xm, xl, xr, c, left, right, p2, p3, p4)
                                  : ${G}_binomial_inversion(r, (long)n, p, first, (long)bound);
    return flip != 0.0 ? (long)n - x : x;
}
% endif
% if "hrua" in needed:
/* Hypergeometric numbers by a ratio of uniform numbers. tables: log(k!) as NumPy has it. */
static long ${G}_hrua(${G}_stream *r, const double a, const double h, const double b, const double g, const long few,
                      const long many, const long taken, const long good, const double swaps, const double is_rest)
{
    #pragma OPENCL FP_CONTRACT OFF
    __global const double *log_factorial = (__global const double *)r->tables;
    long k;
    for (;;) {
        const double u = ${G}_unit(r), v = ${G}_unit(r), x = a + h * (v - 0.5) / u;
        if (!(x >= 0.0 && x < b)) continue;
        k = (long)floor(x);
        const double t = g - (log_factorial[k] + log_factorial[few - k] + log_factorial[taken - k]
                              + log_factorial[many - taken + k]);
        if (u * (4.0 - u) - 3.0 <= t) break;
        if (u * (u - t) >= 1.0) continue;
        if (2.0 * log(u) <= t) break;
    }
    if (swaps != 0.0) k = taken - k;
    return is_rest != 0.0 ? good - k : k;
}
% endif
% if G == "philox":
## The draws with their parameters as they are: constants are computed for each.
<% of = lambda name: name in needed %>\
    % if of("hypergeometric"):
/* Items of the first kind in a sample: one after the other is taken, of the sample or of what is left by it. */
static long ${G}_hypergeometric(${G}_stream *r, const double good, const double bad, const double sample)
{
    const int is_rest = sample > 0.5 * (good + bad);
    const long count = (long)(is_rest ? good + bad - sample : sample);
    double hits = 0.0, left = good + bad;
    for (long i = 0; i < count; ++i, left -= 1.0)
        hits += ${G}_unit(r) * left < good - hits ? 1.0 : 0.0;
    return (long)(is_rest ? good - hits : hits);
}
    % endif
    % if of("gamma"):
static double ${G}_gamma_of(${G}_stream *r, const double shape)
{
    const double b = shape - 1.0 / 3.0;
    return shape < 1.0 ? ${G}_gamma(r, shape, 1.0 / shape, 0.0) : ${G}_gamma(r, shape, b, 1.0 / sqrt(9.0 * b));
}
    % endif
    % if of("beta"):
static double ${G}_beta_of(${G}_stream *r, const double a, const double b)
{
    if (a <= 1.0 && b <= 1.0) return ${G}_beta(r, a, 0.0, 0.0, b, 0.0, 0.0);
    const double x = ${G}_gamma_of(r, a), y = ${G}_gamma_of(r, b);
    return x / (x + y);
}
    % endif
    % if of("f"):
static double ${G}_f_of(${G}_stream *r, const double df, const double other_df)
{
    const double x = ${G}_gamma_of(r, 0.5 * df) * other_df, y = ${G}_gamma_of(r, 0.5 * other_df) * df;
    return x / y;
}
    % endif
    % if of("student"):
static double ${G}_student_of(${G}_stream *r, const double df)
{
    const double x = ${G}_normal(r);
    return sqrt(df / 2.0) * x / sqrt(${G}_gamma_of(r, df / 2.0));
}
    % endif
    % if of("vonmises"):
static double ${G}_vonmises_of(${G}_stream *r, const double mu, const double kappa)
{
    const double root = 1.0 + sqrt(1.0 + 4.0 * kappa * kappa), rho = (root - sqrt(2.0 * root)) / (2.0 * kappa);
    return ${G}_vonmises(r, mu, kappa, kappa < 1e-5 ? 1.0 / kappa + kappa : (1.0 + rho * rho) / (2.0 * rho));
}
    % endif
    % if of("binomial"):
static long ${G}_binomial_of(${G}_stream *r, const double n, const double chance)
{
    const double flip = chance > 0.5, p = flip != 0.0 ? 1.0 - chance : chance, q = 1.0 - p;
    if (p * n <= 30.0) {
        const double bound = floor(min(n, n * p + 10.0 * sqrt(n * p * q + 1.0)));
        return ${G}_binomial(r, n, p, exp(n * log(q)), bound, flip, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
                             0.0, 0.0);
    }
    const double fm = n * p + p, m = floor(fm);
    const double p1 = floor(2.195 * sqrt(n * p * q) - 4.6 * q) + 0.5;
    const double xm = m + 0.5, xl = xm - p1, xr = xm + p1;
    const double c = 0.134 + 20.5 / (15.3 + m);
    const double al = (fm - xl) / (fm - xl * p), ar = (xr - fm) / (xr * q);
    const double left = al * (1.0 + al / 2.0), right = ar * (1.0 + ar / 2.0);
    const double p2 = p1 * (1.0 + 2.0 * c), p3 = p2 + c / left;
    return ${G}_binomial(r, n, p, 0.0, 0.0, flip, 1.0, m, p1, xm, xl, xr, c, left, right, p2, p3, p3 + c / right);
}
    % endif
    % if of("negative_binomial"):
static long ${G}_negative_binomial_of(${G}_stream *r, const double n, const double p)
{
    return ${G}_poisson_of(r, (1.0 - p) / p * ${G}_gamma_of(r, n));
}
    % endif
% endif
