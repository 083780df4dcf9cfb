## Algorithm   Owen's T function: Gauss-Legendre quadrature of its integral for |a| <= 1, cut where the integrand
##             vanishes; else by the reflection T(h, a) + T(a h, 1 / a) of Owen 1956 (Ann. Math. Stat. 27), formula 2.3.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import gauss_legendre
%>\
<%
T, M = ctype(dtype), "long" if dtype == "float64" else "int"
number = lambda value: literal(value, dtype)
count, reach = (28, 8.6) if dtype == "float64" else (14, 6)
%>\
<% nodes, weights = gauss_legendre(count) %>\
/* Squares of the nodes, and the weights. */
__constant ${T} owens_t_rule_${T}[${count}][2] = {
% for node, weight in zip(nodes, weights):
    {${number(node**2)}, ${number(weight)}},
% endfor
};
% for lanes in ("", 2, 4, 8, 16):
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} owens_t_${V}(const ${V} h, const ${V} a)
{
    const ${V} y = fabs(h);
    const ${V} slope = fabs(a);
    const ${mask} steep = (${mask})(slope > (${V})(1));
    const ${V} product = select(y * slope, (${V})(0), (${mask})(y == (${V})(0)));
    const ${V} height = select(y, product, steep);
    const ${V} end = select(slope, 1 / slope, steep);
    const ${V} limit = fmin(end, ${number(reach)} / height);
    const ${V} half_square = ${number(-0.5)} * height * height;
    ${V} square;
    ${V} sum = 0;
    % if lanes:
    % for node, weight in zip(nodes, weights):
    square = limit * limit * ${number(node**2)} + 1;
    sum += ${number(weight)} * exp(half_square * square) / square;
    % endfor
    % else:
    /* A loop: compilers for GPUs would compute all terms at once, and have no registers for them. */
    #pragma unroll 1
    for (int k = 0; k < ${count}; ++k) {
        square = limit * limit * owens_t_rule_${T}[k][0] + 1;
        sum += owens_t_rule_${T}[k][1] * exp(half_square * square) / square;
    }
    % endif
    const ${V} integral = sum * limit * ${number(0.15915494309189535)};
    const ${V} p = ${number(0.5)} * erfc(y * ${number(0.7071067811865476)});
    const ${V} q = ${number(0.5)} * erfc(height * ${number(0.7071067811865476)});
    const ${V} reflected = ${number(0.5)} * (p + q) - p * q - integral;
    const ${V} result = copysign(select(integral, reflected, steep), a);
    return select(result, (${V})(NAN), (${mask})(h != h || a != a));
}

% endfor
