## Matrix product of float32, schedule simt, where there are enough large tiles for all compute units: a work-group of 16 x rows / 8
## computes rows x 128 elements, each work-item four squares of 4 x 4. What a step along k needs is fetched while the one before is
## computed, into the other half of the local memory: one barrier for each step.
<%page args="rows, name, ctype, wide, index, has_alpha, has_c, inputs, repeated, outputs, statements"/>
<%namespace name="shared" file="/gemm/simt_common.mako"/>
<%
    columns, step, items = 128, 8, 2 * rows
    loads = {"a": rows * step // items, "b": columns * step // items}  # elements of a block that a work-item fetches
    R, H = range(8), range(2)
%>
${shared.declarations()}

## Which elements of a block a work-item fetches: neighbours read neighbours, whichever way these lie.
<%def name="mine(x, tile, across, along)">
    const int ${x}_along = ${along} == 1;  // then k runs first
    const int ${x}_i = ${x}_along ? item / ${step} : item % ${tile}, ${x}_k = ${x}_along ? item % ${step} : item / ${tile};
    const int ${x}_di = ${x}_along ? ${items // step} : 0, ${x}_dk = ${x}_along ? 0 : ${items // tile};
    const ${index} ${x}_next = ${x}_di * ${across} + ${x}_dk * ${along};
</%def>
<%def name="fetch(x, count)">
            % for q in range(loads[x]):
            ${ctype} ${x}_${q} = is_whole || (${x}_i + ${q} * ${x}_di < ${count} && at_k + ${x}_k + ${q} * ${x}_dk < k_end) ? ${x}[${q} * ${x}_next] : 0;
            % endfor
            ${x} += ${step} * (long)${x}_step;
</%def>
<%def name="put(x, half)">
            % for q in range(loads[x]):
            tile_${x}[${half}][${x}_k + ${q} * ${x}_dk][${x}_i + ${q} * ${x}_di] = ${x}_${q};
            % endfor
</%def>
<%def name="quad(x, half, at)" buffered="True" filter="trim">
*(__local const ${ctype}4 *)&tile_${x}[${half}][k][${at}]
</%def>
// ${"Two work-groups of 256" if rows == 128 else "Three work-groups of 128"} run at a time on a multiprocessor of NVIDIA's if each of their work-items
// has at most ${128 if rows == 128 else 168} registers.
__kernel __attribute__((reqd_work_group_size(16, ${rows // 8}, 1)))
void ${name}(${shared.parameters()})
{
    // Rows of four elements more: those of a block's columns lie in different banks.
    __local ${ctype} tile_a[2][${step}][${rows + 4}] __attribute__((aligned(16))), tile_b[2][${step}][${columns + 4}] __attribute__((aligned(16)));
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * 16 + tx;
    const ${index} a_row = p.a.row, a_step = p.a.col, b_step = p.b.row, b_col = p.b.col;
    ${mine("a", rows, "a_row", "a_step")}
    ${mine("b", columns, "b_col", "b_step")}
    ${shared.read_scalars()}
    ${shared.parts(step, rows, columns)}
        const int is_full = height >= ${rows} && width >= ${columns};
        __global const ${ctype} *a = A + s.a + gemm_start(&p.a, p.shape, batch) + (m0 + a_i) * p.a.row + (k_first + a_k) * p.a.col;
        __global const ${ctype} *b = B + s.b + gemm_start(&p.b, p.shape, batch) + (n0 + b_i) * p.b.col + (k_first + b_k) * p.b.row;
        % for i in R:
        ${wide}4 c${i}_0 = 0, c${i}_1 = 0;
        % endfor
        int half_now = 1;
        for (${index} k0 = k_first - ${step}; k0 < k_end; k0 += ${step}) {
            const ${index} at_k = k0 + ${step};
            const int is_whole = is_full && at_k + ${step} <= k_end;
            ${fetch("a", "height")}
            ${fetch("b", "width")}
            if (k0 >= k_first) {
                // Not all steps at once: what they read early would take registers that the sums need.
                #pragma unroll 2
                for (int k = 0; k < ${step}; k++) {
                    const ${wide}4 a0 = ${quad("a", "half_now", "4 * ty")}, a1 = ${quad("a", "half_now", f"{rows // 2} + 4 * ty")};
                    const ${wide}4 b0 = ${quad("b", "half_now", "4 * tx")}, b1 = ${quad("b", "half_now", "64 + 4 * tx")};
                    % for i in R:
                    % for h in H:
                    c${i}_${h} += a${i // 4}.s${i % 4} * b${h};
                    % endfor
                    % endfor
                }
            }
            half_now ^= 1;
            ${put("a", "half_now")}
            ${put("b", "half_now")}
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        ${shared.results()}
        // A loop that moves the sums along: unrolled, the addresses of all rows would take the registers of a second work-group.
        #pragma unroll 1
        for (int r = 0; r < ${len(R)}; r++) {
            const ${index} i = ${rows // 2} * (r / 4) + r % 4 + 4 * ty;
            % for h in H:
            {
                const ${index} j = ${64 * h} + 4 * tx;
                % for lane in range(4):
                if (i < height && j + ${lane} < width) { ${shared.store(f"c0_{h}.s{lane}", "(m0 + i)", f"(n0 + j + {lane})")} }
                % endfor
            }
            % endfor
            % for i in R[:-1]:
            c${i}_0 = c${i + 1}_0, c${i}_1 = c${i + 1}_1;
            % endfor
        }
    }
}
${shared.finish()}
