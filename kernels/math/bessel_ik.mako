## Algorithm   Modified Bessel functions of real order, exponentially scaled: exp(-|x|) I_v(x) and exp(x) K_v(x).
##             Outside a circle of the plane (v, x) Debye's uniform expansion (DLMF 10.41.3-4), written with r =
##             sqrt(v**2 + x**2) so that it holds down to v = 0; inside it power series (10.25.2), Temme's series and
##             Steed's continued fraction (Temme 1975, J. Comput. Phys. 19; Thompson & Barnett 1987, Comput. Phys.
##             Commun. 47).
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import chebyshev_series, debye, horner
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
radius, rows, turn = (25, 16, 2) if dtype == "float64" else (12, 7, 1)
eps = number(1e-17 if dtype == "float64" else 1e-9)
PI = 3.141592653589793
%>\
/* sqrt(r) times the scaled function, without its constant factor; the sign is 1 for I and -1 for K. */
static ${T} bessel_uniform_${T}(const ${T} v, const ${T} x, const ${T} sign)
{
    const ${T} r = sqrt(v * v + x * x);
    const ${T} p = v / r;
    const ${T} square = p * p;
    const ${T} step = sign / r;
    ${T} sum = 0;
    % for row in reversed(debye(rows)):
    sum = sum * step + ${horner(row, "square", dtype)};
    % endfor
    const ${T} exponent = v == 0 ? 0 : v * (v / (r + x) - asinh(v / x));
    /* In two steps: where the exponential overflows the result need not. */
    const ${T} half_way = exp(${number(0.5)} * sign * exponent);
    return half_way * (sum / sqrt(r)) * half_way;
}

/* K of the orders m and m + 1, |m| <= 1/2, for x <= ${turn}. */
static void bessel_temme_${T}(const ${T} m, const ${T} x, ${T} *first, ${T} *second)
{
    const ${T} t = 8 * m * m - 1;
    const ${T} odd = ${chebyshev_series("temme_1", "t", dtype)};
    const ${T} even = ${chebyshev_series("temme_2", "t", dtype)};
    const ${T} d = ${number(0.6931471805599453)} - log(x);
    const ${T} e = m * d;
    const ${T} quarter = ${number(0.25)} * x * x;
    const ${T} reflection = m == 0 ? 1 : ${number(PI)} * m / sin(${number(PI)} * m);
    const ${T} ratio = e == 0 ? 1 : sinh(e) / e;
    ${T} f = reflection * (odd * cosh(e) + even * ratio * d);
    ${T} c = 1;
    ${T} p = ${number(0.5)} * exp(e) / (even - m * odd);
    ${T} q = ${number(0.5)} * exp(-e) / (even + m * odd);
    ${T} sum = f;
    ${T} next = p;
    for (int k = 1; k < 40; ++k) {
        f = (k * f + p + q) / (k * k - m * m);
        c *= quarter / k;
        p /= k - m;
        q /= k + m;
        const ${T} term = c * f;
        sum += term;
        next += c * (p - k * f);
        if (fabs(term) < sum * ${eps})
            break;
    }
    const ${T} scale = exp(x);
    *first = sum * scale;
    *second = next * scale / (${number(0.5)} * x);
}

/* The same for x > ${turn}. */
static void bessel_steed_${T}(const ${T} m, const ${T} x, ${T} *first, ${T} *second)
{
    const ${T} start = ${number(0.25)} - m * m;
    ${T} a = -start;
    ${T} b = 2 * (1 + x);
    ${T} d = 1 / b;
    ${T} step = d;
    ${T} h = d;
    ${T} last = 0;
    ${T} current = 1;
    ${T} c = start;
    ${T} q = start;
    ${T} sum = 1 + q * step;
    for (int k = 2; k < 200; ++k) {
        a -= 2 * (k - 1);
        c *= -a / k;
        const ${T} next = (last - b * current) / a;
        last = current;
        current = next;
        q += c * next;
        if (fabs(c) > ${number(2.0**60)}) { /* Only the product matters; both would leave the range of float. */
            c *= ${number(2.0**-60)};
            last *= ${number(2.0**60)};
            current *= ${number(2.0**60)};
        }
        b += 2;
        d = 1 / (b + a * d);
        step *= b * d - 1;
        h += step;
        sum += q * step;
        if (fabs(q * step) < sum * ${eps})
            break;
    }
    *first = sqrt(${number(PI / 2)} / x) / sum;
    *second = *first * (m + x + ${number(0.5)} - start * h) / x;
}

/* SciPy's functions have the same limits of order and argument. */
static int bessel_in_range_${T}(const ${T} v, const ${T} x)
{
    return fabs(v) < ${number(2.0**30)} && fabs(x) < ${number(2.0**30)};
}

static ${T} bessel_kve_${T}(const ${T} order, const ${T} x)
{
    if (x == 0)
        return INFINITY;
    if (!(x > 0) || !bessel_in_range_${T}(order, x))
        return NAN;
    const ${T} v = fabs(order);
    if (v * v + x * x >= ${radius**2})
        return ${number((PI / 2) ** 0.5)} * bessel_uniform_${T}(v, x, -1);
    const ${T} steps = rint(v);
    const ${T} m = v - steps;
    ${T} k, next;
    if (x > ${turn})
        bessel_steed_${T}(m, x, &k, &next);
    else bessel_temme_${T}(m, x, &k, &next);
    for (int n = 1; n <= steps; ++n) {
        const ${T} after = (m + n) / (${number(0.5)} * x) * next + k;
        k = next;
        next = after;
    }
    return k;
}

/* For v >= 0 and x > 0. */
static ${T} bessel_ive_right_${T}(const ${T} v, const ${T} x)
{
    if (v * v + x * x >= ${radius**2} && (v > 30 || x > ${radius}))
        return ${number((2 * PI) ** -0.5)} * bessel_uniform_${T}(v, x, 1);
    const ${T} quarter = ${number(0.25)} * x * x;
    ${T} term = 1;
    ${T} sum = 1;
    for (int k = 1; k < 100 && term > sum * ${eps}; ++k) {
        term *= quarter / (k * (v + k));
        sum += term;
    }
    return pow(${number(0.5)} * x, v) / tgamma(v + 1) * exp(-x) * sum;
}

static ${T} bessel_ive_${T}(const ${T} v, const ${T} x)
{
    const int whole = v == rint(v);
    if (!bessel_in_range_${T}(v, x) || (!whole && (x < 0 || (x == 0 && v < 0))))
        return NAN;
    if (x == 0)
        return v == 0;
    const ${T} y = fabs(x);
    ${T} result = bessel_ive_right_${T}(fabs(v), y);
    /* DLMF 10.27.2 */
    if (v < 0 && !whole) {
        const ${T} k = bessel_kve_${T}(v, y);
    % if dtype == "float64":
        if (k == INFINITY)
            return NAN;
    % endif
        result += ${number(2 / PI)} * sinpi(-v) * exp(-2 * y) * k;
    }
    const int odd = whole && rint(${number(0.5)} * v) != ${number(0.5)} * v;
    return odd && x < 0 ? -result : result;
}

