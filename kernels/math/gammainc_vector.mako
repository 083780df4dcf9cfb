## Algorithm   gammainc and gammaincc of vectors: the parts of kernels/math/gammainc.mako, each for all lanes if one
##             needs it. Loops end when every active lane has converged.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.series import chebyshev_series, horner, stirling, temme
%>\
<%
double = dtype == "float64"
T, M, counts = (ctype(dtype), "long", (8,)) if double else (ctype(dtype), "int", (8, 16))
number = lambda value: literal(value, dtype)
large, rows, columns = (20, 11, 16) if double else (12, 6, 9)
series_eps, fraction_eps = (1e-17, 2e-16) if double else (1e-9, 1e-7)
odd = [1 / (2 * k + 3) for k in range(16 if double else 8)]
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
/* x**a exp(-x) / gamma(a + 1) for a < 10; gamma(2 + b) and a product. */
static inline ${V} gamma_density_${V}(const ${V} a, const ${V} x)
{
    const ${V} y = a + 1;
    const ${V} whole = floor(y + ${number(0.75)});
    const ${V} b = y - whole;
    ${V} product = select((${V})(1), 1 / y, (${mask})(whole < (${V})(2)));
    % for k in range(2, 11):
    product = select(product, product * (b + ${k}), (${mask})(whole > (${V})(${k})));
    % endfor
    const ${V} half_way = exp_${V}(x * ${number(-0.5)});
    return half_way * pow_${V}(x, a) / (product * exp_${V}(b * ${minimax("lgamma2p", "b", dtype, V)})) * half_way;
}

static inline ${V} gamma_uniform_${V}(const ${V} a, const ${V} m, const ${V} excess, const ${mask} upper)
{
    const ${V} inverse = 1 / a;
    const ${V} eta = copysign(sqrt(2 * excess), m);
    const ${V} y = copysign(sqrt(a * excess), m);
    ${V} sum = 0;
    % for row in reversed(temme(rows, columns)):
    sum = sum * inverse + ${horner(row, "eta", dtype, V)};
    % endfor
    const ${V} rest = exp_${V}(-a * excess) / sqrt(${number(6.283185307179586)} * a) * sum;
    return ${number(0.5)} * erfc_${V}(select(-y, y, upper)) + select(-rest, rest, upper);
}

static inline ${V} gamma_series_${V}(const ${V} a, const ${V} x)
{
    ${V} term = 1;
    ${V} sum = 1;
    for (int k = 1; k < 2000 && some_lane((${mask})(term > sum * ${number(series_eps)})); ++k) {
        term *= x / (a + k);
        sum += term;
    }
    return sum;
}

static inline ${V} gamma_fraction_${V}(const ${V} a, const ${V} x)
{
    ${V} b = x + 1 - a;
    ${V} c = INFINITY;
    ${V} d = 1 / b;
    ${V} product = d;
    ${mask} active = -1;
    for (int k = 1; k < 2000 && some_lane(active); ++k) {
        const ${V} numerator = (a - k) * k;
        b += 2;
        d = 1 / (numerator * d + b);
        c = b + numerator / c;
        const ${V} factor = c * d;
        product = select(product, product * factor, active);
        active &= (${mask})(fabs(factor - 1) >= (${V})(${number(fraction_eps)}));
    }
    return a * product;
}

static inline ${V} gamma_complement_${V}(const ${V} a, const ${V} x)
{
    const ${V} t = (4 * a - 1) * ${number(1 / 3)};
    const ${V} power = a * log_${V}(x) - a * ${chebyshev_series("lgamma1p", "t", dtype, V)};
    ${V} term = 1;
    ${V} sum = 0;
    for (int k = 1; k < 60 && some_lane((${mask})(fabs(term) > (${V})(${number(series_eps)}))); ++k) {
        term *= -x / k;
        sum += term / (a + k);
    }
    return -expm1_${V}(power) - exp_${V}(power) * a * sum;
}

