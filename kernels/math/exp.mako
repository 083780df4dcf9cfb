## Algorithm   exp of vectors, in half the operations of PoCL 3.0's own. The polynomials have the least largest error
##             (Remez).
<%page args="dtype"/>\
<%!
    from pytensor_cl.codegen.dtypes import literal, vector_type
    from pytensor_cl.codegen.coefficients.series import horner

    # Lanes; integer type; bits of the fraction; bias; limits beyond which the result is 0 or infinite; log(2) in two
    # parts; the series.
    FORMS = {
        "float32": (
            (8, 16),
            "uint32",
            23,
            127,
            -104,
            89,
            "0x1.63p-1f",
            "-0x1.bd0106p-13f",
            (
                1,
                1,
                0.499999934438741,
                0.16666520573578666,
                0.04166838873132799,
                0.008368723935027498,
                0.001381458394294301,
            ),
        ),
        "float64": (
            (8,),
            "uint64",
            52,
            1023,
            -746,
            710,
            "0x1.62e42fefap-1",
            "0x1.cf79abc9e3b3ap-40",
            (
                1,
                1,
                0.5000000000000011,
                0.16666666666666413,
                0.041666666666530155,
                0.008333333333494463,
                0.001388888894363038,
                0.00019841269506575744,
                2.480149309863533e-05,
                2.7557586375678646e-06,
                2.763024847316803e-07,
                2.5000061183251388e-08,
            ),
        ),
    }
%>\
<% sizes, integer, bits, bias, least, most, high, low, series = FORMS[dtype] %>\
% for lanes in sizes:
<%
    V, U, scale = (
        vector_type(dtype, lanes),
        vector_type(integer, lanes),
        f"__builtin_ia32_scalef{'ps' if dtype == 'float32' else 'pd'}512_mask",
    )
%>\
#ifdef __FAST_RELAXED_MATH__
#define exp_${V} exp
#else
static inline ${V} exp_${V}(const ${V} x)
{
    /* NaN passes both comparisons. */
    const ${V} above = x < (${V})(${least}) ? (${V})(${least}) : x;
    const ${V} y = above > (${V})(${most}) ? (${V})(${most}) : above;
    /* A number to which this is added loses its fraction; the rest, plus twice the bias,
        is in the low bits of the sum. */
    const ${V} magic = (${V})(${literal(1.5 * 2**bits + 2 * bias, dtype)});
    const ${V} sum = y * (${V})(${literal(1.4426950408889634, dtype)}) + magic;
    const ${V} k = sum - magic;
    const ${V} t = (y - k * (${V})(${high})) - k * (${V})(${low});
    const ${V} p = ${horner(series, "t", dtype, V)};
% if bits * lanes > 300:  # a register of AVX-512
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(${scale})
#define scaled_${V}
    return ${scale}(p, k, p, -1, 4);
#endif
#endif
% endif
#ifndef scaled_${V}
    /* The power of two may be out of range: it comes in two factors. */
    const ${U} exponent = as_${U}(sum);
    const ${U} first = exponent >> 1;
    const ${U} second = exponent - first;
    return p * as_${V}(first << ${bits}) * as_${V}(second << ${bits});
#endif
}
#endif

% endfor
