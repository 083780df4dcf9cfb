## Algorithm   betainc of vectors: the parts of kernels/math/betainc.mako that most arguments need, each for all lanes
##             if one needs it. Rare arguments are computed lane by lane: tiny parameters, NaN, and lanes that do not
##             converge soon.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
from pytensor_cl.codegen.coefficients.series import horner, stirling
%>\
<%
double = dtype == "float64"
T, M, counts = (ctype(dtype), "long", (8,)) if double else (ctype(dtype), "int", (8, 16))
number = lambda value: literal(value, dtype)
moderate, fraction_eps, series_eps, least = (10, 3e-16, 1e-17, 0.05) if double else (5, 1e-7, 1e-9, 0.1)
odd = [1 / (2 * k + 3) for k in range(16 if double else 8)]
most = 200
%>\
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
/* gamma(1 + a) for a from 0 to ${2 * moderate}. */
static inline ${V} beta_gamma_${V}(const ${V} a)
{
    const ${V} y = a + 1;
    const ${V} whole = floor(y + ${number(0.75)});
    const ${V} b = y - whole;
    ${V} product = select((${V})(1), 1 / y, (${mask})(whole < (${V})(2)));
    % for k in range(2, 2 * moderate + 1):
    product = select(product, product * (b + ${k}), (${mask})(whole > (${V})(${k})));
    % endfor
    return product * exp_${V}(b * ${minimax("lgamma2p", "b", dtype, V)});
}

static inline ${V} beta_stirling_${V}(const ${V} a)
{
    const ${V} inverse = 1 / a;
    return ${horner(stirling(14 if double else 6), "inverse", dtype, V)};
}

static inline ${V} beta_excess_${V}(const ${V} m, const ${V} ratio)
{
    const ${V} s = m / (2 + m);
    const ${V} square = s * s;
    return select(s * (m - 2 * square * ${horner(odd, "square", dtype, V)}), m - log_${V}(ratio),
        (${mask})(fabs(m) > (${V})(${number(0.5)})));
}

/* x**a y**b / B(a, b) for a <= b. */
static inline ${V} beta_density_${V}(const ${V} a, const ${V} b, const ${V} x, const ${V} y, const ${V} away,
    const ${mask} used)
{
    const ${V} log_y = select(log_${V}(y), log1p_${V}(-x), (${mask})(x < (${V})(${number(0.5)})));
    const ${mask} large = (${mask})(a >= (${V})(10));
    const ${mask} uneven = ~large & (${mask})(b >= (${V})(${moderate}));
    const ${mask} close = ~(large | uneven);
    ${V} result = 0;
    if (some_lane(large & used)) {
        const ${V} p = select((${V})(10), a, large);
        const ${V} q = select((${V})(10), b, large);
        const ${V} factor = beta_stirling_${V}(p + q) / (beta_stirling_${V}(p) * beta_stirling_${V}(q));
        const ${V} distance =
            a * beta_excess_${V}(-away / a, x * ((a + b) / a)) + b * beta_excess_${V}(away / b, y * ((a + b) / b));
        result = sqrt(p / (p + q) * q * ${number(0.15915494309189535)}) * factor * exp_${V}(-distance);
    }
    if (some_lane(close & used)) {
        const ${V} p = select((${V})(1), a, close);
        const ${V} q = select((${V})(1), b, close);
        const ${V} gammas = beta_gamma_${V}(p + q) / (beta_gamma_${V}(p) * beta_gamma_${V}(q));
        result = select(result, p * (q / (p + q)) * gammas * pow_${V}(x, p) * exp_${V}(q * log_y), close);
    }
    if (some_lane(uneven & used)) {
        const ${V} p = select((${V})(1), a, uneven);
        const ${V} q = select((${V})(${moderate}), b, uneven);
        const ${V} growth =
            exp_${V}((p + q - ${number(0.5)}) * log1p_${V}(p / q) - p)
                * beta_stirling_${V}(p + q) / beta_stirling_${V}(q);
        result = select(result, p / beta_gamma_${V}(p) * pow_${V}(q * x, p) * exp_${V}(q * log_y) * growth, uneven);
    }
    return result;
}