/* Q where `upper`, else P; if `with_density` also x**a exp(-x) / gamma(a + 1), where a and x are ordinary. */
static inline ${V} gamma_ratio_${V}(const ${V} a0, const ${V} x0, const ${mask} upper, const int with_density,
    ${V} *density_out)
{
    const ${mask} ordinary =
        (${mask})(a0 > (${V})(0)) & (${mask})(x0 > (${V})(0)) & (${mask})(a0 < (${V})(INFINITY))
            & (${mask})(x0 < (${V})(INFINITY));
    const ${V} a = select((${V})(1), a0, ordinary);
    const ${V} x = select((${V})(1), x0, ordinary);
    const ${V} m = (x - a) / a;
    const ${V} ratio = x / a;
    const ${mask} uniform = (${mask})(a >= (${V})(${large})) & (${mask})(fabs(x - a) < ${number(0.3)} * a);
    const ${mask} above = (${mask})(x > a) & (${mask})(x > (${V})(1));
    const ${mask} wanted = ~(above ^ upper);
    const ${mask} ten = (${mask})(a >= (${V})(10));
    const ${mask} small = upper & (${mask})(a <= (${V})(1)) & ~above;
    const ${mask} by_parts = ~(uniform | small);
    ${V} result = 0;
    ${V} excess = 0;
    ${V} density = 0;
    ${V} tail = 0;
    if (some_lane(ten)) {
        const ${V} s = m / (2 + m);
        const ${V} square = s * s;
        const ${V} inverse = 1 / a;
        excess = select(s * (m - 2 * square * ${horner(odd, "square", dtype, V)}), m - log_${V}(ratio),
            (${mask})(fabs(m) > (${V})(${number(0.5)})));
        density = exp_${V}(-a * excess) / (sqrt(${number(6.283185307179586)} * a)
            * ${horner(stirling(14 if double else 6), "inverse", dtype, V)});
    }
    if (some_lane((with_density ? (${mask})(-1) : by_parts) & ~ten))
        density = select(gamma_density_${V}(select(a, (${V})(1), ten), x), density, ten);
    if (with_density)
        *density_out = density;
    if (some_lane(by_parts & ~above))
        tail = gamma_series_${V}(a, select((${V})(0), x, by_parts & ~above & (${mask})(density > (${V})(0))));
    if (some_lane(by_parts & above)) {
        const ${mask} here = by_parts & above & (${mask})(density > (${V})(0));
        tail = select(tail, gamma_fraction_${V}(select((${V})(1), a, here), select((${V})(2), x, here)), here);
    }
    tail = select((${V})(0), tail * density, (${mask})(density > (${V})(0)));
    result = select(1 - tail, tail, wanted);
    if (some_lane(small))
        result = select(result, gamma_complement_${V}(select((${V})(1), a, small), select((${V})(1), x, small)), small);
    if (some_lane(uniform))
        result = select(result,
            gamma_uniform_${V}(select((${V})(${large}), a, uniform), select((${V})(0), m, uniform),
                select((${V})(0), excess, uniform), upper), uniform);
    /* Zero and infinity. */
    const ${mask} whole = (${mask})(a0 == (${V})(0)) | (${mask})(x0 == (${V})(INFINITY));
    const ${V} edge = select((${V})(0), (${V})(1), whole ^ upper);
    const ${mask} wrong =
        ~((${mask})(a0 >= (${V})(0)) & (${mask})(x0 >= (${V})(0)))
            | ((${mask})(a0 == (${V})(0)) & (${mask})(x0 == (${V})(0)))
                | ((${mask})(a0 == (${V})(INFINITY)) & (${mask})(x0 == (${V})(INFINITY)));
    return select(select(edge, (${V})(NAN), wrong), result, ordinary);
}

static inline ${V} gammainc_${V}(const ${V} a, const ${V} x)
{
    ${V} unused;
    return gamma_ratio_${V}(a, x, (${mask})(0), 0, &unused);
}

static inline ${V} gammaincc_${V}(const ${V} a, const ${V} x)
{
    ${V} unused;
    return gamma_ratio_${V}(a, x, (${mask})(-1), 0, &unused);
}

% endfor
