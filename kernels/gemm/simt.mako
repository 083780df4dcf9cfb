## Matrix product, schedule simt, for any dtype: O = alpha * A @ B + beta * C, or an epilogue of that.
##
## Algorithm   Tiles of A and B pass through local memory, `step` elements along k at a time.
## Operands    A (m, k), B (k, n), C and O (m, n), any strides, up to four batch dimensions; plan.mako.
## Tiling      See common/simt_main_loop.mako, scalar form. Sums are a group's width apart, so that neighbours write
##             neighbours.
## NDRange     Group 0 is a tile of the output, group 1 loops over batches, or is a part of k.
## Workspace   The partial sums (split_k, m, n), if k is split.
## Invariants  work-items of a group take the same path to each barrier; elements beyond the edges are zero in local
##             memory.
<%page args="name, ctype, wide, index, group, step, padding, has_alpha, has_c, call, starts, inputs, repeated,
             outputs, statements"/>
<%namespace name="common" file="/gemm/simt_common.mako"/>
<%namespace name="main_loop" file="/common/simt_main_loop.mako"/>
<%
    tile = 4 * group
    R = range(4)
%>
${common.declarations()}

## Copies a tile from global to local memory and advances the pointer. Neighbouring work-items read neighbouring
## elements, whether rows or columns are contiguous.
<%def name="load_tile(to, source, across, along, count)">
            for (int e = item; e < ${tile * step}; e += ${group * group}) {
                const int i = ${along} == 1 ? e / ${step} : e % ${tile};
                const int k = ${along} == 1 ? e % ${step} : e / ${tile};
                ${to}[k][i] = i < ${count} && k0 + k < k_end ? ${source}[i * ${across} + k * ${along}] : 0;
            }
            ${source} += ${step} * (long)${along};
</%def>
__kernel __attribute__((reqd_work_group_size(${group}, ${group}, 1)))
void ${name}(${common.parameters()})
{
    __local ${ctype} tile_a[${step}][${tile + padding}], tile_b[${step}][${tile + padding}];
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * ${group} + tx;
    const ${index} a_row = p.a.row, a_col = p.a.col, b_row = p.b.row, b_col = p.b.col;
    ${common.read_scalars()}
    ${common.for_each_tile(step, tile, tile)}
        __global const ${ctype} *a =
            A + s.a + gemm_start(&p.a, p.batch_shape, batch) + m0 * p.a.row + k_begin * p.a.col;
        __global const ${ctype} *b =
            B + s.b + gemm_start(&p.b, p.batch_shape, batch) + n0 * p.b.col + k_begin * p.b.row;
        ${main_loop.clear_sums(wide)}
        for (${index} k0 = k_begin; k0 < k_end; k0 += ${step}) {
            ${load_tile("tile_a", "a", "a_row", "a_col", "height")}
            ${load_tile("tile_b", "b", "b_col", "b_row", "width")}
            barrier(CLK_LOCAL_MEM_FENCE);
            ${main_loop.multiply(wide, step, group)}
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        ${common.output_pointers()}
        % for i in R:
        % for j in R:
        {
            const long i = ty + ${i * group}, j = tx + ${j * group};
            if (i < height && j < width) {
                ${common.store(f"c{i}_{j}", "(m0 + i)", "(n0 + j)")}
            }
        }
        % endfor
        % endfor
    }
}
${common.finish()}
