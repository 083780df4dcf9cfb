## Convolution of float32 as an implicit matrix product, schedule simt, for problems with enough large tiles for all
## compute units.
##
## Algorithm   As simt.mako, with two stages of local memory: the next step along k is loaded from global memory while
##             the one before is computed (kernels/gemm/simt_double_buffered.mako). Where each k is in x and in w is
##             computed 64 at a time.
## Operands    x, w and y with any strides, offsets within 32 bits. `k_contiguous`: neighbours in x are neighbours along
##             k; `volumes`: three spatial dimensions are used, not two.
## Tiling      Rows x 128 sums for a work-group of 8 x 4 x rows / 16, 8 elements along k; common/simt_main_loop.mako,
##             vector form.
## NDRange     Group 0 is a tile of y, group 1 loops over groups and parts of k.
## Workspace   y is the array of partial sums (split_k, ...), if k is split.
## Invariants: local memory, stage x element along k x row (or column); four elements of padding put the columns of a
##     tile into different banks:
##         tile_a[2][8][rows + 4], tile_b[2][8][128 + 4]
##     The tables x_k and w_k are rings of two halves of 64 elements along k: one is used while the other is filled.
##     Elements beyond the end are outside of any image. The loop begins a step before k_begin: its first pass only
##     loads.
<%page args="name, ctype, wide, rows, k_contiguous, volumes, further=(), offsets=None, statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="main_loop" file="/common/simt_main_loop.mako"/>
<%
    columns, step, table, items = 128, 8, 64, 2 * rows
    x_loads = columns * step // items  # elements of a tile of x that a work-item loads
    axes = range(0 if volumes else 1, 3)
    lead = "" if volumes else "0, "
%>
% if statements:
${epilogue.declarations(name, ctype, 1, further, offsets, statements)}
% endif
## An index and how it factors: `left` and the axes.
<%def name="unravel(index, extents)">
            uint left = ${index};
            % for r in reversed(axes):
            const int i${r} = left % (uint)${extents}[${r}];
            left /= (uint)${extents}[${r}];
            % endfor
</%def>
<%def name="offset(strides, outer, v)" buffered="True" filter="trim">
(int)left * (int)${strides}.${outer}${"".join(f" + {v}{r} * (int){strides}.{'dhw'[r]}" for r in axes)}
</%def>
## The position of this work-item's column in the image, and where it is in x and y.
<%def name="fill_column_table()">
            ${unravel(f"min(n0 + item % {columns}, n - 1)", "p.out")}
            % for r in axes:
            const int v${r} = i${r} * (int)p.stride[${r}] - (int)p.pad[${r}];
            % endfor
            column = (int4)(${offset("p.x", "n", "v")}, ${lead}${", ".join(f"v{r}" for r in axes)});
            if (item < ${columns}) {
                y_column[item] = ${offset("p.y", "n", "i")};
                % if k_contiguous:
                x_column[item] = column;
                % endif
            }
</%def>
<%def name="fill_k_table(begin)">
            if (item < ${table}) {
                const int k = ${begin} + item, slot = (k - k_begin) & ${2 * table - 1};
                ${unravel("k", "p.taps")}
                % for r in axes:
                const int v${r} = i${r} * (int)p.dilation[${r}];
                % endfor
                x_k[slot] = (int4)(${offset("p.x", "c", "v")}, ${lead}${", ".join(f"v{r}" for r in axes[:-1])},
                                   k < k_end ? v2 : 1 << 30);
                w_k[slot] = k < k_end ? ${offset("p.w", "c", "i")} : INT_MIN;
            }
</%def>
<%def name="load_w()">
            const int w_at = w_k[slot0 + a_k];
            % for q in range(4):
<%  row = f"a_i + {q * items // step}" %>\
            ${ctype} a_${q} = 0;
            if (w_at != INT_MIN && ${row} < height)
                a_${q} = w[(${row}) * (int)p.w.m + w_at];
            % endfor
