## Algorithm   erfcx, erfinv and erfcinv, without branches. erfcx: (x + 1/2) erfcx(x) is smooth in (x - k) / (x + k)
##             (Shepherd & Laframboise 1981, Math. Comp. 36). Inverses: erfinv(x) / x is smooth in w = -log(1 - x**2),
##             far out in sqrt(w) (Giles 2012, GPU Computing Gems).
<%page args="dtype"/>\
<%include file="/math/log.mako" args="dtype=dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import chebyshev_series
%>\
<%
T, M = ctype(dtype), "long" if dtype == "float64" else "int"
number, whole = lambda value: literal(value, dtype), (8,) if dtype == "float64" else (8, 16)
%>\
% for lanes in ("", 2, 4, 8, 16):
<% V, mask, log = f"{T}{lanes}", f"{M}{lanes}", f"log_{T}{lanes}" if lanes in whole else "log" %>\
<% series = lambda name: chebyshev_series(name, "t", dtype, V) %>\
static inline ${V} erfcx_${V}(const ${V} x)
{
    const ${V} y = fabs(x);
    const ${V} t = 1 - ${number(7.5)} / (y + ${number(3.75)});
    const ${V} right = ${series("erfcx")} / (y + ${number(0.5)});
    /* exp(x**2), with the rounding error of the square. */
    const ${V} square = x * x;
    const ${V} error = fma(x, x, -square);
    const ${V} growth = 2 * exp(square);
    const ${V} left = growth + (select((${V})(0), growth * error, (${mask})(growth < (${V})(INFINITY))) - right);
    return select(right, left, (${mask})(x < (${V})(0)));
}

/* erfinv(x) / x from w = -log(1 - x**2). */
static inline ${V} erfinv_ratio_${V}(const ${V} w)
{
    const ${V} s = sqrt(w);
    ${V} t = w * ${number(1 / 3.125)} - 1;
    ${V} result = ${series("erfinv_0")};
    t = (s - ${number(3.25)}) * ${number(1 / 0.75)};
    result = select(result, ${series("erfinv_1")}, (${mask})(s > (${V})(${number(2.5)})));
    t = s * ${number(0.5)} - 3;
    result = select(result, ${series("erfinv_2")}, (${mask})(s > (${V})(4)));
    t = s * ${number(0.1)} - ${number(1.8)};
    return select(result, ${series("erfinv_3")}, (${mask})(s > (${V})(8)));
}

static inline ${V} erfinv_${V}(const ${V} x)
{
    const ${V} y = fabs(x);
    const ${V} inside = x * erfinv_ratio_${V}(-${log}((1 - y) * (1 + y)));
    const ${V} outside = select((${V})(NAN), copysign((${V})(INFINITY), x), (${mask})(y == (${V})(1)));
    return select(outside, inside, (${mask})(y < (${V})(1)));
}

static inline ${V} erfcinv_${V}(const ${V} x)
{
    const ${V} inside = (1 - x) * erfinv_ratio_${V}(-(${log}(x) + ${log}(2 - x)));
    ${V} outside = select((${V})(NAN), (${V})(INFINITY), (${mask})(x == (${V})(0)));
    outside = select(outside, (${V})(-INFINITY), (${mask})(x == (${V})(2)));
    return select(outside, inside, (${mask})(x > (${V})(0) && x < (${V})(2)));
}

% endfor
