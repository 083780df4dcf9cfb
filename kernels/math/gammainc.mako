## Algorithm   The incomplete gamma functions P and Q (regularised), with regions like those of Didonato & Morris 1986
##             (ACM TOMS 12): Temme's uniform expansion where a is large and x near it (DLMF 8.12), else power series
##             (8.7) or continued fraction (8.9).
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import temme
%>\
<%
T = ctype(dtype)
number = lambda value: literal(value, dtype)
large, rows, columns = (20, 11, 16) if dtype == "float64" else (12, 6, 9)
eps = number(1e-17 if dtype == "float64" else 1e-9)
%>\
/* x**a exp(-x) / gamma(a + 1) */
static ${T} gamma_density_${T}(const ${T} a, const ${T} x)
{
    if (a >= 10) {
        const ${T} excess = a * log_excess_${T}((x - a) / a, x / a);
        return exp(-excess) / (sqrt(${number(6.283185307179586)} * a) * stirling_${T}(a));
    }
    const ${T} half_way = exp(${number(-0.5)} * x);
    return half_way * pow(x, a) / tgamma(a + 1) * half_way;
}

/* Coefficients of Temme's expansion. */
__constant ${T} gamma_temme_${T}[${rows}][${columns}] = {
% for row in temme(rows, columns):
    {${", ".join(map(number, row))}},
% endfor
};

/* P or Q, DLMF 8.12.3 and 8.12.4. */
static ${T} gamma_uniform_${T}(const ${T} a, const ${T} x, const int upper)
{
    const ${T} m = (x - a) / a;
    const ${T} excess = log_excess_${T}(m, x / a);
    const ${T} inverse = 1 / a;
    const ${T} eta = copysign(sqrt(2 * excess), m);
    const ${T} y = copysign(sqrt(a * excess), m);
    ${T} sum = 0;
    /* A loop: compilers for GPUs would hold the constants of all rows in registers. */
    #pragma unroll 1
    for (int k = ${rows - 1}; k >= 0; --k) {
        __constant const ${T} *const row = gamma_temme_${T}[k];
        ${T} part = row[${columns - 1}];
        % for j in reversed(range(columns - 1)):
        part = part * eta + row[${j}];
        % endfor
        sum = sum * inverse + part;
    }
    const ${T} rest = exp(-a * excess) / sqrt(${number(6.283185307179586)} * a) * sum;
    return upper ? ${number(0.5)} * erfc(y) + rest : ${number(0.5)} * erfc(-y) - rest;
}

/* P / density, DLMF 8.7.1. */
static ${T} gamma_series_${T}(const ${T} a, const ${T} x)
{
    ${T} term = 1;
    ${T} sum = 1;
    for (int k = 1; k < 2000 && term > sum * ${eps}; ++k) {
        term *= x / (a + k);
        sum += term;
    }
    return sum;
}

/* Q / density: the continued fraction DLMF 8.9.2, even part, by the method of Lentz. */
static ${T} gamma_fraction_${T}(const ${T} a, const ${T} x)
{
    ${T} b = x + 1 - a;
    ${T} c = INFINITY;
    ${T} d = 1 / b;
    ${T} product = d;
    for (int k = 1; k < 2000; ++k) {
        const ${T} numerator = -k * (k - a);
        b += 2;
        d = 1 / (numerator * d + b);
        c = b + numerator / c;
        const ${T} factor = c * d;
        product *= factor;
        if (fabs(factor - 1) < ${number(2e-16 if dtype == "float64" else 1e-7)})
            break;
    }
    return a * product;
}

/* Q for a <= 1 and small x, where P is near 1 if a is small: DLMF 8.7.1 without its first term. */
static ${T} gamma_complement_${T}(const ${T} a, const ${T} x)
{
    const ${T} power = a * log(x) - lgamma1p_${T}(a);
    ${T} term = 1;
    ${T} sum = 0;
    for (int k = 1; k < 60; ++k) {
        term *= -x / k;
        sum += term / (a + k);
    }
    return -expm1(power) - exp(power) * a * sum;
}

static ${T} gamma_ratio_${T}(const ${T} a, const ${T} x, const int upper)
{
    if (!(a >= 0 && x >= 0) || (a == 0 && x == 0) || (a == INFINITY && x == INFINITY))
        return NAN;
    if (a == 0 || x == INFINITY)
        return upper ? 0 : 1;
    if (x == 0 || a == INFINITY)
        return upper ? 1 : 0;
    if (a >= ${large} && fabs(x - a) < ${number(0.3)} * a)
        return gamma_uniform_${T}(a, x, upper);
    const int above = x > a && x > 1;
    if (upper && a <= 1 && !above)
        return gamma_complement_${T}(a, x);
    const ${T} density = gamma_density_${T}(a, x);
    if (!(density > 0))
        return above == upper ? 0 : 1;
    const ${T} tail = density * (above ? gamma_fraction_${T}(a, x) : gamma_series_${T}(a, x));
    return above == upper ? tail : 1 - tail;
}

static ${T} gammainc_${T}(const ${T} a, const ${T} x)
{
    return gamma_ratio_${T}(a, x, 0);
}

static ${T} gammaincc_${T}(const ${T} a, const ${T} x)
{
    return gamma_ratio_${T}(a, x, 1);
}

