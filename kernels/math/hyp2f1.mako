## Algorithm   The Gauss hypergeometric function F(a, b; c; z) of real arguments: linear transformations (DLMF 15.8) to
##             0 <= z < 1, and there the series about 0 or about 1 with the least cancellation; a recurrence (15.5.11)
##             where all cancel.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
enough, much = (10, 300) if dtype == "float64" else (5, 12)
%>\
/* y**s value, in two steps: where the power overflows the result need not. */
static ${T} hyp_scaled_${T}(const ${T} y, const ${T} s, const ${T} value)
{
    const ${T} whole = pow(y, s);
    if (fabs(whole) < INFINITY && fabs(whole) > ${number(1e-30)})
        return whole * value;
    const ${T} half_way = pow(fabs(y), ${number(0.5)} * s);
    return half_way * value * half_way * (whole < 0 ? -1 : 1);
}

/* F(a, b; c; w) for 0 < w < 1, where y = 1 - w, ca = c - a, cb = c - b and s = c - a - b >= 0. */
static ${T} hyp_unit_${T}( const ${T} a, const ${T} b, const ${T} c, const ${T} ca, const ${T} cb, const ${T} s,
    const ${T} w, const ${T} y, ${T} *loss)
{
    ${T} best = 0;
    ${T} other;
    *loss = INFINITY;
    const int middle = w <= ${number(0.75)};
    for (int way = 0; way < 3 && !(*loss < ${enough}); ++way) {
        const int kind = middle ? way : (way + 2) % 3;
        if (kind < 2 && y < ${number(0.002)})
            break; /* Too many terms. */
        const ${T} value = kind == 0 ? hyp_series_${T}(a, b, c, w, &other)
            : kind == 1 ? hyp_scaled_${T}(y, s, hyp_series_${T}(ca, cb, c, w, &other))
            : hyp_about_one_${T}(a, b, c, ca, cb, s, y, &other);
        if (way == 0 || other < *loss) {
            best = value;
            *loss = other;
        }
    }
    return best;
}

/* The same for any s. Here and below each function is called from one place, with arguments that were chosen before.
   Compilers for GPUs put a copy where each call is, and some take minutes for what those calls would add up to. */
static ${T} hyp_right_${T}(const ${T} a, const ${T} b, const ${T} c, const ${T} w, const ${T} y, ${T} *loss)
{
    const ${T} s = c - a - b;
    const ${T} ca = c - a;
    const ${T} cb = c - b;
    const int plain = s >= 0;
    const ${T} value =
        hyp_unit_${T}(plain ? a : ca, plain ? b : cb, c, plain ? ca : a, plain ? cb : b, plain ? s : -s, w, y, loss);
    return plain ? value : hyp_scaled_${T}(y, s, value);
}

/* From a + n down to a; F of a + n is `above`, of a + n - 1 is `value`. */
static ${T} hyp_recurrence_${T}( const ${T} a, const int n, const ${T} b, const ${T} c, const ${T} z, ${T} above,
    ${T} value)
{
    for (int k = n - 1; k > 0; --k) {
        const ${T} at = a + k;
        const ${T} below = ((c - 2 * at + (at - b) * z) * value + at * (1 - z) * above) / (c - at);
        above = value;
        value = below;
    }
    return value;
}

/* As hyp_unit, but with a recurrence for large negative a, where terms alternate. */
static ${T} hyp_steps_${T}( const ${T} a, const ${T} b, const ${T} c, const ${T} ca, const ${T} cb, const ${T} s,
    const ${T} w, const ${T} y, ${T} *loss)
{
    const ${T} result = hyp_unit_${T}(a, b, c, ca, cb, s, w, y, loss);
    if (*loss < ${much} || a > -2 || a < -100000)
        return result;
    const int n = (int)-a;
    const ${T} start = a + n;
    /* fmax returns the other one of NAN */
    ${T} above = 0;
    ${T} value = 0;
    ${T} lost = NAN;
    ${T} other;
    for (int k = 0; k < 2; ++k) {
        above = value;
        value = hyp_right_${T}(start - k, b, c, w, y, &other);
        lost = fmax(lost, other);
    }
    if (!(lost < *loss))
        return result;
    *loss = lost;
    return hyp_recurrence_${T}(a, n, b, c, w, above, value);
}

