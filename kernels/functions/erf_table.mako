## erf of float32 by sixteen intervals, each with coefficients of its own: a register of AVX-512 holds those of one power.
<%page args=""/>\
<%!
from pytensor_cl.dtypes import literal
from pytensor_cl.routines.erf_table import BOUND, FROM_ONE, PER_UNIT, erf_table
%>\
<%def name="of_interval(column)" buffered="True" filter="trim">
__builtin_ia32_permvarsf512((float16)(${", ".join(literal(c, "float32") for c in column)}), interval)
</%def>\
<% middles, *lower, highest = erf_table() %>\
<% bound, scale, first, magic = (literal(c, "float32") for c in (BOUND, PER_UNIT, (FROM_ONE - 0.5) / PER_UNIT, 1.5 * 2.0**23)) %>\
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_permvarsf512)
#define ERF_BY_TABLE
static inline float16 erf_float16(const float16 x)
{
    const float16 size = fabs(x), y = select(size, (float16)(${bound}), size > (float16)(${bound}));
    /* Its low bits are the number of the interval. */
    const int16 interval = as_int16(y * ${scale} + ${magic});
    const float16 t = y - ${of_interval(middles)};
    float16 p = ${of_interval(highest)};
    % for c in reversed(lower):
    p = p * t + ${of_interval(c)};
    % endfor
    return copysign(p + select((float16)(1), y, y < (float16)(${first})), x);
}
#endif
#endif
