## Algorithm   Derivatives of the digamma function: n! times Hurwitz's zeta function (DLMF 5.15.1, 25.11.1), summed up
##             to x = 12 + n and from there by Euler's and Maclaurin's formula (25.11.5). All is relative to the first
##             term, which may be huge or tiny.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import EULER_MACLAURIN
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
%>\
/* The absolute value for x > 0. */
static ${T} polygamma_right_${T}(const ${T} n, const ${T} x)
{
    const ${T} s = n + 1;
    ${T} first = 1 / x;
    ${T} sum = 1;
    ${T} w = x;
    ${T} term = 1;
    for (int j = 1; j <= n; ++j)
        first *= j / x;
    while (w < 12 + n && term * w > ${number(1e-18 if dtype == "float64" else 1e-9)}) {
        w += 1;
        term = pow(x / w, s);
        sum += term;
    }
    if (w < 12 + n)
        return first * sum;
    const ${T} inverse = 1 / w;
    /* The sum has the whole term at w: minus one half. */
    ${T} factor = s * inverse;
    ${T} tail = w / n - ${number(0.5)};
    % for k, ratio in enumerate(EULER_MACLAURIN):
    tail += factor * ${number(ratio)};
    factor *= (s + ${2 * k + 1}) * inverse * (s + ${2 * k + 2}) * inverse;
    % endfor
    return first * (sum + term * tail);
}

static ${T} polygamma_${T}(const ${T} n, const ${T} x)
{
    if (n == 0)
        return digamma_${T}(x);
    if (!(n > 0) || x != x)
        return NAN;
    const ${T} sign = rint(${number(0.5)} * n) * 2 == n ? -1 : 1;
    if (x <= 0 && x == floor(x))
        return sign * INFINITY;
    if (n > 170)
        return x == INFINITY ? NAN : sign * INFINITY; /* as SciPy, whose n! is infinite */
    if (x == INFINITY)
        return 0;
    if (x > 0)
        return sign * polygamma_right_${T}(n, x);
    /* The terms below zero are those from ceil(x) - x to -x. */
    const ${T} below = polygamma_right_${T}(n, ceil(x) - x) - polygamma_right_${T}(n, 1 - x);
    return sign * polygamma_right_${T}(n, x - floor(x)) + below;
}

