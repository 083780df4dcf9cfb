## Algorithm   // and % of vectors of integers as Python has them, zero where the divisor is zero. Processors have
##             vector division for floats, not for integers. A quotient of floats is not rounded to an integer that it
##             does not reach while |x| + |y| has fewer bits than a fraction.
<%page args="dtype"/>\
<%include file="/math/lane_vote.mako"/>\
<%!
import numpy as np

from pytensor_cl.codegen.dtypes import ctype, literal, vector_type
%>\
<%
    size, is_signed = np.dtype(dtype).itemsize, np.dtype(dtype).kind == "i"
    T, float_dtype, by_size, is_wide = ctype(dtype), "float32" if size < 4 else "float64", f"int{8 * size}", size == 8
    magic = literal(
        1.5 * 2.0 ** (23 if size < 4 else 52), float_dtype
    )  # in the low bits of a sum with it are those of an integer
%>\
## A result that is computed by lanes, if a condition holds.
<%def name="by_lanes(name, V, lanes)">
        ${T} lane[${lanes}] __attribute__((aligned(sizeof(${V})))),
            divisor[${lanes}] __attribute__((aligned(sizeof(${V}))));
        *(${V} *)lane = x;
        *(${V} *)divisor = y;
        #pragma clang loop unroll(disable) vectorize(disable)
        for (int k = 0; k < ${lanes}; ++k)
            lane[k] = ${name}_${T}(lane[k], divisor[k]);
        result = *(${V} *)lane;
</%def>\
% for name, result in (("floor_divide", "x / y"), ("modulo", "x % y")) if size >= 4 else ():
static inline ${T} ${name}_${T}(const ${T} x, const ${T} y)
{
    if (y == 0)
        return 0;
    % if is_signed:
    if (y == -1)
        return ${"0" if name == "modulo" else f"({T})-(u{T})x"};
    // C rounded up, but Python rounds down
    const ${T} rest = x % y;
    const ${T} is_off = rest != 0 && (rest ^ y) < 0;
    return ${"is_off ? rest + y : rest" if name == "modulo" else "x / y - is_off"};
    % else:
    return ${result};
    % endif
}

% endfor
% for lanes in (2, 4, 8, 16):
<% V, D, U = (vector_type(t, lanes) for t in (dtype, float_dtype, f"u{by_size}")) %>\
% if is_wide:
#define floats_of_${V}(x) (as_${D}(as_${U}(x) + as_${U}((${D})(${magic}))) - (${D})(${magic}))
#define from_floats_${V}(x) as_${V}(as_${U}((x) + (${D})(${magic})) - as_${U}((${D})(${magic})))
% else:
#define floats_of_${V}(x) convert_${D}(x)
#define from_floats_${V}(x) convert_${V}(x)
% endif
% for name in ("floor_divide", "modulo"):
static inline ${V} ${name}_${V}(const ${V} x, const ${V} y)
{
% if size >= 4:
#ifndef cl_khr_fp64
    ${V} result;
    ${by_lanes(name, V, lanes)}
#else
% endif
    const ${D} a = floats_of_${V}(x);
    const ${D} b = floats_of_${V}(y);
    ${D} quotient = a / b;
#ifdef __FAST_RELAXED_MATH__
    quotient = floor(quotient);
    const ${D} rest = (a - quotient * b) * select((${D})(1), (${D})(-1), b < (${D})(0));
    quotient += select((${D})(0), (${D})(1), rest >= fabs(b)) - select((${D})(0), (${D})(1), rest < (${D})(0));
#else
    /* floor(), which PoCL 3.0 computes by conversions: so large a sum is rounded to an integer. */
    const ${D} magic = (${D})(${magic});
    const ${D} rounded = (quotient + magic) - magic;
    quotient = select(rounded, rounded - 1, rounded > quotient);
#endif
    ${V} result =
        select(from_floats_${V}(${"quotient" if name == "floor_divide" else "a - quotient * b"}), (${V})(0),
            y == (${V})(0));
    % if is_signed and not is_wide and name == "floor_divide":
    result = select(result, as_${V}(-as_${U}(x)), y == (${V})(-1));
    % endif
    % if is_wide:
    <% offset = f"({U})(0x8000000000000)" if is_signed else f"({U})(0)" %>
    if (!every_lane(((as_${U}(x) + ${offset}) | (as_${U}(y) + ${offset})) >> ${52 if is_signed else 51} == (${U})(0))) {
        ${by_lanes(name, V, lanes)}
    }
    % endif
% if size >= 4:
#endif
% endif
    return result;
}

% endfor
% endfor
