## Convolution to one channel a group, schedule cpu.
##
## Algorithm   Direct convolution as in direct.mako. What is outside of x is skipped, not multiplied by zero.
## Operands    x, w and y with any strides; plan.mako.
## Tiling      `rows` rows of output pixels, `vectors` vectors along a row.
## NDRange     a partition of the tiles of all images and groups.
<%page args="name, ctype, lanes, rows, vectors"/>
<%namespace name="common" file="/conv/direct_common.mako"/>
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
        <%common:filter_rows filters="filters" row_begin=" + w0" is_wanted=" && lo < hi">
                    if (${rows} <= height && h >= 0 && h + ${row_step(rows - 1)} < p.image[1]) {
                        for (long t = lo; t < hi; t++) {
                            const ${vector} a = filter[t * p.w.w];
                            % for i in R:
                            ${add_row(i)}
                            % endfor
                        }
                        continue;
                    }
                    % for i in R:
                    if (${is_inside(i)})
                        for (long t = lo; t < hi; t++) {
                            const ${vector} a = filter[t * p.w.w];
                            ${add_row(i)}
                        }
                    % endfor
        </%common:filter_rows>
</%def>
<%def name="outer_taps()">
        <%common:outer_columns columns="${J}" vec="${vec}">
        <%common:filter_rows filters="filters" filter_begin=" + t * p.w.w">
                        const ${vector} a = *filter;
                        % for i in R:
                        if (${is_inside(i)}) {
                            const long at = row + ${i} * next_row;
                            % for j in J:
                            if (v${j} < p.image[2] && last${j} >= 0) {
                                const ${vector} x${j} = ${common.load_outer(vec, j, "at")};
                                c${i}_${j} = ok${j} ? x${j} * a + c${i}_${j} : c${i}_${j};
                            }
                            % endfor
                        }
                        % endfor
        </%common:filter_rows>
        </%common:outer_columns>
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
    const long dw = p.dilation[2], step = p.stride[2] * p.x.w;
    const long tap_row = p.dilation[1] * p.x.h, next_row = p.stride[1] * p.x.h;
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
        __global const ${ctype} *const filters = W + s.w + g * p.w.g;
        ${common.begin_tile("q.d", "y_h", "q.w", R, J, vector)}
        ${inner_taps()}
        ${outer_taps()}
        __global ${ctype} *const y = Y + s.y + n * p.y.n + g * p.y.g + q.d * p.y.d + y_h * p.y.h + q.w * p.y.w;
        % for i in R:
        % for j in J:
        if (${i} < height)
            ${vec}_store(c${i}_${j}, y + ${i} * p.y.h + ${j * lanes} * p.y.w, p.y.w, p.out[2] - q.w - ${j * lanes});
        % endfor
        % endfor
        conv_advance(&q, ${width}, shape);
    }
}
