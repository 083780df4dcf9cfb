## Fourier transforms, schedule simt. Stages: load, pre, passes, mid, passes, post, twiddle, store (simt_main.mako).
##
## Algorithm   Stockham's, as in cpu.mako.
## Operands    a block is `width` lines (transforms) in local memory, or in global memory where they do not fit. Element
##             j of line k is at j * width + k; imaginary parts follow `plane` numbers later.
## NDRange     a work-group takes blocks; its work-items loop over the elements of all lines.
## Workspace   Two arrays of size + 1 elements for each line.
## Invariants  work-items of a group take the same path to each barrier.
<%page args="name, dtype, lanes, kept_dims, butterflies, space, group, widest, io, geometry"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T, S, fence = ctype(dtype), f"__{space}", f"barrier(CLK_{space.upper()}_MEM_FENCE)" %>
<%include file="/fft/plan.mako" args="name=name, io=io, geometry=geometry"/>
#define ${name}_FOR(i, count) for (int i = get_local_id(0), end_##i = (count); i < end_##i; i += ${group})

% for radix, statements in butterflies.items():
/* x holds s transforms of length radix * m, y gets radix * s of length m. */
static inline void ${name}_pass_${radix}(${S} const ${T} *x, ${S} ${T} *y, const int plane,
                                         __global const ${T} *factors, const int m, const int s)
{
    ${name}_FOR(i, m * s) {
        const int p = i / s;
        ${S} const ${T} *u = x + i;
        ${S} ${T} *v = y + p * ${radix - 1} * s + i;
        __global const ${T} *w = factors + p * ${2 * radix - 2};
        % for t in range(radix):
        ${T} r${t} = u[${t} * m * s], i${t} = u[${t} * m * s + plane];
        % endfor
        {
            ${statements}
        }
        v[0] = r0;
        v[plane] = i0;
        % for t in range(1, radix):
        v[${t} * s] = r${t} * w[${2 * t - 2}] - i${t} * w[${2 * t - 1}];
        v[${t} * s + plane] = r${t} * w[${2 * t - 1}] + i${t} * w[${2 * t - 2}];
        % endfor
    }
}
% endfor

/* Returns where the result is: in a or in b. */
static inline ${S} ${T} *${name}_passes(${S} ${T} *a, ${S} ${T} *b, const int plane, const int width,
                                        __global const ${T} *w, const ${name}_geometry *g)
{
    int s = 1, m = g->size;
    for (int pass = 0; pass < g->passes; ++pass) {
        const int radix = g->radix[pass / 16] >> 4 * (pass % 16) & 15;
        ${S} ${T} *y = a;
        m /= radix;
        switch (radix) {
            % for radix in butterflies:
            case ${radix}:
                ${name}_pass_${radix}(a, b, plane, w, m, s * width);
                break;
            % endfor
        }
        ${fence};
        w += 2 * m * (radix - 1);
        s *= radix;
        a = b;
        b = y;
    }
    return a;
}

// a *= table; imaginary parts are multiplied by `before` first and by `after` at last.
static inline void ${name}_multiply(${S} ${T} *a, const int plane, const int width, const int count,
                                    __global const ${T} *table, const int step, const int lane, const int column,
                                    const ${T} before, const ${T} after)
{
    ${name}_FOR(i, count * width) {
        __global const ${T} *p = table + 2 * (i / width * step + lane * (column + i % width));
        const ${T} re = a[i], im = a[i + plane] * before;
        a[i] = re * p[0] - im * p[1];
        a[i + plane] = (re * p[1] + im * p[0]) * after;
    }
}

/* Element k of a line times w^(k line): a factor of the block of ${lanes} lines, and one of the line in it. */
static inline void ${name}_twiddle(${S} ${T} *a, const int plane, const int width, const int count, const int column,
                                   __global const ${T} *blocks, __global const ${T} *lines)
{
    ${name}_FOR(i, count * width) {
        const int k = i / width, line = column + i % width;
        __global const ${T} *b = blocks + 2 * (line / ${lanes} * count + k);
        __global const ${T} *l = lines + 2 * k * ${lanes} + line % ${lanes};
        const ${T} c = b[0] * l[0] - b[1] * l[${lanes}], s = b[0] * l[${lanes}] + b[1] * l[0];
        const ${T} re = a[i], im = a[i + plane];
        a[i] = re * c - im * s;
        a[i + plane] = re * s + im * c;
    }
}

/* Half a spectrum of 2h real numbers -> the transform of h complex ones: even numbers real, odd ones imaginary. */
static inline void ${name}_real_pre(${S} const ${T} *x, ${S} ${T} *z, const int plane, const int width,
                                    __global const ${T} *w, const int h)
{
    ${name}_FOR(i, h * width) {
        const int k = i / width, mirror = i + (h - 2 * k) * width;  // the imaginary parts of the ends are ignored
        const ${T} c = w[2 * k], s = w[2 * k + 1];
        const ${T} ai = k ? x[i + plane] : 0, bi = k ? x[mirror + plane] : 0;
        const ${T} dr = x[i] - x[mirror], di = ai + bi;
        z[i] = x[i] + x[mirror] - (c * di + s * dr);
        z[i + plane] = ai - bi + (c * dr - s * di);
    }
}

/* The transform of h complex numbers -> half a spectrum of 2h real ones. */
static inline void ${name}_real_post(${S} const ${T} *z, ${S} ${T} *x, const int plane, const int width,
                                     __global const ${T} *w, const int h)
{
    ${name}_FOR(i, (h + 1) * width) {
        const int k = i / width, lane = i % width;
        const int p = k < h ? i : lane, q = (k ? h - k : 0) * width + lane;
        const ${T} c = w[2 * k] / 2, s = w[2 * k + 1] / 2;
        const ${T} dr = z[p] - z[q], di = z[p + plane] + z[q + plane];
        x[i] = (z[p] + z[q]) / 2 + (c * di + s * dr);
        x[i + plane] = (z[p + plane] - z[q + plane]) / 2 + (s * di - c * dr);
    }
}

<%include file="/fft/simt_main.mako" args="name=name, dtype=dtype, kept_dims=kept_dims, space=space, group=group,
                                             widest=widest"/>
