## Convolution without packing, schedule cpu, for few channels, where a matrix product would have nothing to reuse.
##
## Algorithm: direct convolution. What lies outside of x is skipped, not multiplied by zero. Taps that meet x in every
##     lane go first, along contiguous x; the others with masks.
## Operands: x, w and y with any strides; plan.mako.
## Tiling: `rows` channels of `vectors` vectors along a row of output pixels.
## NDRange -> work: a partition of the tiles of all images, groups and blocks of channels.
<%page args="name, ctype, lanes, rows, vectors"/>
<%
    vec, R, J, width = f"conv_{ctype}{lanes}", range(rows), range(vectors), lanes * vectors
    vector = f"{ctype}{lanes}"
%>
<%def name="inner_taps()">
        for (long c = 0; c < p.c && lo < hi; c++)
            for (long td = 0; td < p.taps[0]; td++) {
                const long d = d0 + td * p.dilation[0];
                if (d < 0 || d >= p.image[0])
                    continue;
                long row = n * p.x[0] + g * p.x[1] + c * p.x[2] + d * p.x[3] + h0 * p.x[4] + w0, h = h0;
                __global const ${ctype} *filter = w + c * p.w[2] + td * p.w[3];
                for (long th = 0; th < p.taps[1]; th++, h += p.dilation[1], row += row_step, filter += p.w[4]) {
                    if (h < 0 || h >= p.image[1])
                        continue;
                    for (long t = lo; t < hi; t++) {
                        % for j in J:
                        const ${vector} x${j} = *(__global const ${vec} *)(x + row + t * dw + ${j * lanes});
                        % endfor
                        % for i in R:
                        const ${vector} a${i} = filter[t * p.w[5] + filter_row${i}];
                        % for j in J:
                        c${i}_${j} = a${i} * x${j} + c${i}_${j};
                        % endfor
                        % endfor
                    }
                }
            }
</%def>
## Which lanes meet x depends on the tap along the row only.
<%def name="outer_taps()">
        for (long t = lo > 0 ? 0 : hi; t < p.taps[2]; t = t + 1 == lo ? hi : t + 1) {
            % for j in J:
            const long v${j} = w0 + t * dw + ${j * lanes} * p.stride[2], last${j} = v${j} + ${lanes - 1} * p.stride[2];
            const ${vec}_mask ok${j} = ${vec}_inside(v${j}, p.stride[2], p.image[2]);
            % endfor
            for (long c = 0; c < p.c; c++)
                for (long td = 0; td < p.taps[0]; td++) {
                    const long d = d0 + td * p.dilation[0];
                    if (d < 0 || d >= p.image[0])
                        continue;
                    long row = n * p.x[0] + g * p.x[1] + c * p.x[2] + d * p.x[3] + h0 * p.x[4], h = h0;
                    __global const ${ctype} *filter = w + c * p.w[2] + td * p.w[3] + t * p.w[5];
                    for (long th = 0; th < p.taps[1]; th++, h += p.dilation[1], row += row_step, filter += p.w[4]) {
                        if (h < 0 || h >= p.image[1])
                            continue;
                        % for j in J:
                        if (v${j} < p.image[2] && last${j} >= 0) {
                            const ${vector} x${j} =
                                ${vec}_load(x, row + v${j} * p.x[5], step, ok${j}, p.x_low, p.x_high);
                            % for i in R:
                            c${i}_${j} = ok${j} ? x${j} * filter[filter_row${i}] + c${i}_${j} : c${i}_${j};
                            % endfor
                        }
                        % endfor
                    }
                }
        }
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *workspace)
{
    const long blocks = (p.m + ${rows - 1}) / ${rows}, row_tiles = (p.out[2] + ${width - 1}) / ${width};
    const long shape[3] = {p.out[0], p.out[1], row_tiles * ${width}};  // whole vectors
    const long total = p.batch * p.groups * blocks * shape[0] * shape[1] * row_tiles;
    long unit = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long dw = p.dilation[2], step = p.stride[2] * p.x[5], row_step = p.dilation[1] * p.x[4];
    __global const ${ctype} *const x = X + s.x;
    long outer = -1, m = 0, g = 0, n = 0;
    conv_index q = conv_unravel(unit * ${width}, shape);
    for (; unit < end; unit++) {
        if (q.outer != outer) {
            outer = q.outer;
            m = outer % blocks * ${rows};
            g = outer / blocks % p.groups;
            n = outer / blocks / p.groups;
        }
        const long d0 = q.d * p.stride[0] - p.pad[0];
        const long h0 = q.h * p.stride[1] - p.pad[1];
        const long w0 = q.w * p.stride[2] - p.pad[2];
        __global const ${ctype} *const w = W + s.w + g * p.w[0] + m * p.w[1];
        % for i in R:
        const long filter_row${i} = min(${i}L, p.m - m - 1) * p.w[1];
        % for j in J:
        ${vector} c${i}_${j} = 0;
        % endfor
        % endfor
        long lo = 0, hi = 0;
        if (step == 1)
            conv_inner_taps(&p, w0, w0 + ${width - 1}, &lo, &hi);
        ${inner_taps()}
        ${outer_taps()}
        __global ${ctype} *y = Y + s.y + n * p.y[0] + g * p.y[1] + m * p.y[2] + conv_offset(p.y, q);
        % for i in R:
        % for j in J:
        if (${i} < p.m - m)
            ${vec}_store(c${i}_${j}, y + ${i} * p.y[2] + ${j * lanes} * p.y[5], p.y[5], p.out[2] - q.w - ${j * lanes});
        % endfor
        % endfor
        conv_advance(&q, ${width}, shape);
    }
}
