## Fourier transforms, schedule cpu. Stages: load, pre, passes, mid, passes, post, twiddle, store (cpu_main.mako).
##
## Algorithm   Stockham's, in passes of radix 2 to 13: each pass reads one array and writes another. The long ways (real
##             transforms, four-step method, Bluestein) are described in routines/fft/plan.py.
## Operands    a block is `lanes` lines (transforms), one for each lane of the vectors. Vectors 2j and 2j + 1 hold the
##             real and the imaginary parts of element j.
## NDRange     a partition of the blocks.
## Workspace   For each work-item two arrays of size + 1 elements.
## Reference   Stockham 1966; Van Loan 1992.
<%page args="name, dtype, lanes, kept_dims, butterflies, io, geometry"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type
%>
<% T, V = ctype(dtype), vector_type(dtype, lanes) %>
<%include file="/fft/plan.mako" args="name=name, io=io, geometry=geometry"/>
% for radix, statements in butterflies.items():
/* x holds s transforms of length radix * m, y gets radix * s of length m; w: the twiddle factors of the pass. */
static NOINLINE __global const ${T} *${name}_pass_${radix}(
    __global const ${V} *restrict x, __global ${V} *restrict y, __global const ${T} *restrict w, const long m,
    const long s)
{
    for (long p = 0; p < m; ++p) {
        % for t in range(1, radix):
        const ${T} c${t} = w[${2 * t - 2}], s${t} = w[${2 * t - 1}];
        % endfor
        for (long q = 0; q < s; ++q) {
            __global const ${V} *u = x + 2 * (p * s + q);
            __global ${V} *v = y + 2 * (p * ${radix} * s + q);
            % for t in range(radix):
            ${V} r${t} = u[${2 * t} * m * s], i${t} = u[${2 * t} * m * s + 1];
            % endfor
            {
                ${statements}
            }
            v[0] = r0;
            v[1] = i0;
            % for t in range(1, radix):
            v[${2 * t} * s] = r${t} * c${t} - i${t} * s${t};
            v[${2 * t} * s + 1] = r${t} * s${t} + i${t} * c${t};
            % endfor
        }
        w += ${2 * radix - 2};
    }
    return w;
}
% endfor

/* Returns where the result is: in a or in b. */
static NOINLINE __global ${V} *${name}_passes(
    __global ${V} *a, __global ${V} *b, __global const ${T} *w, const ${name}_geometry *g)
{
    long s = 1, m = g->size;
    for (int pass = 0; pass < g->passes; ++pass) {
        const int radix = g->radix[pass / 16] >> 4 * (pass % 16) & 15;
        __global ${V} *y = a;
        m /= radix;
        switch (radix) {
            % for radix in butterflies:
            case ${radix}:
                w = ${name}_pass_${radix}(a, b, w, m, s);
                break;
            % endfor
        }
        s *= radix;
        a = b;
        b = y;
    }
    return a;
}

// a *= table; imaginary parts are multiplied by `before` first and by `after` at last.
static NOINLINE void ${name}_multiply(__global ${V} *a, const long count, __global const ${T} *table, const long step,
                                      const long lane, const long column, const ${T} before, const ${T} after)
{
    for (long j = 0; j < count; ++j) {
        __global const ${T} *p = table + 2 * (j * step + lane * column);
        const ${V} u = lane ? FFT_AT_${V}(p) : (${V})(0);
        const ${V} v = lane ? FFT_AT_${V}(p + ${lanes}) : (${V})(0);
        const ${V} c = lane ? (${V})(u.even, v.even) : (${V})(p[0]);
        const ${V} s = lane ? (${V})(u.odd, v.odd) : (${V})(p[1]);
        const ${V} re = a[2 * j], im = a[2 * j + 1] * before;
        a[2 * j] = re * c - im * s;
        a[2 * j + 1] = (re * s + im * c) * after;
    }
}

/* Element k of transform `column` + lane times w^(k (column + lane)): a factor of the block, and one of the lane. */
static NOINLINE void ${name}_twiddle(__global ${V} *a, const long count, __global const ${T} *block,
                                     __global const ${V} *lane)
{
    for (long k = 0; k < count; ++k) {
        const ${T} bc = block[2 * k], bs = block[2 * k + 1];
        const ${V} lc = lane[2 * k], ls = lane[2 * k + 1];
        const ${V} c = bc * lc - bs * ls, s = bc * ls + bs * lc;
        const ${V} re = a[2 * k], im = a[2 * k + 1];
        a[2 * k] = re * c - im * s;
        a[2 * k + 1] = re * s + im * c;
    }
}

/* Half a spectrum of 2h real numbers -> the transform of h complex ones: even numbers real, odd ones imaginary. */
static NOINLINE void ${name}_real_pre(__global const ${V} *x, __global ${V} *z, __global const ${T} *w,
                                      const long h)
{
    for (long k = 0; k < h; ++k) {
        const ${T} c = w[2 * k], s = w[2 * k + 1];  // the imaginary parts of the ends are ignored
        const ${V} ar = x[2 * k], ai = k ? x[2 * k + 1] : (${V})(0);
        const ${V} br = x[2 * (h - k)], bi = k ? x[2 * (h - k) + 1] : (${V})(0);
        const ${V} dr = ar - br, di = ai + bi;
        z[2 * k] = ar + br - (c * di + s * dr);
        z[2 * k + 1] = ai - bi + (c * dr - s * di);
    }
}

/* The transform of h complex numbers -> half a spectrum of 2h real ones. */
static NOINLINE void ${name}_real_post(__global const ${V} *z, __global ${V} *x, __global const ${T} *w,
                                       const long h)
{
    for (long k = 0; k <= h; ++k) {
        const ${T} c = w[2 * k] / 2, s = w[2 * k + 1] / 2;
        const long i = k < h ? k : 0, j = k ? h - k : 0;
        const ${V} ar = z[2 * i], ai = z[2 * i + 1], br = z[2 * j], bi = z[2 * j + 1];
        const ${V} dr = ar - br, di = ai + bi;
        x[2 * k] = (ar + br) / 2 + (c * di + s * dr);
        x[2 * k + 1] = (ai - bi) / 2 + (s * di - c * dr);
    }
}

<%include file="/fft/cpu_main.mako" args="name=name, dtype=dtype, lanes=lanes, kept_dims=kept_dims"/>
