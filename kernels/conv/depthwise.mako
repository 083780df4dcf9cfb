## Convolution to one channel a group, schedule cpu.
##
## Algorithm: direct convolution as in direct.mako. What lies outside of x is skipped, not multiplied by zero.
## Operands: x, w and y with any strides; plan.mako.
## Tiling: `rows` rows of output pixels, `vectors` vectors along a row.
## NDRange -> work: a partition of the tiles of all images and groups.
<%page args="name, ctype, lanes, rows, vectors"/>
<%
    vec, R, J, width = f"conv_{ctype}{lanes}", range(rows), range(vectors), lanes * vectors
    vector = f"{ctype}{lanes}"
    row_step = lambda i: f"{i} * p.stride[1]"
    is_inside = lambda i: f"{i} < height && h + {row_step(i)} >= 0 && h + {row_step(i)} < p.image[1]"
%>
<%def name="add_row(i)">
                            % for j in J:
                            c${i}_${j} +=
                                a * *(__global const ${vec} *)(x + row + t * dw + ${i} * next_row + ${j * lanes});
                            % endfor
</%def>
## Taps that meet x in every lane.
<%def name="inner_taps()">
        for (long c = 0; c < p.c && lo < hi; c++)
            for (long td = 0; td < p.taps[0]; td++) {
                const long d = d0 + td * p.dilation[0];
                if (d < 0 || d >= p.image[0])
                    continue;
                long row = n * p.x[0] + g * p.x[1] + c * p.x[2] + d * p.x[3] + h0 * p.x[4] + w0, h = h0;
                __global const ${ctype} *filter = W + s.w + g * p.w[0] + c * p.w[2] + td * p.w[3];
                for (long th = 0; th < p.taps[1]; th++, h += p.dilation[1], row += tap_row, filter += p.w[4]) {
                    if (${rows} <= height && h >= 0 && h + ${row_step(rows - 1)} < p.image[1]) {
                        for (long t = lo; t < hi; t++) {
                            const ${vector} a = filter[t * p.w[5]];
                            % for i in R:
                            ${add_row(i)}
                            % endfor
                        }
                        continue;
                    }
                    % for i in R:
                    if (${is_inside(i)})
                        for (long t = lo; t < hi; t++) {
                            const ${vector} a = filter[t * p.w[5]];
                            ${add_row(i)}
                        }
                    % endfor
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
                    __global const ${ctype} *filter = W + s.w + g * p.w[0] + c * p.w[2] + td * p.w[3] + t * p.w[5];
                    for (long th = 0; th < p.taps[1]; th++, h += p.dilation[1], row += tap_row, filter += p.w[4]) {
                        const ${vector} a = *filter;
                        % for i in R:
                        if (${is_inside(i)}) {
                            const long at = row + ${i} * next_row;
                            % for j in J:
                            if (v${j} < p.image[2] && last${j} >= 0) {
                                const ${vector} x${j} =
                                    ${vec}_load(x, at + v${j} * p.x[5], step, ok${j}, p.x_low, p.x_high);
                                c${i}_${j} = ok${j} ? x${j} * a + c${i}_${j} : c${i}_${j};
                            }
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
    const long blocks = (p.out[1] + ${rows - 1}) / ${rows}, row_tiles = (p.out[2] + ${width - 1}) / ${width};
    const long shape[3] = {p.out[0], blocks, row_tiles * ${width}};
    const long total = p.batch * p.groups * shape[0] * blocks * row_tiles;
    long unit = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long dw = p.dilation[2], step = p.stride[2] * p.x[5];
    const long tap_row = p.dilation[1] * p.x[4], next_row = p.stride[1] * p.x[4];
    __global const ${ctype} *const x = X + s.x;
    long outer = -1, g = 0, n = 0;
    conv_index q = conv_unravel(unit * ${width}, shape);
    for (; unit < end; unit++) {
        if (q.outer != outer) {
            outer = q.outer;
            g = outer % p.groups;
            n = outer / p.groups;
        }
        const long y_h = q.h * ${rows}, height = p.out[1] - y_h;
        const long d0 = q.d * p.stride[0] - p.pad[0];
        const long h0 = y_h * p.stride[1] - p.pad[1];
        const long w0 = q.w * p.stride[2] - p.pad[2];
        % for i in R:
        % for j in J:
        ${vector} c${i}_${j} = 0;
        % endfor
        % endfor
        long lo = 0, hi = 0;
        if (step == 1)
            conv_inner_taps(&p, w0, w0 + ${width - 1}, &lo, &hi);
        ${inner_taps()}
        ${outer_taps()}
        __global ${ctype} *const y = Y + s.y + n * p.y[0] + g * p.y[1] + q.d * p.y[3] + y_h * p.y[4] + q.w * p.y[5];
        % for i in R:
        % for j in J:
        if (${i} < height)
            ${vec}_store(c${i}_${j}, y + ${i} * p.y[4] + ${j * lanes} * p.y[5], p.y[5], p.out[2] - q.w - ${j * lanes});
        % endfor
        % endfor
        conv_advance(&q, ${width}, shape);
    }
}
