## Gradient of a convolution's input as a matrix product and col2im, schedule cpu.
##
## Algorithm: D = w.T @ dy for a block of channels and all filter taps, then col2im while D is in the cache: element ih
##     of x (along each dimension) is the sum of D over the taps t and output pixels q with
##         ih = q * stride + t * dilation - pad
##     With ih = i * stride + phase, a tap meets phase[t] = (t * dilation - pad) mod stride only, in output pixel
##     q = i + shift[t], shift[t] = (phase[t] - t * dilation + pad) / stride.
## Operands    Of conv_plan, x is the gradient and y is dy; of conv_call the other way round. w and dy have contiguous
##             rows.
## Tiling      Blocks of mc channels, kc terms of the sums; rows of D are nc apart.
## NDRange     a partition of the images, groups and blocks of channels.
## Workspace   For each work-item D (mc * taps, nc), with a vector before it.
## Invariants  The last block of channels overlaps the one before.
<%page args="name, ctype, itemsize, lanes, micro, mr, vectors, most, further=(), offsets=None, statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="transposed" file="/conv/transposed.mako"/>
<%
    nr, vec, vector = lanes * vectors, f"conv_{ctype}{lanes}", f"{ctype}{lanes}"
    heights = [mr, mr // 2] if mr >= 8 else [mr]
    full_width = f"MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    function = f"static NOINLINE {full_width}"
    parameters = f", long channel{epilogue.parameters(name, ctype, further, by_pointer=True)}" if statements else ""
    arguments = ", channel, f" + "".join(f", F{k + 1}" for k in range(len(further))) if statements else ""
%>
${transposed.products(vec, heights, nr, function)}
typedef struct {  // for each tap along a dimension
    long phase[${most}], shift[${most}];
} ${name}_axis;

static ${name}_axis ${name}_axis_of(const conv_plan *p, int axis)
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
${epilogue.declarations(name, ctype, lanes, further, offsets, statements)}
% endif
// Elements (i + l) * stride + phase of one row of x, of one channel, from the `row_count` rows of D that meet it.
static inline ${vector} ${name}_sum(const conv_plan *p, const ${name}_axis *a, __global const ${ctype} *D,
                                    const long *rows, int row_count, long d_row, long phase, long i)
{
    ${vector} sum = 0;
    for (int t = 0; t < p->taps[2]; t++) {
        const long at = i + a->shift[t];
        if (a->phase[t] != phase || at >= p->out[2] || at + ${lanes} <= 0)
            continue;
        ${vector} v = 0;
        for (int n = 0; n < row_count; n++)
            v += *(__global const ${vec} *)(D + rows[n] + t * d_row + at);
        sum += ${vec}_between(-at, p->out[2] - at) ? v : (${vector})(0);
    }
    return sum;
}

// Store the first `count` lanes, `step` apart, from element `to` on.
${function} void ${name}_store(${vector} sum, __global ${ctype} *X, long to, long step, long count${parameters})
{
    % if statements:
    if (count >= ${lanes} && step == 1)
        ${epilogue.apply(name, ctype, further, "sum", "f->", "channel", "to", vec, vector)}
    else
        ${epilogue.apply_some(name, ctype, further, "sum", "f->", "channel", lambda e: f"to + {e} * step",
                              f"min(count, {lanes}L)", vector, vector)}
    % endif
    ${vec}_store(sum, X + to, step, count);
}

// One row of x. With stride 2, both phases are stored together, as whole vectors.
${function} void ${name}_row(const conv_plan *p, const ${name}_axis *a, __global const ${ctype} *D,
                                      const long *rows, int row_count, long d_row, __global ${ctype} *X,
                                      long start${parameters})
{
    const long stride = p->stride[2], step = stride * p->x.w, width = p->image[2];
    if (stride == 2 && step == 2) {
        for (long i = 0; 2 * i < width; i += ${lanes}) {
            const ${vector} even = ${name}_sum(p, a, D, rows, row_count, d_row, 0, i);
            const ${vector} odd = ${name}_sum(p, a, D, rows, row_count, d_row, 1, i);
            % for half in range(2):
<%
    first = half * lanes // 2
    pairs = ", ".join(f"even.s{l:x}, odd.s{l:x}" for l in range(first, first + lanes // 2))
%>\
            ${name}_store((${vector})(${pairs}),
                          X, start + 2 * i + ${half * lanes}, 1, width - 2 * i - ${half * lanes}${arguments});
            % endfor
        }
        return;
    }
    for (long phase = 0; phase < min(stride, width); phase++) {
        const long extent = (width - phase + stride - 1) / stride;
        for (long i = 0; i < extent; i += ${lanes}) {
            const ${vector} sum = ${name}_sum(p, a, D, rows, row_count, d_row, phase, i);
            ${name}_store(sum, X, start + phase * p->x.w + i * step, step, extent - i${arguments});
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) ${full_width}
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *Y, __global const ${ctype} *W, __global ${ctype} *X,
             __global ${ctype} *workspace${epilogue.parameters(name, ctype, further) if statements else ""})
{
    const long taps = p.taps[0] * p.taps[1] * p.taps[2], pixels = p.out[0] * p.out[1] * p.out[2], d_row = p.nc;
    const long blocks = (p.c + p.mc - 1) / p.mc, total = p.groups * blocks * p.batch;
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${ctype} *const D = workspace + p.workspace_size * get_global_id(0) + ${lanes};
    const ${name}_axis d_axis = ${name}_axis_of(&p, 0);
    const ${name}_axis h_axis = ${name}_axis_of(&p, 1);
    const ${name}_axis w_axis = ${name}_axis_of(&p, 2);
    for (long unit = unit_begin; unit < unit_end; unit++) {
        const long n = unit % p.batch, g = unit / p.batch / blocks, c_begin = unit / p.batch % blocks * p.mc;
        const long c_end = min(p.c, c_begin + p.mc), first_c = c_end - p.mc;
        __global const ${ctype} *const w = W + s.w + g * p.w.g + first_c * taps;
        __global const ${ctype} *const y = Y + s.x + n * p.y.n + g * p.y.g;
        for (long k0 = 0; k0 < p.m; k0 += p.kc)
            ${name}_products(y + k0 * p.y.m, p.y.w, p.y.m, w + k0 * p.w.m, p.w.m, pixels, p.mc * taps,
                             min(p.kc, p.m - k0), D, d_row, k0 == 0);
        for (long d = 0; d < p.image[0]; d++)
            for (long h = 0; h < p.image[1]; h++) {
                long rows[${most * most}];
                int row_count = 0;
                for (long td = 0; td < p.taps[0]; td++)
                    for (long th = 0; th < p.taps[1]; th++) {
                        const long qd = d / p.stride[0] + d_axis.shift[td], qh = h / p.stride[1] + h_axis.shift[th];
                        const int meets = d % p.stride[0] == d_axis.phase[td] && h % p.stride[1] == h_axis.phase[th];
                        if (meets && qd >= 0 && qd < p.out[0] && qh >= 0 && qh < p.out[1])
                            rows[row_count++] =
                                (td * p.taps[1] + th) * p.taps[2] * d_row + (qd * p.out[1] + qh) * p.out[2];
                    }
                const long start = s.y + n * p.x.n + g * p.x.g + d * p.x.d + h * p.x.h;
                for (long c = c_begin; c < c_end; c++)
                    ${name}_row(&p, &w_axis, D + (c - first_c) * taps * d_row, rows, row_count, d_row, X,
                                start + c * p.x.c${
                                f", g * p.c + c{epilogue.arguments(further)}" if statements else ""});
            }
    }
}
