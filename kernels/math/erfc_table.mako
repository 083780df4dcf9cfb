## Algorithm   erf and erfc of float32 by 32 intervals, each with coefficients of its own: two registers of AVX-512 hold
##             those of one power. Those of erfc become shorter where it falls faster.
<%page args=""/>\
<%!
from pytensor_cl.codegen.dtypes import literal
from pytensor_cl.codegen.coefficients.register_tables import ERF_LAST, ERFC_LAST, ERFC_QUADRATIC, chosen
from pytensor_cl.codegen.coefficients.register_tables import columns, linear
%>\
<%
number = lambda value: literal(value, "float32")
entry = lambda name, column: chosen(name, column, "interval", "float32")
magic = number(1.5 * 2.0**23)
%>\
<%def name="series(name, least)">
    float16 p = ${entry(name, columns(name, "float32") - 1)};
    % for column in range(columns(name, "float32") - 2, least, -1):
    p = p * t + ${entry(name, column)};
    % endfor
</%def>\
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vpermi2varps512)
#define ERF_BY_TABLE
static inline float16 erf_float16(const float16 x)
{
    const float16 size = fabs(x);
    const float16 y = size > (float16)(${number(ERF_LAST)}) ? (float16)(${number(ERF_LAST)}) : size;
    /* Its low bits are the number of the interval. */
    const float16 sum = y * ${number(linear(ERF_LAST))} + ${magic};
    const int16 interval = as_int16(sum);
    const float16 t = y - ${entry("erf", 0)};
    ${series("erf", 1)}
    const float16 first = ${entry("erf", 1)};
    return copysign(p * t + (sum == (float16)(${magic}) ? y : first), x);
}

/* For x up to the end of the last interval, and not less than its negative. */
#define is_near_erfc(x) (!(fabs(x) > (float16)(${number(ERFC_LAST)})))
static inline float16 erfc_near_float16(const float16 x)
{
    const float16 size = fabs(x);
    const int16 interval =
        as_int16(size * (size * ${number(ERFC_QUADRATIC)} + ${number(linear(ERFC_LAST, ERFC_QUADRATIC))}) + ${magic});
    const float16 t = size - ${entry("erfc", 0)};
    ${series("erfc", 0)}
    return x < (float16)(0) ? 2 - p : p;
}
#endif
#endif
