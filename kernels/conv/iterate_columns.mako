## Iterator over panels of B for implicit_gemm.mako, for x whose rows of filter taps are contiguous: gradients of
## weights, whose taps are the output pixels of dy.
##
## Algorithm   Four columns at a time; runs along k of one row of taps are copied in blocks of 4 x 4, transposed in
##             registers.
<%page args="name, ctype, lanes, nr, vec, function"/>
<% F = range(4) %>
// Pack four columns for k in [0, run): column f begins at at[f], its elements are `step` apart, and are inside of x in
// first[f] <= k < last[f].
static void ${name}_pack_four(__global const ${ctype} *x, const long *at, const long *first, const long *last,
                              long step, long run, __global ${ctype} *to)
{
    const long low = max(max(first[0], first[1]), max(first[2], first[3]));
    const long high = max(low, min(min(last[0], last[1]), min(last[2], last[3])));
    for (int f = 0; f < 4; f++)  // where not all of them are inside
        for (long k = low > 0 ? 0 : high; k < run; k = k + 1 == low ? high : k + 1)
            to[k * ${nr} + f] = first[f] <= k && k < last[f] ? x[at[f] + k * step] : 0;
    % for f in F:
    __global const ${ctype} *x${f} = x + at[${f}] + low * step;
    % endfor
    long k = low;
    to += low * ${nr};
    if (step == 1) {
        for (; k + 4 <= high; k += 4) {
            % for f in F:
            const ${ctype}4 y${f} = *(__global const ${name}_vec4 *)x${f};
            x${f} += 4;
            % endfor
            % for r in F:
            *(__global ${name}_vec4 *)(to + ${r * nr}) = (${ctype}4)(y0.s${r}, y1.s${r}, y2.s${r}, y3.s${r});
            % endfor
            to += ${4 * nr};
        }
    }
    for (; k < high; k++) {
        *(__global ${name}_vec4 *)to = (${ctype}4)(*x0, *x1, *x2, *x3);
        % for f in F:
        x${f} += step;
        % endfor
        to += ${nr};
    }
}

// Pack `count` columns from n0 on for k in [k0, k0 + depth).
${function} void ${name}_pack_b(const conv_plan *p, __global const ${ctype} *x, long n0, long count, long k0,
                                long depth, __global ${ctype} *to)
{
    const long out[3] = {p->out[0], p->out[1], p->out[2]}, taps[3] = {p->taps[0], p->taps[1], p->taps[2]};
    const long dw = p->dilation[2], step = dw * p->x.w;
    conv_index q = conv_unravel(n0, out);
    for (long j = 0; j < ${nr}; j += 4) {
        long d0[4], h0[4], w0[4], image[4], at[4], first[4], last[4];
        for (int f = 0; f < 4; f++) {
            d0[f] = q.d * p->stride[0] - p->pad[0];
            h0[f] = q.h * p->stride[1] - p->pad[1];
            w0[f] = q.w * p->stride[2] - p->pad[2];
            image[f] = q.outer * p->x.n;
            conv_advance(&q, 1, out);
        }
        conv_index t = conv_unravel(k0, taps);
        for (long k = 0, run; k < depth; k += run) {
            run = min(depth - k, taps[2] - t.w);
            for (int f = 0; f < 4; f++) {
                const long d = d0[f] + t.d * p->dilation[0], h = h0[f] + t.h * p->dilation[1], w = w0[f] + t.w * dw;
                const int is_inside = j + f < count && d >= 0 && d < p->image[0] && h >= 0 && h < p->image[1];
                first[f] = is_inside ? min(run, conv_first_at_least(w, dw, 0)) : run;
                last[f] = min(run, conv_first_at_least(w, dw, p->image[2]));
                at[f] = image[f] + t.outer * p->x.c + d * p->x.d + h * p->x.h + w * p->x.w;
            }
            ${name}_pack_four(x, at, first, last, step, run, to + k * ${nr});
            conv_advance(&t, run, taps);
        }
        to += 4;
    }
}
