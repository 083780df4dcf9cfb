## Algorithm   Parts of the Bessel function of the first kind of real order: Debye's expansions (DLMF 10.19.3 and
##             10.19.6), written with r = sqrt(|v**2 - x**2|) so that they hold down to v = 0, and the power series
##             (10.2.2).
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import debye, horner
PI = 3.141592653589793
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
rows, eps = (20, 2e-17) if dtype == "float64" else (8, 1e-8)
%>\
/* J_v, or J_(-v) if `minus`, from J and Y of v >= 0 (DLMF 10.2.3). */
static ${T} bessel_reflect_${T}(const ${T} v, const int minus, const ${T} j, const ${T} y)
{
    if (!minus)
        return j;
    /* The order modulo 2, where cospi and sinpi are exact. */
    const ${T} turn = v - 2 * floor(${number(0.5)} * v);
    const ${T} c = cospi(turn);
    const ${T} s = sinpi(turn);
    return (c == 0 ? 0 : c * j) - (s == 0 ? 0 : s * y);
}

/* Beyond the turning point, x > v: A and B are the even and the odd terms. */
static ${T} bessel_waves_${T}(const ${T} v, const ${T} x, const ${T} r, const int minus)
{
    const ${T} p = v / r;
    const ${T} square = -p * p;
    const ${T} step = 1 / r;
    const ${T} back = -step * step;
    ${T} even = 0;
    ${T} odd = 0;
    % for row in reversed(debye(rows)[::2]):
    even = even * back + ${horner(row, "square", dtype)};
    % endfor
    % for row in reversed(debye(rows)[1::2]):
    odd = odd * back + ${horner(row, "square", dtype)};
    % endfor
    odd *= step;
    /* The phase is first - second - pi / 4. A huge x stays whole; near the turning point the difference is exact. */
    const int huge = r > v;
    const ${T} angle = v * atan2(r, v);
    const ${T} lag = angle + v * (v / (r + x));
    const ${T} first = huge ? x : r - angle;
    const ${T} second = huge ? lag : 0;
    const ${T} sx = sin(first);
    const ${T} cx = cos(first);
    const ${T} sl = sin(second);
    const ${T} cl = cos(second);
    const ${T} s = sx * cl - cx * sl;
    const ${T} c = cx * cl + sx * sl;
    const ${T} sine = s - c;
    const ${T} cosine = c + s;
    const ${T} size = ${number(PI**-0.5)} / sqrt(r);
    return bessel_reflect_${T}(v, minus, size * (cosine * even + sine * odd), size * (sine * even - cosine * odd));
}

/* Before it, x < v. */
static ${T} bessel_tails_${T}(const ${T} v, const ${T} x, const ${T} r, const int minus)
{
    const ${T} p = v / r;
    const ${T} square = p * p;
    const ${T} step = (minus ? -1 : 1) / r;
    const ${T} exponent = v * asinh(r / x) - r;
    const ${T} size = ${number((2 * PI) ** -0.5)} / sqrt(r);
    ${T} sum = 0;
    % for row in reversed(debye(rows)):
    sum = sum * step + ${horner(row, "square", dtype)};
    % endfor
    const ${T} half_way = exp((minus ? ${number(0.5)} : ${number(-0.5)}) * exponent);
    const ${T} result = half_way * (sum * size) * half_way;
    if (!minus)
        return result;
    /* Of J_v itself nothing is left unless the order is nearly an integer. */
    return bessel_reflect_${T}(v, 1, v == rint(v) ? size * exp(-exponent) : 0, -2 * result);
}

/* The order may be negative, but is no negative integer. */
static ${T} bessel_power_${T}(const ${T} v, const ${T} x)
{
    const ${T} half_x = ${number(0.5)} * x;
    const ${T} quarter = half_x * half_x;
    ${T} term = 1;
    ${T} sum = 1;
    for (int k = 1; k < 200; ++k) {
        term *= -quarter / (k * (v + k));
        sum += term;
        if (fabs(term) < ${number(eps)} * fabs(sum) && k > -v)
            break;
    }
    return pow(half_x, v) / tgamma(v + 1) * sum;
}

