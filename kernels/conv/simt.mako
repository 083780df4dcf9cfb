## Convolution as an implicit matrix product, schedule simt, for float32 and float64.
##
## Algorithm   Rows are channels of y, columns output pixels of all images, k a channel and a filter tap. Tiles of w and
##             of x pass through local memory. Where a column, and where a k, is in x, w and y is computed once, in
##             local memory.
## Operands    x, w and y with any strides; plan.mako.
## Tiling      common/simt_main_loop.mako, scalar form.
## NDRange     Group 0 is a tile of y, group 1 loops over groups and parts of k.
## Workspace   y is the array of partial sums (split_k, ...), if k is split.
## Invariants  work-items of a group take the same path to each barrier; elements beyond the edges are zero in local
##             memory.
<%page args="name, ctype, wide, group, step, padding, further=(), offsets=None, statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="main_loop" file="/common/simt_main_loop.mako"/>
<%
    tile, R = 4 * group, range(4)
%>
% if statements:
${epilogue.declarations(name, ctype, 1, further, offsets, statements)}
% endif
## The places of the columns of the tile.
<%def name="fill_column_table()">
    for (int e = item; e < ${tile}; e += ${group * group}) {
        const conv_index q = conv_unravel(min(n0 + e, n - 1), out);
        pixel_at[0][e] = q.d * p.stride[0] - p.pad[0];
        pixel_at[1][e] = q.h * p.stride[1] - p.pad[1];
        pixel_at[2][e] = q.w * p.stride[2] - p.pad[2];
        x_column[e] =
            q.outer * p.x.n + pixel_at[0][e] * p.x.d + pixel_at[1][e] * p.x.h + pixel_at[2][e] * p.x.w;
        y_column[e] = q.outer * p.y.n + conv_offset(p.y.d, p.y.h, p.y.w, q);
    }
</%def>
## The places of the next elements along k.
<%def name="fill_k_table()">
            for (int e = item; e < ${step}; e += ${group * group}) {
                const conv_index t = conv_unravel(k0 + e, taps);
                tap_at[0][e] = t.d * p.dilation[0];
                tap_at[1][e] = t.h * p.dilation[1];
                tap_at[2][e] = t.w * p.dilation[2];
                x_k[e] = t.outer * p.x.c + tap_at[0][e] * p.x.d + tap_at[1][e] * p.x.h + tap_at[2][e] * p.x.w;
                w_k[e] = t.outer * p.w.c + conv_offset(p.w.d, p.w.h, p.w.w, t);
            }
</%def>
<%def name="load_tiles()">
            for (int e = item; e < ${tile * step}; e += ${group * group}) {
                const int i = e / ${step}, k = e % ${step};
                tile_a[k][i] = m0 + i < p.m && k0 + k < k_end ? w[i * p.w.m + w_k[k]] : 0;
            }
            for (int e = item; e < ${tile * step}; e += ${group * group}) {
                const int i = k_contiguous ? e / ${step} : e % ${tile}, k = k_contiguous ? e % ${step} : e / ${tile};
                int is_inside = n0 + i < n && k0 + k < k_end;
                % for r in range(3):
                const long at${r} = pixel_at[${r}][i] + tap_at[${r}][k];
                is_inside &= at${r} >= 0 && at${r} < p.image[${r}];
                % endfor
                tile_b[k][i] = is_inside ? x[x_column[i] + x_k[k]] : 0;
            }
</%def>
__kernel __attribute__((reqd_work_group_size(${group}, ${group}, 1)))
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *workspace${epilogue.parameters(name, ctype, further) if statements else ""})
{
    __local ${ctype} tile_a[${step}][${tile + padding}], tile_b[${step}][${tile + padding}];
    __local long x_column[${tile}], y_column[${tile}], pixel_at[3][${tile}];
    __local long x_k[${step}], w_k[${step}], tap_at[3][${step}];
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * ${group} + tx;
    const long out[3] = {p.out[0], p.out[1], p.out[2]}, taps[3] = {p.taps[0], p.taps[1], p.taps[2]};
    const long n = p.batch * out[0] * out[1] * out[2], depth = p.c * taps[0] * taps[1] * taps[2];
    const long tiles_per_row = (n + ${tile - 1}) / ${tile};
    const long m0 = get_group_id(0) / tiles_per_row * ${tile}, n0 = get_group_id(0) % tiles_per_row * ${tile};
    const int k_contiguous = taps[2] > out[2];  // neighbours in x are neighbours along k
    ${fill_column_table()}
    for (long b = get_group_id(1); b < p.groups * p.split_k; b += get_num_groups(1)) {
        const long g = b % p.groups, part = b / p.groups;
        const long k_begin = partition_begin(depth, ${step}, part, p.split_k);
        const long k_end = partition_begin(depth, ${step}, part + 1, p.split_k);
        __global const ${ctype} *const x = X + s.x + g * p.x.g;
        __global const ${ctype} *const w = W + s.w + g * p.w.g + m0 * p.w.m;
        ${main_loop.clear_sums(wide)}
        for (long k0 = k_begin; k0 < k_end; k0 += ${step}) {
            ${fill_k_table()}
            barrier(CLK_LOCAL_MEM_FENCE);
            ${load_tiles()}
            barrier(CLK_LOCAL_MEM_FENCE);
            ${main_loop.multiply(wide, step, group)}
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        __global ${ctype} *const y = Y + s.y + part * p.partial_stride + g * p.y.g + m0 * p.y.m;
        barrier(CLK_LOCAL_MEM_FENCE);  // the table of columns: with no k there was no barrier yet
        % for i in R:
        % for j in R:
<%  row, column = f"ty + {i * group}", f"tx + {j * group}" %>\
        if (m0 + ${row} < p.m && n0 + ${column} < n) {
            const long at = (${row}) * p.y.m + y_column[${column}];
            % if statements:
            ${epilogue.apply(name, ctype, further, f"c{i}_{j}", "f.", f"g * p.m + m0 + {row}", "(y - Y) + at")}
            % endif
            y[at] = c${i}_${j};
        }
        % endfor
        % endfor
    }
}
