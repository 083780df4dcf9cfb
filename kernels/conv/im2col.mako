## im2col: x as a matrix (k, n), for im2col_gemm.mako and grad_weights.mako.
##
## Algorithm   Row k, a channel and a filter tap, has what it meets at each output pixel. Rows of output pixels are
##             copied in vectors; a vector that reaches beyond its row is overwritten by the next one.
## Operands    x with any strides; matrix: rows matrix_row apart, with room for a vector more.
<%page args="name, ctype, lanes, vec, function"/>
<% vector = f"{ctype}{lanes}" %>
// One vector of columns, for `count` channels of one tap; lanes that are not `ok` are zero.
static void ${name}_channels(const conv_plan *p, __global const ${ctype} *x, long at, long step, ${vec}_mask ok,
                             int is_full, long count, __global ${ctype} *to, long to_step)
{
    const long last = at + (count - 1) * p->x.c, low = min(at, last), high = max(at, last);
    if (step == 1 && low >= p->x_low && high + ${lanes} <= p->x_high) {
        if (is_full)
            for (long c = 0; c < count; c++) {
                *(__global ${vec} *)to = *(__global const ${vec} *)(x + at);
                at += p->x.c;
                to += to_step;
            }
        else
            for (long c = 0; c < count; c++) {
                *(__global ${vec} *)to = ok ? *(__global const ${vec} *)(x + at) : (${vector})(0);
                at += p->x.c;
                to += to_step;
            }
        return;
    }
    if (step == 2 && low >= p->x_low && high + ${2 * lanes} <= p->x_high) {
        for (long c = 0; c < count; c++) {
            const ${vector} a = *(__global const ${vec} *)(x + at);
            const ${vector} b = *(__global const ${vec} *)(x + at + ${lanes});
            const ${vector} v = (${vector})(a.even, b.even);
            *(__global ${vec} *)to = ok ? v : (${vector})(0);
            at += p->x.c;
            to += to_step;
        }
        return;
    }
    for (long c = 0; c < count; c++) {
        const ${vector} v = ${vec}_load(x, at, step, ok, p->x_low, p->x_high);
        *(__global ${vec} *)to = ok ? v : (${vector})(0);
        at += p->x.c;
        to += to_step;
    }
}

// Rows k0 <= k < k0 + depth of `count` columns from n0 on.
${function} void ${name}_im2col(const conv_plan *p, __global const ${ctype} *x, long n0, long count, long k0,
                                long depth, __global ${ctype} *matrix, long matrix_row)
{
    const long out[3] = {p->out[0], p->out[1], p->out[2]}, taps[3] = {p->taps[0], p->taps[1], p->taps[2]};
    const long tap_count = taps[0] * taps[1] * taps[2], stride = p->stride[2], step = stride * p->x.w;
    conv_index q = conv_unravel(n0, out);
    for (long j = 0, run; j < count; j += run) {
        run = min(out[2] - q.w, count - j);
        conv_index t = conv_unravel(0, taps);
        for (long tap = 0; tap < tap_count; tap++) {
            const long c_begin = (k0 - tap + tap_count - 1) / tap_count;
            const long c_end = (k0 + depth - tap + tap_count - 1) / tap_count;
            const long d = q.d * p->stride[0] + t.d * p->dilation[0] - p->pad[0];
            const long h = q.h * p->stride[1] + t.h * p->dilation[1] - p->pad[1];
            const long w = q.w * stride + t.w * p->dilation[2] - p->pad[2];
            const int is_inside = d >= 0 && d < p->image[0] && h >= 0 && h < p->image[1];
            const long first = conv_first_at_least(w, stride, 0);
            const long last = is_inside ? conv_first_at_least(w, stride, p->image[2]) : 0;
            const long at = q.outer * p->x.n + c_begin * p->x.c + d * p->x.d + h * p->x.h + w * p->x.w;
            __global ${ctype} *const rows = matrix + (c_begin * tap_count + tap - k0) * matrix_row + j;
            for (long l = 0; l < run; l += ${lanes}) {
                const ${vec}_mask ok = ${vec}_between(first - l, last - l);
                const int is_full = first <= l && last >= l + ${lanes};
                ${name}_channels(p, x, at + l * step, step, ok, is_full, c_end - c_begin, rows + l,
                                 tap_count * matrix_row);
            }
            conv_advance(&t, 1, taps);
        }
        conv_advance(&q, run, out);
    }
}
