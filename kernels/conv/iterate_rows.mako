## Iterator over panels of B for implicit_gemm.mako, for x whose rows of output pixels are contiguous.
##
## Algorithm   a vector of columns is loaded for all channels of a filter tap; which lanes are inside of x depends on
##             the tap only. A vector of columns that covers several rows of x is made of one run for each row.
<%page args="name, ctype, lanes, nr, vec, function"/>
// Lanes `from` <= l < `to` of one vector of columns, which are in one row of x that starts at (d0, h0, w0). Lanes
// before
// `from` keep their values, those from `to` on become zero.
static void ${name}_run(const conv_plan *p, __global const ${ctype} *x, long d0, long h0, long w0, long from, long to,
                        long k0, long depth, __global ${ctype} *panel)
{
    const long shape[3] = {p->taps[0], p->taps[1], p->taps[2]}, taps = shape[0] * shape[1] * shape[2];
    const long stride = p->stride[2], step = stride * p->x.w;
    conv_index t = conv_unravel(k0, shape);
    for (long j = 0; j < min(taps, depth); j++) {
        const long d = d0 + t.d * p->dilation[0], h = h0 + t.h * p->dilation[1], w = w0 + t.w * p->dilation[2];
        const long first = max(from, conv_first_at_least(w, stride, 0));
        const long last = min(to, conv_first_at_least(w, stride, p->image[2]));
        const int is_inside = d >= 0 && d < p->image[0] && h >= 0 && h < p->image[1] && first < last;
        const int is_full = is_inside && first == 0 && last == ${lanes};
        const ${vec}_mask ok = ${vec}_between(first, last), is_new = ${vec}_between(from, ${lanes});
        long at = t.outer * p->x.c + d * p->x.d + h * p->x.h + w * p->x.w;
        for (long k = j; k < depth; k += taps) {
            __global ${name}_vec *const o = (__global ${name}_vec *)(panel + k * ${nr});
            ${ctype}${lanes} v = 0;
            if (is_full)
                v = ${vec}_load(x, at, step, ok, p->x_low, p->x_high);
            else if (is_inside)
                v = ok ? ${vec}_load(x, at, step, ok, p->x_low, p->x_high) : v;
            *o = from ? (is_new ? v : *o) : v;
            at += p->x.c;
        }
        conv_advance(&t, 1, shape);
    }
}

// Pack `count` columns from n0 on for k in [k0, k0 + depth).
${function} void ${name}_pack_b(const conv_plan *p, __global const ${ctype} *x, long n0, long count, long k0,
                                long depth, __global ${ctype} *to)
{
    const long out[3] = {p->out[0], p->out[1], p->out[2]};
    for (long j = 0; j < ${nr}; j += ${lanes}) {
        const long width = min(count - j, ${lanes}L);
        conv_index q = conv_unravel(n0 + j, out);
        for (long from = 0, run; from < max(width, 1L); from += run) {
            run = clamp(out[2] - q.w, 1L, max(width - from, 1L));
            ${name}_run(p, x + q.outer * p->x.n, q.d * p->stride[0] - p->pad[0], q.h * p->stride[1] - p->pad[1],
                        (q.w - from) * p->stride[2] - p->pad[2], from, min(from + run, width), k0, depth, to);
            conv_advance(&q, run, out);
        }
        to += ${lanes};
    }
}