/* F(a, b; c; z) for a <= b and z < 1 that ends nowhere. */
static ${T} hyp_any_${T}(const ${T} a, const ${T} b, const ${T} c, const ${T} z)
{
    const ${T} y = 1 - z;
    const ${T} s = c - a - b;
    const ${T} ca = c - a;
    const ${T} cb = c - b;
    ${T} loss, other;
    ${T} first = a;
    ${T} second = b;
    ${T} less_first = ca;
    ${T} less_second = cb;
    ${T} sum = s;
    ${T} w = z;
    ${T} from_one = y;
    ${T} power = 0;
    if (z < 0) {
        const int ordered = a < cb;
        first = ordered ? a : cb, second = ordered ? cb : a;
        less_first = ordered ? ca : b, less_second = ordered ? b : ca;
        sum = b - a, w = z / (z - 1), from_one = 1 / y, power = -a;
    }
    else if (!(s >= 0))
        first = cb, second = ca, less_first = b, less_second = a, sum = -s, power = s;
    ${T} result = hyp_steps_${T}(first, second, c, less_first, less_second, sum, w, from_one, &loss);
    if (z < 0 || !(s >= 0))
        result = hyp_scaled_${T}(y, power, result);
    if (z > 0 || z < -${number(0.9)} || loss < ${enough})
        return result;
    const ${T} direct = hyp_series_${T}(a, b, c, z, &other);
    return other < loss ? direct : result;
}

/* A polynomial of degree n = -a. */
static ${T} hyp_polynomial_${T}(const ${T} a, const ${T} b, const ${T} c, const ${T} z)
{
    ${T} loss, other;
    const ${T} direct = hyp_series_${T}(a, b, c, z, &loss);
    if (loss < ${enough} || !(fabs(z) < INFINITY))
        return direct;
    /* About 1, DLMF 15.8.7. */
    ${T} factor = 1;
    for (int k = 0; k < -a && k < 30000; ++k)
        factor *= (c - b + k) / (c + k);
    const ${T} mirrored = factor * hyp_series_${T}(a, b, a + b - c + 1, 1 - z, &other);
    const ${T} best = other < loss ? mirrored : direct;
    loss = fmin(loss, other);
    const int safe = a > -100000 && (c > 0 || c < a);
    return loss < ${much} || !safe ? best : hyp_recurrence_${T}(a, (int)-a, b, c, z, 1, 1 - b * z / c);
}

/* Euler's transform (DLMF 15.8.1) ends; if neither it nor the series does there is no real value beyond 1. */
static ${T} hyp_beyond_${T}(const ${T} a, const ${T} b, const ${T} c, const ${T} z)
{
    const ${T} y = 1 - z;
    const ${T} s = c - a - b;
    if (a == c || b == c)
        return pow(y, a == c ? -b : -a);
    if (!hyp_pole_${T}(c - a) && !hyp_pole_${T}(c - b))
        return INFINITY;
    const ${T} p = hyp_pole_${T}(c - a) ? c - a : c - b;
    const ${T} q = hyp_pole_${T}(c - a) ? c - b : c - a;
    return hyp_scaled_${T}(y, s, hyp_polynomial_${T}(p, q, c, z));
}

static ${T} hyp2f1_${T}(const ${T} p, const ${T} q, const ${T} c, const ${T} z)
{
    const ${T} a = fmin(p, q);
    const ${T} b = fmax(p, q);
    if (z == 0 || ((p == 0 || q == 0) && c != 0))
        return 1;
    if ((fabs(z) < 1 || z == -1) && (a == c || b == c))
        return pow(1 - z, a == c ? -b : -a);
    const int a_ends = hyp_pole_${T}(a);
    const int b_ends = hyp_pole_${T}(b);
    const int ends = a_ends || b_ends;
    /* The one of lower degree. */
    const ${T} low = b_ends ? b : a;
    if (z != z)
        return NAN;
    if (hyp_pole_${T}(c) && !(ends && low > c))
        return INFINITY;
    if (ends)
        return hyp_polynomial_${T}(low, b_ends ? a : b, c, z);
    if (!(fabs(p) < INFINITY && fabs(q) < INFINITY && fabs(c) < INFINITY)) {
        return z > 1 ? INFINITY : c == INFINITY && fabs(z) < ${number(0.9)} ? 1 : NAN;
    }
    if (z == -INFINITY)
        return NAN;
    const ${T} s = c - a - b;
    if (z > 1 || (z < 1 && (hyp_pole_${T}(c - a) || hyp_pole_${T}(c - b))))
        return hyp_beyond_${T}(a, b, c, z);
    if (z == 1)
        return s > 0 ? hyp_gammas_${T}(c, s, c - a, c - b) : INFINITY;
    return hyp_any_${T}(a, b, c, z);
}

