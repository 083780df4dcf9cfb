## Convolution with few channels of y in a group, schedule simt, with indices of 32 bits.
##
## Algorithm   Direct convolution. A work-item computes all `rows` channels at one output pixel; loads of several taps
##             are in flight at once.
## Operands    x, w and y with any strides, offsets within 32 bits; plan.mako.
## NDRange     work-items loop over images, groups and output pixels. Neighbouring work-items take neighbouring pixels;
##             all of a work-group read the same elements of w, mostly.
<%page args="name, ctype, wide, rows"/>
<%
    UNROLL = 4  # taps whose loads are under way at once
    R = range(rows)
%>
<%def name="add_taps()">
                        % for t in range(UNROLL):
                        const int is_tap${t} = k + ${t} < (int)p.taps[2], d${t} = (k + ${t}) * (int)p.dilation[2];
                        const int w_at${t} = w_at + (k + ${t}) * (int)p.w.w;
                        const ${wide} v${t} =
                            is_tap${t} && (uint)(x2 + d${t}) < (uint)p.image[2] ? x[x_at + d${t} * (int)p.x.w] : 0;
                        % for i in R:
                        const ${wide} w${t}_${i} = is_tap${t} ? w[w_at${t} + ${i} * (int)p.w.m] : 0;
                        % endfor
                        % endfor
                        % for t in range(UNROLL):
                        % for i in R:
                        sum${i} += v${t} * w${t}_${i};
                        % endfor
                        % endfor
</%def>
__kernel void ${name}(conv_plan p, conv_call s, __global const ${ctype} *restrict X,
                      __global const ${ctype} *restrict W, __global ${ctype} *restrict Y, __global ${ctype} *workspace)
{
    const uint total = p.batch * p.groups * p.out[0] * p.out[1] * p.out[2];
    for (uint e = get_global_id(0); e < total; e += get_global_size(0)) {
        uint left = e;
        % for r in (2, 1, 0):
        const int i${r} = left % (uint)p.out[${r}], x${r} = i${r} * (int)p.stride[${r}] - (int)p.pad[${r}];
        left /= (uint)p.out[${r}];
        % endfor
        const int g = left % (uint)p.groups, n = left / (uint)p.groups;
        const int x_start = n * (int)p.x.n + x0 * (int)p.x.d + x1 * (int)p.x.h + x2 * (int)p.x.w;
        const int y_start = n * (int)p.y.n + i0 * (int)p.y.d + i1 * (int)p.y.h + i2 * (int)p.y.w;
        __global const ${ctype} *x = X + s.x + g * p.x.g + x_start;
        __global const ${ctype} *w = W + s.w + g * p.w.g;
        % for i in R:
        ${wide} sum${i} = 0;
        % endfor
        for (int c = 0; c < (int)p.c; c++) {
            for (int a = 0; a < (int)p.taps[0]; a++) {
                const int da = a * (int)p.dilation[0];
                if ((uint)(x0 + da) >= (uint)p.image[0])
                    continue;
                for (int b = 0; b < (int)p.taps[1]; b++) {
                    const int db = b * (int)p.dilation[1];
                    if ((uint)(x1 + db) >= (uint)p.image[1])
                        continue;
                    const int x_at = da * (int)p.x.d + db * (int)p.x.h, w_at = a * (int)p.w.d + b * (int)p.w.h;
                    for (int k = 0; k < (int)p.taps[2]; k += ${UNROLL}) {
                        ${add_taps()}
                    }
                }
            }
            x += p.x.c;
            w += p.w.c;
        }
        __global ${ctype} *y = Y + s.y + g * p.y.g + y_start;
        % for i in R:
        y[${i} * (int)p.y.m] = sum${i};
        % endfor
    }
}
