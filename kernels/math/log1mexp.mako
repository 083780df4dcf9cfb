## Algorithm   log(1 - exp(x)) of vectors, from exp(x) = 2**k (1 + p): one exponential and one logarithm, that of a sum
##             of two numbers, as in kernels/math/log1p.mako.
<%page args="dtype"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
%>\
<%
    double = dtype == "float64"
    T, M, counts, digits, bias, root_half, log2 = (
        (ctype(dtype), "long", (8,), 52, 1023, "0x3fe6a09e667f3bcdL", ("0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45"))
        if double
        else (ctype(dtype), "int", (8, 16), 23, 127, "0x3f3504f3", ("0x1.62e4p-1f", "0x1.7f7d1cp-20f"))
    )
    number = lambda value: literal(value, dtype)
    alone, least, tiny = (-40, -760, 2.0**-1000) if double else (-18, -110, 2.0**-100)
%>\
<%include file="/math/exp_parts.mako" args="dtype=dtype, counts=counts"/>\
% for lanes in counts:
<% V, I = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} log1mexp_${V}(const ${V} x)
{
    ${I} k;
    const ${V} p = exp_parts_${V}(x > (${V})(${number(least)}) ? x : (${V})(${number(least)}), (${V})(0), &k);
    const ${V} power = times_power_${V}(p + 1, k);
    const ${V} half_scale = as_${V}((max(k, (${I})(${alone} * 2)) + ${bias - 1}) << ${digits});
    /* 1 - exp(x), near zero with a rounding error that is negligible. */
    const ${V} near = -2 * fma(half_scale, p, half_scale - ${number(0.5)});
    const ${V} far = 1 - power;
    const ${I} is_near = x > (${V})(${number(-0.6931471805599453)});
    const ${I} is_tiny = x > (${V})(${number(-tiny)});
    const ${V} sum = is_tiny ? x * (${V})(${number(-(2.0**60))}) : (is_near ? near : far);
    const ${V} rest = is_near ? (${V})(0) : (1 - far) - power;
    const ${I} bits = (as_${I}(sum) - ${root_half}) & ((${I})(-1) << ${digits});
    const ${V} exponent = convert_${V}((bits >> ${digits}) + (is_tiny & -60));
    const ${V} scaled = as_${V}(as_${I}(sum) - bits);
    const ${V} t = (scaled - 1) + rest * as_${V}(as_${I}((${V})(1)) - bits);
    const ${V} r = t / (2 + t);
    const ${V} square = r * r;
    const ${V} half_square = t * t * ${number(0.5)};
    const ${V} low =
        fma(exponent, (${V})(${log2[1]}), r * fma(square, ${minimax("log", "square", dtype, V)}, half_square))
            - half_square;
    ${V} result = fma(exponent, (${V})(${log2[0]}), low + t);
    /* What is added to 1 is lost. */
    result = x < (${V})(${number(alone)}) ? -power : result;
    const ${V} outside = x == (${V})(0) ? (${V})(-INFINITY) : (${V})(NAN);
    return x < (${V})(0) ? result : outside;
}

% endfor
