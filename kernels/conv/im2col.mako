## How x becomes a matrix for kernels/conv/im2col_gemm.mako: row k, a channel and a tap, has what it meets at each position. A vector that reaches
## beyond its row of the image is overwritten by the next one, so vectors are whole.
<%page args="name, ctype, lanes, vec"/>
// Column j of one vector, for the channels c0 <= c < c1 of one tap; where it is not `ok` there are zeros.
static void ${name}_channels(const conv_plan *p, __global const ${ctype} *x, long at, long step, ${vec}_mask ok, int whole, long count,
                             __global ${ctype} *to, long apart)
{
    const long last = at + (count - 1) * p->x[2], low = min(at, last), high = max(at, last);
    if (step == 1 && low >= p->x_low && high + ${lanes} <= p->x_high) {
        if (whole)
            for (long c = 0; c < count; c++, at += p->x[2], to += apart)
                *(__global ${vec} *)to = *(__global const ${vec} *)(x + at);
        else
            for (long c = 0; c < count; c++, at += p->x[2], to += apart)
                *(__global ${vec} *)to = ok ? *(__global const ${vec} *)(x + at) : (${ctype}${lanes})(0);
        return;
    }
    if (step == 2 && low >= p->x_low && high + ${2 * lanes} <= p->x_high) {
        for (long c = 0; c < count; c++, at += p->x[2], to += apart) {
            const ${ctype}${lanes} a = *(__global const ${vec} *)(x + at), b = *(__global const ${vec} *)(x + at + ${lanes});
            const ${ctype}${lanes} v = (${ctype}${lanes})(a.even, b.even);
            *(__global ${vec} *)to = ok ? v : (${ctype}${lanes})(0);
        }
        return;
    }
    for (long c = 0; c < count; c++, at += p->x[2], to += apart) {
        const ${ctype}${lanes} v = ${vec}_load(x, at, step, ok, p->x_low, p->x_high);
        *(__global ${vec} *)to = ok ? v : (${ctype}${lanes})(0);
    }
}

// The rows k0 <= k < k0 + depth of columns j0.., `apart` from one another.
static void ${name}_unfold(const conv_plan *p, __global const ${ctype} *x, long j0, long count, long k0, long depth,
                           __global ${ctype} *to, long apart)
{
    const long out[3] = {p->out[0], p->out[1], p->out[2]}, taps[3] = {p->taps[0], p->taps[1], p->taps[2]};
    const long number = taps[0] * taps[1] * taps[2], stride = p->stride[2], step = stride * p->x[5];
    conv_index q = conv_split(j0, out);
    for (long j = 0, run; j < count; j += run, conv_advance(&q, run, out)) {
        run = min(out[2] - q.w, count - j);
        conv_index t = conv_split(0, taps);
        for (long tap = 0; tap < number; tap++, conv_advance(&t, 1, taps)) {
            const long c0 = (k0 - tap + number - 1) / number, c1 = (k0 + depth - tap + number - 1) / number;
            const long d = q.d * p->stride[0] + t.d * p->dilation[0] - p->pad[0], h = q.h * p->stride[1] + t.h * p->dilation[1] - p->pad[1];
            const long w = q.w * stride + t.w * p->dilation[2] - p->pad[2];
            const int inside = d >= 0 && d < p->image[0] && h >= 0 && h < p->image[1];
            const long first = conv_reach(w, stride, 0), last = inside ? conv_reach(w, stride, p->image[2]) : 0;
            const long at = q.outer * p->x[0] + c0 * p->x[2] + d * p->x[3] + h * p->x[4] + w * p->x[5];
            __global ${ctype} *const rows = to + (c0 * number + tap - k0) * apart + j;
            for (long l = 0; l < run; l += ${lanes}) {
                const ${vec}_mask ok = ${vec}_between(first - l, last - l);
                ${name}_channels(p, x, at + l * step, step, ok, first <= l && last >= l + ${lanes}, c1 - c0, rows + l, number * apart);
            }
        }
    }
}
