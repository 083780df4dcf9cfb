## The gather of kernels/conv/implicit_gemm.mako where a row of output positions is contiguous in x.
<%page args="name, ctype, lanes, cols, vec"/>
// Lanes `from` <= l < `to` of one vector of columns, which lie in one row of x that starts at (d0, h0, w0); those
// before `from` keep their values, those from `to` on become zero. What is inside of x depends on the tap only.
static void ${name}_run(const conv_plan *p, __global const ${ctype} *x, long d0, long h0, long w0, long from, long to,
                        long k0, long depth, __global ${ctype} *out)
{
    const long shape[3] = {p->taps[0], p->taps[1], p->taps[2]}, taps = shape[0] * shape[1] * shape[2];
    const long stride = p->stride[2], step = stride * p->x[5];
    conv_index t = conv_split(k0, shape);
    for (long j = 0; j < min(taps, depth); j++, conv_advance(&t, 1, shape)) {
        const long d = d0 + t.d * p->dilation[0], h = h0 + t.h * p->dilation[1], w = w0 + t.w * p->dilation[2];
        const long first = max(from, conv_reach(w, stride, 0)), last = min(to, conv_reach(w, stride, p->image[2]));
        const int inside = d >= 0 && d < p->image[0] && h >= 0 && h < p->image[1] && first < last;
        const int whole = inside && first == 0 && last == ${lanes};
        const ${vec}_mask ok = ${vec}_between(first, last), new = ${vec}_between(from, ${lanes});
        long at = t.outer * p->x[2] + d * p->x[3] + h * p->x[4] + w * p->x[5];
        for (long k = j; k < depth; k += taps, at += p->x[2]) {
            __global ${name}_vec *const o = (__global ${name}_vec *)(out + k * ${cols});
            ${ctype}${lanes} v = 0;
            if (whole)
                v = ${vec}_load(x, at, step, ok, p->x_low, p->x_high);
            else if (inside)
                v = ok ? ${vec}_load(x, at, step, ok, p->x_low, p->x_high) : v;
            *o = from ? (new ? v : *o) : v;
        }
    }
}

// Pack columns j0.. for k in [k0, k0 + depth).
static void ${name}_gather(const conv_plan *p, __global const ${ctype} *x, long j0, long count, long k0, long depth,
                           __global ${ctype} *to)
{
    const long shape[3] = {p->out[0], p->out[1], p->out[2]};
    for (long j = 0; j < ${cols}; j += ${lanes}, to += ${lanes}) {
        const long width = min(count - j, ${lanes}L);
        conv_index q = conv_split(j0 + j, shape);
        for (long from = 0, run; from < max(width, 1L); from += run, conv_advance(&q, run, shape)) {
            run = clamp(shape[2] - q.w, 1L, max(width - from, 1L));
            ${name}_run(p, x + q.outer * p->x[0], q.d * p->stride[0] - p->pad[0], q.h * p->stride[1] - p->pad[1],
                        (q.w - from) * p->stride[2] - p->pad[2], from, min(from + run, width), k0, depth, to);
        }
    }
}
