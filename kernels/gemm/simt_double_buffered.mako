## Matrix product of float32, schedule simt, for products with enough large tiles for all compute units.
##
## Algorithm   As simt.mako, with two stages of local memory: the next step along k is loaded from global memory while
##             the one before is computed, then stored into the other stage. One barrier for each step.
## Operands    A (m, k), B (k, n), C and O (m, n), any strides, up to four batch dimensions; plan.mako.
## Tiling      Rows x 128 sums for a work-group of 16 x rows / 8, 8 elements along k; common/simt_main_loop.mako, vector
##             form.
## NDRange     Group 0 is a tile of the output, group 1 loops over batches, or is a part of k.
## Workspace   The partial sums (split_k, m, n), if k is split.
## Invariants: local memory, stage x element along k x row (or column); four elements of padding put the columns of a
##     tile into different banks:
##         tile_a[2][8][rows + 4], tile_b[2][8][128 + 4]
##     The loop begins a step before k_begin: its first pass only loads.
<%page args="rows, name, ctype, wide, index, has_alpha, has_c, call, starts, inputs, repeated, outputs,
             statements"/>
<%namespace name="common" file="/gemm/simt_common.mako"/>
<%namespace name="main_loop" file="/common/simt_main_loop.mako"/>
<%
    columns, step, items = 128, 8, 2 * rows
    loads = {"a": rows * step // items, "b": columns * step // items}  # elements of a tile that a work-item loads
%>
${common.declarations()}

## The elements of a tile that a work-item loads: number q is (x_i + q * x_di, x_k + q * x_dk). Neighbours read
##     neighbours, whether rows or columns are contiguous.
<%def name="thread_tile_coord(x, tile, across, along)">
    const int ${x}_k_contiguous = ${along} == 1;
    const int ${x}_i = ${x}_k_contiguous ? item / ${step} : item % ${tile};
    const int ${x}_k = ${x}_k_contiguous ? item % ${step} : item / ${tile};
    const int ${x}_di = ${x}_k_contiguous ? ${items // step} : 0, ${x}_dk = ${x}_k_contiguous ? 0 : ${items // tile};
    const ${index} ${x}_next = ${x}_di * ${across} + ${x}_dk * ${along};
</%def>
<%def name="load_global(x, count)">
            % for q in range(loads[x]):
            ${ctype} ${x}_${q} = 0;
            if (is_inside || (${x}_i + ${q} * ${x}_di < ${count} && next_k0 + ${x}_k + ${q} * ${x}_dk < k_end))
                ${x}_${q} = ${x}[${q} * ${x}_next];
            % endfor
            ${x} += ${step} * (long)${x}_step;
</%def>
<%def name="store_local(x)">
            % for q in range(loads[x]):
            tile_${x}[stage][${x}_k + ${q} * ${x}_dk][${x}_i + ${q} * ${x}_di] = ${x}_${q};
            % endfor
</%def>
% if index == "long":
## 64-bit indices take too many registers for a limit.
% elif rows == 128:
// Two work-groups of 256 run at a time on a multiprocessor of NVIDIA's if a work-item has at most 128 registers.
% else:
// Three work-groups of 128 run at a time on a multiprocessor of NVIDIA's if a work-item has at most 168 registers.
% endif
__kernel __attribute__((reqd_work_group_size(16, ${rows // 8}, 1)))
void ${name}(${common.parameters()})
{
    __local ${ctype} tile_a[2][${step}][${rows + 4}] __attribute__((aligned(16)));
    __local ${ctype} tile_b[2][${step}][${columns + 4}] __attribute__((aligned(16)));
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * 16 + tx;
    const ${index} a_row = p.a.row, a_step = p.a.col, b_step = p.b.row, b_col = p.b.col;
    ${thread_tile_coord("a", rows, "a_row", "a_step")}
    ${thread_tile_coord("b", columns, "b_col", "b_step")}
    ${common.read_scalars()}
    ${common.for_each_tile(step, rows, columns)}
        const int is_full_tile = height >= ${rows} && width >= ${columns};
        __global const ${ctype} *a =
            A + s.a + gemm_start(&p.a, p.batch_shape, batch) + (m0 + a_i) * p.a.row + (k_begin + a_k) * p.a.col;
        __global const ${ctype} *b =
            B + s.b + gemm_start(&p.b, p.batch_shape, batch) + (n0 + b_i) * p.b.col + (k_begin + b_k) * p.b.row;
        ${main_loop.clear_vector_sums(wide)}
        int stage = 1;
        for (${index} k0 = k_begin - ${step}; k0 < k_end; k0 += ${step}) {
            const ${index} next_k0 = k0 + ${step};
            const int is_inside = is_full_tile && next_k0 + ${step} <= k_end;
            ${load_global("a", "height")}
            ${load_global("b", "width")}
            if (k0 >= k_begin) {
                ${main_loop.multiply_vectors(ctype, wide, step, rows)}
            }
            stage ^= 1;
            ${store_local("a")}
            ${store_local("b")}
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        ${common.output_pointers()}
        <%call expr="main_loop.store_sums(ctype, wide, rows, unroll=4)">
                if (row < height && column < width) {
                    ${common.store("sum", "(m0 + row)", "(n0 + column)")}
                }
        </%call>
        barrier(CLK_LOCAL_MEM_FENCE);  // the tiles were read
    }
}
${common.finish()}
