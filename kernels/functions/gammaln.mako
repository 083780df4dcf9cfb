## log(|gamma(x)|), without branches. The built-in has an error of its own near 1 and 2, where the value is zero.
<%page args="dtype"/>\
<%!
from pytensor_cl.dtypes import ctype, literal
from pytensor_cl.routines.series import chebyshev_series
%>\
<%
T, M = ctype(dtype), "long" if dtype == "float64" else "int"
number = lambda value: literal(value, dtype)
%>\
% for lanes in ("", 2, 4, 8, 16):
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} gammaln_${V}(const ${V} x)
{
    const ${mask} above = (${mask})(x > (${V})(${number(1.5)})), near = (${mask})(x > (${V})(${number(0.5)}) && x < (${V})(${number(2.5)}));
    const ${V} a = select((${V})(0), x - select((${V})(1), (${V})(2), above), near), t = (4 * a - 1) * ${number(1 / 3)};
    const ${V} first = a * ${chebyshev_series("lgamma1p", "t", dtype, V)};
    const ${V} series = select(first, first + log1p(a), above);
    const ${V} result = select(lgamma(x), series, near);
    return select(result, x, (${mask})(x == (${V})(-INFINITY)));
}

% endfor
