## Algorithm   o0 = i0 / i1 with i2 = 1 / i1, where i1 is the same for many i0: a product, corrected by its remainder.
## Range       Where a divisor is near overflow or underflow, all lanes are divided. A quotient that is so, and zero, is
##             the product, with two roundings; others are rounded correctly, but in the rarest cases.
## Reference   P. W. Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, IBM J. Res.
##             Dev. 34, 1990.
<%page args="dtype, lanes"/>\
<%!
from pytensor_cl.codegen.dtypes import literal, vector_type

# Bounds of divisors and of quotients, between which the last bit of a remainder is a normal number.
BOUNDS = {"float32": (2.0**30, 2.0**70), "float64": (2.0**300, 2.0**600)}
MASKS = {"float32": ("int32", "0x7FFFFFFF"), "float64": ("int64", "0x7FFFFFFFFFFFFFFFL")}
%>\
<%
kind, magnitude = MASKS[dtype]
V, M = vector_type(dtype, lanes), vector_type(kind, lanes)
(low, high), (least, most) = (tuple(literal(b, dtype) for b in (1 / bound, bound)) for bound in BOUNDS[dtype])
halves = [1 << k for k in reversed(range(lanes.bit_length() - 1))]
%>\
const ${V} size = as_${V}(as_${M}(i1) & (${M})(${magnitude}));
const ${M} is_far${lanes} = (size < (${V})(${low})) | (size > (${V})(${high}));
% for n in halves:
const ${vector_type(kind, n)} is_far${n} = is_far${2 * n}.lo | is_far${2 * n}.hi;
% endfor
if (is_far1)
    o0 = i0 / i1;
else {
    const ${V} product = i0 * i2;
#ifdef __FMA__
    /* One rounding each: the compiler joins what is one expression. PoCL's fma() is a call. */
    const ${V} remainder = i0 - product * i1;
    const ${V} quotient = remainder * i2 + product;
#else
    const ${V} quotient = fma(fma(-product, i1, i0), i2, product);
#endif
    const ${V} result = as_${V}(as_${M}(product) & (${M})(${magnitude}));
    o0 = (result > (${V})(${least})) & (result < (${V})(${most})) ? quotient : product;
}
