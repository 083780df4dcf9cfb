## Algorithm   Parts of gamma and beta distributions that are accurate where the whole is a difference of large numbers.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import chebyshev_series, horner, stirling
DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
odd = [1 / (2 * k + 3) for k in range(16 if dtype == "float64" else 8)]
%>\
/* m - log(1 + m) = -log(ratio) + ratio - 1, where m = ratio - 1: the inverse hyperbolic tangent, DLMF 4.6.4, near 0. */
static inline ${T} log_excess_${T}(const ${T} m, const ${T} ratio)
{
    if (fabs(m) > ${number(0.5)})
        return m - log(ratio);
    const ${T} s = m / (2 + m);
    const ${T} square = s * s;
    return s * (m - 2 * square * ${horner(odd, "square", dtype)});
}

/* log(gamma(1 + a)) for -0.5 <= a <= 1. */
static inline ${T} lgamma1p_${T}(const ${T} a)
{
    const ${T} t = (4 * a - 1) * ${number(1 / 3)};
    return a * ${chebyshev_series("lgamma1p", "t", dtype)};
}

/* gamma(a) / (sqrt(2 pi / a) (a / e)**a) for a >= 10, DLMF 5.11.3. */
static inline ${T} stirling_${T}(const ${T} a)
{
    const ${T} inverse = 1 / a;
    return ${horner(stirling(14 if dtype == "float64" else 6), "inverse", dtype)};
}

/* log(gamma(a + b) / gamma(a)) for |b| <= 0.1 by a recurrence and, from 10 on, the Taylor series about the middle, with
   the asymptotic series of digamma and its derivatives, DLMF 5.11.2. */
static inline ${T} log_gamma_step_${T}(${T} a, const ${T} b)
{
    ${T} below = 0;
    for (; a < 10; ++a)
        below += log1p(b / a);
    const ${T} middle = a + ${number(0.5)} * b;
    const ${T} r = 1 / middle;
    const ${T} square = r * r;
    const ${T} digamma = log(middle) - ${number(0.5)} * r - square * ${horner(DIGAMMA, "square", dtype)};
    const ${T} second = -square * (1 + r * (1 + ${number(0.5)} * r * (1 - ${number(1 / 3)} * square)));
    const ${T} fourth = -square * square * (6 + r * (12 + 10 * r));
    const ${T} step = b * b;
    return b * (digamma + step * (second * ${number(1 / 24)} + step * fourth * ${number(1 / 1920)})) - below;
}

