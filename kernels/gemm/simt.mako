## Matrix product, schedule simt: a work-group computes a square tile of the output, each work-item 4 x 4 elements of it that
## lie a group's width apart (so that neighbours write neighbours). A and B pass through local memory, any strides.
<%page args="name, ctype, wide, index, group, step, padding, has_alpha, has_c, inputs, repeated, outputs, statements"/>
<%namespace name="shared" file="/gemm/simt_common.mako"/>
<%
    tile = 4 * group
    R = range(4)
%>
${shared.declarations()}

<%def name="load(to, source, across, along, count)">
        // Neighbouring work-items read neighbouring elements, whichever way these lie.
        for (int e = item; e < ${tile * step}; e += ${group * group}) {
            const int i = ${along} == 1 ? e / ${step} : e % ${tile}, k = ${along} == 1 ? e % ${step} : e / ${tile};
            ${to}[k][i] = i < ${count} && k0 + k < k_end ? ${source}[i * ${across} + k * ${along}] : 0;
        }
        ${source} += ${step} * (long)${along};
</%def>
__kernel __attribute__((reqd_work_group_size(${group}, ${group}, 1)))
void ${name}(${shared.parameters()})
{
    __local ${ctype} tile_a[${step}][${tile + padding}], tile_b[${step}][${tile + padding}];
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * ${group} + tx;
    const ${index} a_row = p.a.row, a_col = p.a.col, b_row = p.b.row, b_col = p.b.col;
    ${shared.read_scalars()}
    ${shared.parts(step, tile, tile)}
        __global const ${ctype} *a = A + s.a + gemm_start(&p.a, p.shape, batch) + m0 * p.a.row + k_first * p.a.col;
        __global const ${ctype} *b = B + s.b + gemm_start(&p.b, p.shape, batch) + n0 * p.b.col + k_first * p.b.row;
        % for i in R:
        ${wide} ${", ".join(f"c{i}_{j} = 0" for j in R)};
        % endfor
        for (${index} k0 = k_first; k0 < k_end; k0 += ${step}) {
            ${load("tile_a", "a", "a_row", "a_col", "height")}
            ${load("tile_b", "b", "b_col", "b_row", "width")}
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int k = 0; k < ${step}; k++) {
                const ${wide} ${", ".join(f"b{j} = tile_b[k][tx + {j * group}]" for j in R)};
                % for i in R:
                { const ${wide} x = tile_a[k][ty + ${i * group}]; ${" ".join(f"c{i}_{j} += x * b{j};" for j in R)} }
                % endfor
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        ${shared.results()}
        % for i in R:
        % for j in R:
        {
            const long i = ty + ${i * group}, j = tx + ${j * group};
            if (i < height && j < width) {
                ${shared.store(f"c{i}_{j}", "(m0 + i)", "(n0 + j)")}
            }
        }
        % endfor
        % endfor
    }
}
${shared.finish()}
