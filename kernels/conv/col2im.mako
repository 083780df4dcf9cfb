## Gradients of a convolution's input, schedule cpu: the products of dy with w, which both lie as they are needed, are computed for some
## channels and all taps, and added up where they meet in x, while they are in the cache. Of conv_plan, x is the gradient and y is dy;
## of conv_call the other way round.
<%page args="name, ctype, itemsize, lanes, tiles, rows, vectors, most, further=(), statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="turned" file="/conv/transposed.mako"/>
<%
    cols, vec, heights = lanes * vectors, f"conv_{ctype}{lanes}", [rows, rows // 2] if rows >= 8 else [rows]
    full_width = f"CONV_VECTORS({8 * itemsize * lanes})"
    last = ", channel, f" + "".join(f", F{k + 1}" for k in range(len(further))) if statements else ""
%>
${turned.products(vec, heights, cols, full_width)}
typedef struct {  // for each tap along a dimension: the first element of x that it meets, and what to add to x / stride for the position
    long phase[${most}], shift[${most}];
} ${name}_axis;

static ${name}_axis ${name}_meet(const conv_plan *p, int axis)
{
    ${name}_axis a;
    const long stride = p->stride[axis];
    for (long t = 0; t < p->taps[axis]; t++) {
        const long at = t * p->dilation[axis] - p->pad[axis], rest = at % stride;
        a.phase[t] = rest < 0 ? rest + stride : rest;
        a.shift[t] = (a.phase[t] - at) / stride;
    }
    return a;
}

% if statements:
${epilogue.declarations(lanes)}
% endif
// Elements phase + (i + l) * stride of one row of x, of one channel, from the `number` rows of D that meet it.
static inline ${ctype}${lanes} ${name}_sum(const conv_plan *p, const ${name}_axis *a, __global const ${ctype} *D, const long *met, int number,
    long apart, long phase, long i)
{
    ${ctype}${lanes} sum = 0;
    for (int t = 0; t < p->taps[2]; t++) {
        const long at = i + a->shift[t];
        if (a->phase[t] != phase || at >= p->out[2] || at + ${lanes} <= 0)
            continue;
        ${ctype}${lanes} v = 0;
        for (int n = 0; n < number; n++)
            v += *(__global const ${vec} *)(D + met[n] + t * apart + at);
        sum += ${vec}_between(-at, p->out[2] - at) ? v : (${ctype}${lanes})(0);
    }
    return sum;
}

// Store the first `count` lanes, `step` apart from element `to` on.
static void ${name}_store(${ctype}${lanes} sum, __global ${ctype} *X, long to, long step, long count${
                          f", long channel{capture(epilogue.parameters, 'value')}" if statements else ""})
{
    % if statements:
    if (count >= ${lanes} && step == 1)
        ${epilogue.apply("sum", "f->", "channel", "to", vec, f"{ctype}{lanes}")}
    else
        ${epilogue.apply_some("sum", "f->", "channel", lambda e: f"to + {e} * step", f"min(count, {lanes}L)", f"{ctype}{lanes}", f"{ctype}{lanes}")}
    % endif
    ${vec}_store(sum, X + to, step, count);
}

// One row of x.
static ${full_width} void ${name}_row(const conv_plan *p, const ${name}_axis *a, __global const ${ctype} *D, const long *met, int number,
    long apart, __global ${ctype} *X, long start${f", long channel{capture(epilogue.parameters, 'value')}" if statements else ""})
{
    const long stride = p->stride[2], step = stride * p->x[5], width = p->image[2];
    if (stride == 2 && step == 2) {
        for (long i = 0; 2 * i < width; i += ${lanes}) {
            const ${ctype}${lanes} x = ${name}_sum(p, a, D, met, number, apart, 0, i), y = ${name}_sum(p, a, D, met, number, apart, 1, i);
            % for half in range(2):
            ${name}_store((${ctype}${lanes})(${", ".join(f"x.s{l:x}, y.s{l:x}" for l in range(half * lanes // 2, (half + 1) * lanes // 2))}),
                X, start + 2 * i + ${half * lanes}, 1, width - 2 * i - ${half * lanes}${last});
            % endfor
        }
        return;
    }
    for (long phase = 0; phase < min(stride, width); phase++) {
        const long extent = (width - phase + stride - 1) / stride;
        for (long i = 0; i < extent; i += ${lanes})
            ${name}_store(${name}_sum(p, a, D, met, number, apart, phase, i), X, start + phase * p->x[5] + i * step, step, extent - i${last});
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) ${full_width}
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *Y, __global const ${ctype} *W, __global ${ctype} *X,
             __global ${ctype} *scratch${epilogue.parameters() if statements else ""})
{
    const long taps = p.taps[0] * p.taps[1] * p.taps[2], positions = p.out[0] * p.out[1] * p.out[2], apart = p.n_block;
    const long blocks = (p.c + p.m_block - 1) / p.m_block, total = p.groups * blocks * p.batch;
    const long end = conv_share(total, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${ctype} *const D = scratch + p.scratch * get_global_id(0) + ${lanes};
    const ${name}_axis d_axis = ${name}_meet(&p, 0), h_axis = ${name}_meet(&p, 1), w_axis = ${name}_meet(&p, 2);
    for (long unit = conv_share(total, 1, get_global_id(0), get_global_size(0)); unit < end; unit++) {
        const long n = unit % p.batch, g = unit / p.batch / blocks, c0 = unit / p.batch % blocks * p.m_block;
        const long c1 = min(p.c, c0 + p.m_block), first = c1 - p.m_block;  // the last block overlaps the one before
        __global const ${ctype} *const w = W + s.w + g * p.w[0] + first * taps, *const y = Y + s.x + n * p.y[0] + g * p.y[1];
        for (long k = 0; k < p.m; k += p.k_block)
            ${name}_products(y + k * p.y[2], p.y[5], p.y[2], w + k * p.w[1], p.w[1], positions, p.m_block * taps, min(p.k_block, p.m - k),
                D, apart, k == 0);
        for (long d = 0; d < p.image[0]; d++)
        for (long h = 0; h < p.image[1]; h++) {
            long met[${most * most}];
            int number = 0;
            for (long td = 0; td < p.taps[0]; td++)
            for (long th = 0; th < p.taps[1]; th++) {
                const long qd = d / p.stride[0] + d_axis.shift[td], qh = h / p.stride[1] + h_axis.shift[th];
                if (d % p.stride[0] == d_axis.phase[td] && h % p.stride[1] == h_axis.phase[th] && qd >= 0 && qd < p.out[0] && qh >= 0 && qh < p.out[1])
                    met[number++] = (td * p.taps[1] + th) * p.taps[2] * apart + (qd * p.out[1] + qh) * p.out[2];
            }
            const long start = s.y + n * p.x[0] + g * p.x[1] + d * p.x[3] + h * p.x[4];
            for (long c = c0; c < c1; c++)
                ${name}_row(&p, &w_axis, D + (c - first) * taps * apart, met, number, apart, X, start + c * p.x[2]${
                            ", g * p.c + c" + capture(epilogue.arguments) if statements else ""});
        }
    }
}
