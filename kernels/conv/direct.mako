## Convolution without packing, schedule cpu, for few channels, where a matrix product would have nothing to reuse.
##
## Algorithm   Direct convolution. What is outside of x is skipped, not multiplied by zero. Taps that meet x in every
##             lane go first, along contiguous x; the others with masks.
## Operands    x, w and y with any strides; plan.mako.
## Tiling      `rows` channels of `vectors` vectors along a row of output pixels.
## NDRange     a partition of the tiles of all images, groups and blocks of channels.
<%page args="name, ctype, lanes, rows, vectors"/>
<%namespace name="common" file="/conv/direct_common.mako"/>
<%
    vec, R, J, width = f"conv_{ctype}{lanes}", range(rows), range(vectors), lanes * vectors
    vector = f"{ctype}{lanes}"
%>
## Taps that meet x in every lane.
<%def name="inner_taps()">
        <%common:filter_rows filters="w" row_begin=" + w0" is_wanted=" && lo < hi">
                    if (h < 0 || h >= p.image[1])
                        continue;
                    for (long t = lo; t < hi; t++) {
                        % for j in J:
                        const ${vector} x${j} = *(__global const ${vec} *)(x + row + t * dw + ${j * lanes});
                        % endfor
                        % for i in R:
                        const ${vector} a${i} = filter[t * p.w.w + filter_row${i}];
                        % for j in J:
                        c${i}_${j} = a${i} * x${j} + c${i}_${j};
                        % endfor
                        % endfor
                    }
        </%common:filter_rows>
</%def>
<%def name="outer_taps()">
        <%common:outer_columns columns="${J}" vec="${vec}">
        <%common:filter_rows filters="w" filter_begin=" + t * p.w.w">
                        if (h < 0 || h >= p.image[1])
                            continue;
                        % for j in J:
                        if (v${j} < p.image[2] && last${j} >= 0) {
                            const ${vector} x${j} = ${common.load_outer(vec, j, "row")};
                            % for i in R:
                            c${i}_${j} = ok${j} ? x${j} * filter[filter_row${i}] + c${i}_${j} : c${i}_${j};
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
    const long blocks = (p.m + ${rows - 1}) / ${rows}, row_tiles = (p.out[2] + ${width - 1}) / ${width};
    const long shape[3] = {p.out[0], p.out[1], row_tiles * ${width}};  // whole vectors
    const long total = p.batch * p.groups * blocks * shape[0] * shape[1] * row_tiles;
    long unit = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long dw = p.dilation[2], step = p.stride[2] * p.x.w, tap_row = p.dilation[1] * p.x.h;
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
        __global const ${ctype} *const w = W + s.w + g * p.w.g + m * p.w.m;
        % for i in R:
        const long filter_row${i} = min(${i}L, p.m - m - 1) * p.w.m;
        % endfor
        ${common.begin_tile("q.d", "q.h", "q.w", R, J, vector)}
        ${inner_taps()}
        ${outer_taps()}
        __global ${ctype} *y = Y + s.y + n * p.y.n + g * p.y.g + m * p.y.m + conv_offset(p.y.d, p.y.h, p.y.w, q);
        % for i in R:
        % for j in J:
        if (${i} < p.m - m)
            ${vec}_store(c${i}_${j}, y + ${i} * p.y.m + ${j * lanes} * p.y.w, p.y.w, p.out[2] - q.w - ${j * lanes});
        % endfor
        % endfor
        conv_advance(&q, ${width}, shape);
    }
}
