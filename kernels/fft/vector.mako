## Loads and stores of the FFT kernels of schedule cpu: elements of `lanes` lines between arrays and vectors, one lane
##     each.
##
## Operands    at[k] is where line k begins. Vectors 2j and 2j + 1 hold the real and the imaginary parts of element j.
## Algorithm   Lanes that are contiguous, planar or interleaved, are moved as vectors; interleaved rows are transposed
##             in registers; all else is moved number by number.
<%page args="dtype, lanes"/>\
<%include file="/common/function_attributes.mako"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type

    DIGITS = "0123456789abcdef"
%>\
<%
    T, V, half = ctype(dtype), vector_type(dtype, lanes), lanes // 2
    rounds = lanes.bit_length() - 1
    reverse = ".s" + DIGITS[:lanes][::-1]
%>\
typedef ${V} fft_${V} __attribute__((aligned(sizeof(${T}))));
#define FFT_AT_${V}(p) (*(__global fft_${V} *)(p))

/* Order of the lanes: 1 planar, 2 and -2 interleaved, upwards and downwards, 0 otherwise. */
static inline int fft_kind_${V}(const long *at, const long im, const int active)
{
    const long step = at[1] - at[0];
    if (active < ${lanes})
        return 0;
    for (int k = 2; k < ${lanes}; ++k)
        if (at[k] - at[k - 1] != step)
            return 0;
    return step == 1 ? 1 : im == 1 && (step == 2 || step == -2) ? step : 0;
}

static inline ${V} fft_get_${V}(__global const ${T} *x, const long *at, const int kind)
{
    return kind == 1 ? FFT_AT_${V}(x + at[0]) : (${V})(${", ".join(f"x[at[{k}]]" for k in range(lanes))});
}

static inline void fft_put_${V}(__global ${T} *y, const long *at, const int kind, const int active, const ${V} v)
{
    ${T} lane[${lanes}];
    if (kind == 1) {
        FFT_AT_${V}(y + at[0]) = v;
        return;
    }
    *(${V} *)lane = v;
    for (int k = 0; k < active; ++k)
        y[at[k]] = lane[k];
}

/* Transpose ${lanes} vectors: shuffling as a pack of cards does, ${rounds} times. */
<%def name="transpose(lanes, V)">
% for turn in range(lanes.bit_length() - 1):
% for k in range(lanes // 2):
% for part in range(2):
<%
    pairs = [f"t{turn}_{k + lanes // 2 * (i % 2)}.s{DIGITS[lanes // 2 * part + i // 2]}" for i in range(lanes)]
%>\
        const ${V} t${turn + 1}_${2 * k + part} = (${V})(${", ".join(pairs)});
% endfor
% endfor
% endfor
</%def>
static inline long fft_load_rows_${V}(__global ${V} *a, __global const ${T} *x, const long *at, long j, const long end,
                                      const ${T} sign)
{
    for (; j + ${half} <= end; j += ${half}) {
        % for k in range(lanes):
        const ${V} t0_${k} = FFT_AT_${V}(x + at[${k}] + 2 * j);
        % endfor
        ${transpose(lanes, V)}
        % for k in range(lanes):
        a[2 * j + ${k}] = t${rounds}_${k}${" * sign" if k % 2 else ""};
        % endfor
    }
    return j;
}

static inline long fft_store_rows_${V}(__global const ${V} *a, __global ${T} *y, const long *at, long j, const long end,
                                       const ${T} sign, const int active)
{
    for (; j + ${half} <= end; j += ${half}) {
        % for k in range(lanes):
        const ${V} t0_${k} = a[2 * j + ${k}]${" * sign" if k % 2 else ""};
        % endfor
        ${transpose(lanes, V)}
        % for k in range(lanes):
        if (${k} < active)
            FFT_AT_${V}(y + at[${k}] + 2 * j) = t${rounds}_${k};
        % endfor
    }
    return j;
}

/* Elements j to end - 1: there are real parts below re_count and imaginary ones below im_count; the rest is zero. */
static NOINLINE void fft_load_${V}(__global ${V} *a, __global const ${T} *x, const long *at, long j,
                                 const long end, const long step, const long im, const ${T} sign, const long re_count,
                                 const long im_count, const int active)
{
    const int kind = fft_kind_${V}(at, im, active);
    const long both = min(end, im_count), real = min(end, re_count);
    if (kind == 0 && step == 2 && im == 1)
        j = fft_load_rows_${V}(a, x, at, j, both, sign);
    for (; j < both; ++j) {
        __global const ${T} *p = x + j * step;
        if (kind == 2 || kind == -2) {
            const long low = min(at[0], at[${lanes - 1}]);
            const ${V} u = FFT_AT_${V}(p + low), v = FFT_AT_${V}(p + low + ${lanes});
            const ${V} re = (${V})(u.even, v.even), i = (${V})(u.odd, v.odd) * sign;
            a[2 * j] = kind == 2 ? re : re${reverse};
            a[2 * j + 1] = kind == 2 ? i : i${reverse};
        } else {
            a[2 * j] = fft_get_${V}(p, at, kind);
            a[2 * j + 1] = fft_get_${V}(p + im, at, kind) * sign;
        }
    }
    for (; j < end; ++j) {
        a[2 * j] = j < real ? fft_get_${V}(x + j * step, at, kind) : (${V})(0);
        a[2 * j + 1] = (${V})(0);
    }
}

static NOINLINE void fft_store_${V}(__global const ${V} *a, __global ${T} *y, const long *at, long j,
                                  const long end, const long step, const long im, const ${T} sign, const long re_count,
                                 const long im_count, const int active)
{
    const int kind = fft_kind_${V}(at, im, active);
    const long both = min(end, im_count), real = min(end, re_count);
    if (kind == 0 && step == 2 && im == 1)
        j = fft_store_rows_${V}(a, y, at, j, both, sign, active);
    for (; j < both; ++j) {
        __global ${T} *p = y + j * step;
        if (kind == 2 || kind == -2) {
            const ${V} r = a[2 * j], i = a[2 * j + 1] * sign;
            const ${V} re = kind == 2 ? r : r${reverse}, w = kind == 2 ? i : i${reverse};
            p += min(at[0], at[${lanes - 1}]);
            % for part in range(2):
<%  pairs = [f"{'w' if k % 2 else 're'}.s{DIGITS[half * part + k // 2]}" for k in range(lanes)] %>\
            FFT_AT_${V}(p + ${part * lanes}) = (${V})(${", ".join(pairs)});
            % endfor
        } else {
            fft_put_${V}(p, at, kind, active, a[2 * j]);
            fft_put_${V}(p + im, at, kind, active, a[2 * j + 1] * sign);
        }
    }
    for (; j < real; ++j)
        fft_put_${V}(y + j * step, at, kind, active, a[2 * j]);
}
