## Algorithm   Bessel functions I0, I1, exp(-|x|) I0, exp(-|x|) I1, J0, J1 without branches: power series (DLMF 10.25.2)
##             or a Chebyshev series up to 8, beyond it the modulus and phase forms, whose amplitudes are smooth in 8 /
##             x (DLMF 10.40.1, 10.17.3).
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.series import BESSEL_ZEROS, bessel_power, chebyshev_series, horner
%>\
<%
T, M = ctype(dtype), "long" if dtype == "float64" else "int"
number = lambda value: literal(value, dtype)
terms = 28 if dtype == "float64" else 18
%>\
% for lanes in ("", 2, 4, 8, 16):
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
<% series = lambda name, argument: chebyshev_series(name, argument, dtype, V) %>\
% for order in (0, 1):
static inline ${V} bessel_i${order}_${V}(const ${V} x)
{
    const ${V} y = fabs(x);
    const ${V} far = fmax(y, (${V})(8));
    const ${V} t = 16 / far - 1;
    const ${V} square = ${number(0.25)} * y * y;
    const ${V} amplitude = ${series(f"i{order}", "t")} / sqrt(far);
    % if dtype == "float64":
    const ${V} large = exp(far) * amplitude;
    % else:
    /* In two steps: where exp(x) overflows the result need not. */
    const ${V} half_way = exp(${number(0.5)} * far);
    const ${V} large = half_way * amplitude * half_way;
    % endif
    const ${V} small = ${horner(bessel_power(order, terms), "square", dtype, V)};
    % if order == 0:
    const ${V} result = select(small, large, (${mask})(y > (${V})(8)));
    % else:
    const ${V} result = copysign(select(${number(0.5)} * y * small, large, (${mask})(y > (${V})(8))), x);
    % endif
    return select(result, (${V})(NAN), (${mask})(!(y < (${V})(INFINITY))));
}

static inline ${V} bessel_i${order}e_${V}(const ${V} x)
{
    const ${V} y = fabs(x);
    const ${V} near = fmin(y, (${V})(8));
    const ${V} far = fmax(y, (${V})(8));
    const ${V} t = 16 / far - 1;
    const ${V} square = ${number(0.25)} * near * near;
    const ${V} large = ${series(f"i{order}", "t")} / sqrt(far);
    const ${V} small = exp(-near) * ${horner(bessel_power(order, terms), "square", dtype, V)};
    % if order == 0:
    const ${V} result = select(small, large, (${mask})(y > (${V})(8)));
    % else:
    const ${V} result = copysign(select(${number(0.5)} * near * small, large, (${mask})(y > (${V})(8))), x);
    % endif
    return select(result, x, (${mask})(x != x));
}

static inline ${V} bessel_j${order}_${V}(const ${V} x)
{
    const ${V} y = fabs(x);
    const ${V} near = fmin(y, (${V})(8));
    const ${V} far = fmax(y, (${V})(8));
    const ${V} inverse = 8 / far;
    const ${V} t = near * near * ${number(1 / 32)} - 1;
    const ${V} u = 2 * inverse * inverse - 1;
    const ${V} p = ${series(f"p{order}", "u")};
    const ${V} q = ${series(f"q{order}", "u")} / far;
    const ${V} sine = sin(far);
    const ${V} cosine = cos(far);
    /* Of the phase x - pi / 4 (x - 3 pi / 4), times sqrt(2). */
    % if order == 0:
    const ${V} waves = p * (cosine + sine) - q * (sine - cosine);
    % else:
    const ${V} waves = p * (sine - cosine) + q * (sine + cosine);
    % endif
    const ${V} large = ${number(0.5641895835477563)} / sqrt(far) * waves;
    /* The distance from the zeros in two parts, so that it is exact. */
    const ${V} small = ${series(f"j{order}", "t")}
    % for high, low in BESSEL_ZEROS[order, dtype]:
        * ((near - ${number(high)}) - ${number(low)}) * (near + ${number(high)})
    % endfor
        ;
    % if order == 0:
    const ${V} result = select(small, large, (${mask})(y > (${V})(8)));
    % else:
    const ${V} result = copysign((${V})(1), x) * select(near * small, large, (${mask})(y > (${V})(8)));
    % endif
    return select(result, x, (${mask})(x != x));
}

% endfor
% endfor
