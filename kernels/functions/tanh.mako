## tanh of float32 vectors. The polynomial has the least largest error (Remez).
<%page args="dtype"/>\
<%!
from pytensor_cl.routines.series import horner
%>\
% for lanes in (8, 16):
<% V = f"float{lanes}" %>\
static inline ${V} tanh_${V}(const ${V} x)
{
    const ${V} t = x * x, size = fabs(x);
    const ${V} p = ${horner((-0.3333328366279602, 0.13331490755081177, -0.05374349653720856, 0.020650584250688553, -0.005717041436582804), "t", dtype, V)};
    const ${V} far = copysign(1 - 2 / (exp(2 * fmin(size, (${V})(20))) + 1), x);
    const ${V} result = select(far, fma(p * t, x, x), size < (${V})(0.625f));
    return select(result, x, x != x);
}

% endfor
