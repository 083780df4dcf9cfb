## Convolution with few output pixels and long rows of filter taps, schedule cpu: gradients of the weights of depthwise
## convolutions.
##
## Algorithm   Dot products; lanes run along the taps.
## Operands    x, w and y with any strides; plan.mako.
## Tiling      `count` neighbouring output pixels of a row.
## NDRange     a partition of the tiles of all images, groups and channels.
<%page args="name, ctype, lanes, count"/>
<%
    vec, J = f"conv_{ctype}{lanes}", range(count)
    vector = f"{ctype}{lanes}"
%>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *workspace)
{
    const long row_tiles = (p.out[2] + ${count - 1}) / ${count};
    const long shape[3] = {p.out[0], p.out[1], row_tiles * ${count}};
    const long total = p.batch * p.groups * p.m * shape[0] * shape[1] * row_tiles;
    long unit = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long tap_step = p.dilation[2], x_step = tap_step * p.x.w, x_row = p.dilation[1] * p.x.h;
    long outer = -1, m = 0, g = 0, n = 0;
    __global const ${ctype} *const x = X + s.x, *const w = W + s.w;
    conv_index out = conv_unravel(unit * ${count}, shape);
    for (; unit < end; unit++) {
        if (out.outer != outer) {
            outer = out.outer;
            m = outer % p.m;
            g = outer / p.m % p.groups;
            n = outer / p.m / p.groups;
        }
        const long d_first = out.d * p.stride[0] - p.pad[0];
        const long h_first = out.h * p.stride[1] - p.pad[1];
        const long w_first = out.w * p.stride[2] - p.pad[2];
        % for j in J:
        ${vector} c${j} = 0;
        % endfor
        for (long c = 0; c < p.c; c++)
            for (long tap_d = 0; tap_d < p.taps[0]; tap_d++)
                for (long tap_w = 0; tap_w < p.taps[2]; tap_w += ${lanes}) {
                    const long d = d_first + tap_d * p.dilation[0];
                    if (d < 0 || d >= p.image[0])
                        continue;
                    const ${vec}_mask used = ${vec}_between(0, p.taps[2] - tap_w);
                    % for j in J:
                    const long w${j} = w_first + tap_w * tap_step + ${j} * p.stride[2];
                    const long last${j} = w${j} + ${lanes - 1} * tap_step;
                    const ${vec}_mask ok${j} = used && ${vec}_inside(w${j}, tap_step, p.image[2]);
                    % endfor
                    long x_at = n * p.x.n + g * p.x.g + c * p.x.c + d * p.x.d + h_first * p.x.h, h = h_first;
                    long filter_at = g * p.w.g + m * p.w.m + c * p.w.c + tap_d * p.w.d + tap_w * p.w.w;
                    for (long tap_h = 0; tap_h < p.taps[1];
                         tap_h++, h += p.dilation[1], x_at += x_row, filter_at += p.w.h) {
                        if (h < 0 || h >= p.image[1])
                            continue;
                        const ${vector} filter = ${vec}_load(w, filter_at, p.w.w, used, p.w_low, p.w_high);
                        % for j in J:
                        if (w${j} < p.image[2] && last${j} >= 0) {
                            const ${vector} x${j} =
                                ${vec}_load(x, x_at + w${j} * p.x.w, x_step, ok${j}, p.x_low, p.x_high);
                            c${j} = ok${j} ? x${j} * filter + c${j} : c${j};
                        }
                        % endfor
                    }
                }
        __global ${ctype} *y = Y + s.y + n * p.y.n + g * p.y.g + m * p.y.m + conv_offset(p.y.d, p.y.h, p.y.w, out);
        % for j in J:
        if (out.w + ${j} < p.out[2])
            y[${j} * p.y.w] = ${vec}_sum(c${j});
        % endfor
        conv_advance(&out, ${count}, shape);
    }
}