/* Lanes of `active` that have not converged stay there. */
static inline ${V} beta_fraction_${V}(const ${V} a, const ${V} b, const ${V} x, const ${V} y, const ${V} away,
    ${mask} *active)
{
    ${V} term = a / (a + 1) * (away + 1);
    ${V} product = term;
    ${V} c = term;
    ${V} d = 0;
    for (int n = 1; n < ${most} && some_lane(*active); ++n) {
        const ${V} even = a + (2 * n - 1);
        const ${V} share = n * ((b - n) / even) * x;
        const ${V} numerator = (a + (n - 1)) / even * (a + b + (n - 1)) * share * x;
        term = n + share + (a + n) / (even + 2) * (away + 1 + n * (1 + y));
        d = 1 / (term + numerator * d);
        c = term + numerator / c;
        product = select(product, product * (c * d), *active);
        *active &= ~(${mask})(fabs(c * d - 1) < (${V})(${number(fraction_eps)}));
    }
    return 1 / product;
}

static inline ${V} beta_series_${V}(const ${V} a, const ${V} b, const ${V} x)
{
    ${V} term = 1;
    ${V} sum = 0;
    for (int n = 1; n < 200 && some_lane((${mask})(fabs(term) >= (${V})(${number(series_eps)}))); ++n) {
        term *= x * ((n - b) / n);
        sum += term / (a + n);
    }
    return exp_${V}(-b * log1p_${V}(-x)) * (1 / a + sum);
}

/* I where not `upper`, else 1 - I. Lanes of `left` are for the scalar code. */
static inline ${V} beta_ratio_${V}(const ${V} a0, const ${V} b0, const ${V} x0, const ${mask} upper, ${mask} *left,
    ${V} *density_out)
{
    const ${V} limit = (${V})(${number(1e8 if double else 1e4)});
    const ${mask} usual =
        (${mask})(a0 >= (${V})(${number(least)})) & (${mask})(b0 >= (${V})(${number(least)})) & (${mask})(a0 < limit)
            & (${mask})(b0 < limit)
        & (${mask})(x0 > (${V})(0)) & (${mask})(x0 < (${V})(1));
    const ${V} a = select((${V})(1), a0, usual);
    const ${V} b = select((${V})(1), b0, usual);
    const ${V} x = select((${V})(${number(0.5)}), x0, usual);
    const ${V} y = 1 - x;
    const ${V} away = select((a + b) * y - b, a - (a + b) * x, (${mask})(x < y));
    const ${V} bend = (${V})(${number(0.7)});
    const ${mask} easy = (${mask})(x <= bend) & (${mask})(b * x <= bend);
    const ${mask} above =
        (${mask})(away < (${V})(0)) & ~easy
            & ((${mask})(b >= (${V})(1)) | ((${mask})(y < (${V})(${number(least)})) & (${mask})(a * y < (${V})(1))));
    const ${mask} turned = (${mask})(a > b);
    const ${V} density =
        beta_density_${V}(select(a, b, turned), select(b, a, turned), select(x, y, turned), select(y, x, turned),
            select(away, -away, turned), usual);
    const ${V} p = select(a, b, above);
    const ${V} q = select(b, a, above);
    const ${V} u = select(x, y, above);
    const ${V} v = select(y, x, above);
    const ${V} far = select(away, -away, above);
    const ${mask} there = usual & (${mask})(density > (${V})(0));
    const ${mask} quick = (${mask})(u <= bend) & (${mask})(q * u <= bend);
    ${V} tail = 0;
    *left = there & ~quick;
    *density_out = density;
    if (some_lane(*left))
        tail = beta_fraction_${V}(p, q, u, v, far, left);
    if (some_lane(there & quick)) {
        const ${mask} here = there & quick;
        tail = select(tail,
            beta_series_${V}(select((${V})(1), p, here), select((${V})(1), q, here),
                select((${V})(${number(0.25)}), u, here)), here);
    }
    tail *= density;
    *left |= ~usual;
    return select(select((${V})(0), (${V})(1), (${mask})(away < (${V})(0)) ^ upper),
        select(tail, 1 - tail, above ^ upper), there);
}

static inline ${V} betainc_${V}(const ${V} a0, const ${V} b0, const ${V} x0)
{
    ${V} unused;
    ${mask} left;
    ${V} result = beta_ratio_${V}(a0, b0, x0, (${mask})(0), &left, &unused);
    if (some_lane(left))
        for (int k = 0; k < ${lanes}; ++k)
            if (((${M} *)&left)[k])
                ((${T} *)&result)[k] =
                    betainc_${T}(((const ${T} *)&a0)[k], ((const ${T} *)&b0)[k], ((const ${T} *)&x0)[k]);
    return result;
}

% endfor
