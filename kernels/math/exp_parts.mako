## Algorithm   exp in parts: exp(x + low) = 2**k (1 + p) with p from -0.3 to 0.42, and how to put a power of two back,
##             subnormals included.
<%page args="dtype, counts"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, literal
from pytensor_cl.codegen.coefficients.minimax import minimax
%>\
<%
double = dtype == "float64"
T, M, digits, bias = (ctype(dtype), "long", 52, 1023) if double else (ctype(dtype), "int", 23, 127)
number = lambda value: literal(value, dtype)
log2 = ("0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45") if double else ("0x1.62e4p-1f", "0x1.7f7d1cp-20f")
%>\
#ifndef EXP_PARTS_${T}
#define EXP_PARTS_${T}
% for lanes in counts:
<% V, mask = f"{T}{lanes}", f"{M}{lanes}" %>\
static inline ${V} exp_parts_${V}(const ${V} x, const ${V} low, ${mask} *k)
{
    /* So large a sum is rounded to an integer, which its last bits are. */
    const ${V} magic = (${V})(0x1.8p${digits}${"" if double else "f"});
    const ${V} shifted = fma(x, (${V})(${number(1.4426950408889634)}), magic);
    const ${V} power = shifted - magic;
    *k = as_${mask}(shifted) - as_${mask}(magic);
    const ${V} t = fma(power, (${V})(-${log2[0]}), x);
    const ${V} r = t + fma(power, (${V})(-${log2[1]}), low);
    return fma(r * r, ${minimax("exp", "r", dtype, V)}, r);
}

static inline ${V} times_power_${V}(const ${V} x, const ${mask} k)
{
    const ${mask} half_k = k >> 1;
    return x * as_${V}((half_k + ${bias}) << ${digits}) * as_${V}((k - half_k + ${bias}) << ${digits});
}
% endfor
#endif