</%def>
<%def name="load_x()">
            % if k_contiguous:
            const int4 tap = x_k[slot0 + b_k];
            % endif
            % for q in range(x_loads):
            % if k_contiguous:
            const int4 at${q} = tap + x_column[b_i + ${q * items // step}];
            % else:
            const int4 at${q} = column + x_k[slot0 + b_k + ${q * items // columns}];
            % endif
            ${ctype} b_${q} = 0;
            if (${" && ".join(f"(uint)at{q}.s{r + 1} < (uint)p.image[{r}]" for r in axes)})
                b_${q} = x[at${q}.s0];
            % endfor
</%def>
<%def name="store_local()">
            % for q in range(4):
            tile_a[stage][a_k][a_i + ${q * items // step}] = a_${q};
            % endfor
            % for q in range(x_loads):
            % if k_contiguous:
            tile_b[stage][b_k][b_i + ${q * items // step}] = b_${q};
            % else:
            tile_b[stage][b_k + ${q * items // columns}][b_i] = b_${q};
            % endif
            % endfor
</%def>
// Two work-groups of 256 run at a time on a multiprocessor of NVIDIA's if a work-item has at most 128 registers.
__kernel __attribute__((reqd_work_group_size(8, 4, ${rows // 16})))
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *workspace${epilogue.parameters(name, ctype, further) if statements else ""})
{
    __local ${ctype} tile_a[2][${step}][${rows + 4}] __attribute__((aligned(16)));
    __local ${ctype} tile_b[2][${step}][${columns + 4}] __attribute__((aligned(16)));
    // Offsets in x, and where that is along each axis of the image.
    __local int4 x_k[${2 * table}]${f", x_column[{columns}]" if k_contiguous else ""};
    __local int w_k[${2 * table}], y_column[${columns}] __attribute__((aligned(16)));
    // 32 neighbours compute 8 x 4 of the squares: they read fewer elements of local memory than 16 x 2 would.
    const int tx = get_local_id(2) % 2 * 8 + get_local_id(0), ty = get_local_id(2) / 2 * 4 + get_local_id(1);
    const int item = get_local_id(2) * 32 + get_local_id(1) * 8 + get_local_id(0);
    const int a_i = item / ${step}, a_k = item % ${step};
    % if k_contiguous:
    const int b_i = item / ${step}, b_k = item % ${step};
    % else:
    const int b_i = item % ${columns}, b_k = item / ${columns};
    % endif
    const int n = p.batch * p.out[0] * p.out[1] * p.out[2], depth = p.c * p.taps[0] * p.taps[1] * p.taps[2];
    const int tiles = get_num_groups(0), tiles_per_row = (n + ${columns - 1}) / ${columns};
    // The tile is computed in the loop, though it stays the same: what depends on it must not take registers before.
    const long units = tiles * p.groups * p.split_k, next_unit = (long)tiles * get_num_groups(1);
    for (long unit = get_group_id(0) + (long)tiles * get_group_id(1); unit < units; unit += next_unit) {
        const int tile = unit % tiles, m0 = tile / tiles_per_row * ${rows}, n0 = tile % tiles_per_row * ${columns};
        const long g = unit / tiles % p.groups, part = unit / tiles / p.groups;
        const int k_begin = partition_begin(depth, ${step}, part, p.split_k);
        const int k_end = partition_begin(depth, ${step}, part + 1, p.split_k);
        const int height = p.m - m0, width = n - n0;
        __global const ${ctype} *const x = X + s.x + g * p.x.g;
        __global const ${ctype} *const w = W + s.w + g * p.w.g + m0 * p.w.m;
        barrier(CLK_LOCAL_MEM_FENCE);  // the tables and tiles were read
        int4 column;
        {
            ${fill_column_table()}
        }
        ${fill_k_table("k_begin")}
        barrier(CLK_LOCAL_MEM_FENCE);
        ${main_loop.clear_vector_sums(wide)}
        int stage = 1;
        #pragma unroll 1
        for (int k0 = k_begin - ${step}; k0 < k_end; k0 += ${step}) {
            const int slot0 = (k0 + ${step} - k_begin) & ${2 * table - 1};
            if (slot0 % ${table} == 0) {
                ${fill_k_table(f"k0 + {step + table}")}
            }
            ${load_w()}
            ${load_x()}
            if (k0 >= k_begin) {
                ${main_loop.multiply_vectors(ctype, wide, step, rows)}
            }
            stage ^= 1;
            ${store_local()}
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        __global ${ctype} *const y = Y + s.y + part * p.partial_stride + g * p.y.g + m0 * p.y.m;
        <%call expr="main_loop.store_sums(ctype, wide, rows, unroll=1)">
                if (row < height && column < width) {
                    const int at = row * (int)p.y.m + y_column[column];
                    % if statements:
                    ${wide} value = sum;
                    ${epilogue.apply(name, ctype, further, "value", "f.", "g * p.m + m0 + row", "(y - Y) + at")}
                    y[at] = value;
                    % else:
                    y[at] = sum;
                    % endif
                }
        </%call>
    }
}
