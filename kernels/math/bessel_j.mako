## Algorithm   The Bessel function of the first kind J_v(x) of real order: Debye's expansions far from the turning point
##             x = |v|, the power series for small x, and between them Steed's method, from two continued fractions
##             (Barnett 1974, J. Comput. Phys. 14; DLMF 10.10).
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
PI = 3.141592653589793
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
far, most = (40, 150) if dtype == "float64" else (14, 30)
eps = number(2e-16 if dtype == "float64" else 1e-7)
%>\
/* The continued fraction of J_(v+1) / J_v, DLMF 10.10.1; its sign is that of J_v. */
static ${T} bessel_ratio_${T}(const ${T} v, const ${T} x, ${T} *sign)
{
    ${T} c = ${number(1e-30)};
    ${T} d = 0;
    ${T} ratio = c;
    ${T} a = 1;
    *sign = 1;
    for (int k = 1; k < 100000; ++k) {
        const ${T} b = 2 * (v + k) / x;
        d = b + a * d;
        c = b + a / c;
        if (d == 0)
            d = ${number(1e-30)};
        if (c == 0)
            c = ${number(1e-30)};
        d = 1 / d;
        ratio *= c * d;
        if (d < 0)
            *sign = -*sign;
        if (fabs(c * d - 1) < ${eps})
            break;
        a = -1;
    }
    return ratio;
}

/* p + i q = (J' + i Y') / (J + i Y), a continued fraction of complex numbers, for x >= v. */
static ${T}2 bessel_wave_ratio_${T}(const ${T} v, const ${T} x)
{
    ${T}2 c, d, result = (${T}2)(${number(-0.5)} / x, 1);
    ${T}2 a = (${T}2)(0, (${number(0.25)} - v * v) / x);
    c = result;
    d = (${T}2)(0);
    for (int k = 1; k < 100000; ++k) {
        const ${T}2 b = (${T}2)(2 * x, 2 * k);
        const ${T} size = c.x * c.x + c.y * c.y;
        c = b + (${T}2)(a.x * c.x + a.y * c.y, a.y * c.x - a.x * c.y) / size;
        d = b + (${T}2)(a.x * d.x - a.y * d.y, a.x * d.y + a.y * d.x);
        d = (${T}2)(d.x, -d.y) / (d.x * d.x + d.y * d.y);
        const ${T}2 factor = (${T}2)(c.x * d.x - c.y * d.y, c.x * d.y + c.y * d.x);
        result = (${T}2)(result.x * factor.x - result.y * factor.y, result.x * factor.y + result.y * factor.x);
        if (fabs(factor.x - 1) + fabs(factor.y) < ${eps})
            break;
        a = (${T}2)((k + ${number(0.5)} - v) * (k + ${number(0.5)} + v), 0);
    }
    return result;
}

/* Steed's method at an order below x, from where J goes up by its ratios and Y by its recurrence, DLMF 10.6.1. */
static ${T} bessel_both_${T}(const ${T} v, const ${T} x, const int minus)
{
    const int steps = max(0, (int)(v - x + ${number(1.5)}));
    const ${T} m = v - steps;
    ${T} sign;
    ${T} ratio = bessel_ratio_${T}(v, x, &sign);
    ${T} j = sign;
    ${T} next = ratio * j;
    for (int k = 0; k < steps; ++k) {
        const ${T} before = 2 * (v - k) / x * j - next;
        next = j;
        j = before;
    }
    if (j == 0)
        j = ${number(1e-30)};
    const ${T} f = m / x - next / j;
    const ${T}2 wave = bessel_wave_ratio_${T}(m, x);
    const ${T} tangent = (wave.x - f) / wave.y;
    const ${T} exact = copysign(sqrt(${number(2 / PI)} / (x * ((wave.x - f) * tangent + wave.y))), j);
    const ${T} result = exact / j * sign;
    if (!minus)
        return result;
    ${T} y = tangent * exact;
    ${T} above = m / x * y - exact * (tangent * wave.x + wave.y);
    for (int k = 1; k <= steps; ++k) {
        const ${T} after = 2 * (m + k) / x * above - y;
        y = above;
        above = after;
    }
    return bessel_reflect_${T}(v, 1, result, y);
}

static ${T} bessel_right_${T}(const ${T} v, const ${T} x, const int minus)
{
    if (v < ${most} && (x <= 2 || x * x <= 2 * (v + 1)))
        return bessel_power_${T}(minus ? -v : v, x);
    const ${T} larger = fmax(v, x);
    const ${T} d = fabs(v - x);
    const ${T} r = larger < ${number(2.0**60)} ? sqrt(d * (v + x)) : sqrt(d) * sqrt(v + x);
    const ${T} share = r / larger;
    if (r * share * share >= ${far}) {
        return x > v ? bessel_waves_${T}(v, x, r, minus) : bessel_tails_${T}(v, x, r, minus);
    }
    return bessel_both_${T}(v, x, minus);
}

static ${T} bessel_jv_${T}(const ${T} order, const ${T} x)
{
    const int whole = order == rint(order);
    const ${T} v = fabs(order);
    const ${T} y = fabs(x);
    const ${T} half_order = ${number(0.5)} * v;
    if (!(y < INFINITY) || order != order || (x < 0 && (!whole || v == INFINITY)))
        return NAN;
    if (y == 0 && !whole && order < 0) {
        /* The sign of gamma(order + 1), which alternates. */
        return rint(${number(0.5)} * floor(v)) == ${number(0.5)} * floor(v) ? INFINITY : -INFINITY;
    }
    if (y == 0 || v == INFINITY)
        return v == 0;
    const ${T} result = bessel_right_${T}(v, y, !whole && order < 0);
    const int odd = whole && rint(half_order) != half_order;
    return odd && ((order < 0) != (x < 0)) ? -result : result;
}

