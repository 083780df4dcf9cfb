## The multiply-adds of the tile kernels of schedule simt (matrix products and convolutions), and the accumulators.
##
## Operands    tile_a[k][row], tile_b[k][column] in local memory, `step` elements along k.
## Tiling, scalar form: a work-group of group x group computes a tile of 4 * group x 4 * group; a work-item has 4 x 4
##     sums that are a group's width apart: c<i>_<j> is row ty + i * group, column tx + j * group.
## Tiling, vector form: a work-group of 16 x rows / 8 computes a tile of rows x 128; a work-item has four squares of 4
##     x 4: c<i>_<h> holds columns 64 * h + 4 * tx + 0..3 of row rows / 2 * (i / 4) + 4 * ty + i % 4. Tiles have two
##     stages: tile_a[stage][k][row].
<%! R4, R8 = range(4), range(8) %>
<%def name="clear_sums(wide)">
        % for i in R4:
        ${wide} ${", ".join(f"c{i}_{j} = 0" for j in R4)};
        % endfor
</%def>
<%def name="multiply(wide, step, group)">
            for (int k = 0; k < ${step}; k++) {
                % for j in R4:
                const ${wide} b${j} = tile_b[k][tx + ${j * group}];
                % endfor
                % for i in R4:
                const ${wide} a${i} = tile_a[k][ty + ${i * group}];
                % for j in R4:
                c${i}_${j} += a${i} * b${j};
                % endfor
                % endfor
            }
</%def>
<%def name="clear_vector_sums(wide)">
        % for i in R8:
        ${wide}4 c${i}_0 = 0, c${i}_1 = 0;
        % endfor
</%def>
<%def name="local_vec4(ctype, tile, at)" buffered="True" filter="trim">
*(__local const ${ctype}4 *)&${tile}[stage][k][${at}]
</%def>
<%def name="multiply_vectors(ctype, wide, step, rows)">
                // Not all steps at once: what they read early would take registers that the sums need.
                #pragma unroll 2
                for (int k = 0; k < ${step}; k++) {
                    const ${wide}4 a0 = ${local_vec4(ctype, "tile_a", "4 * ty")};
                    const ${wide}4 a1 = ${local_vec4(ctype, "tile_a", f"{rows // 2} + 4 * ty")};
                    const ${wide}4 b0 = ${local_vec4(ctype, "tile_b", "4 * tx")};
                    const ${wide}4 b1 = ${local_vec4(ctype, "tile_b", "64 + 4 * tx")};
                    % for i in R8:
                    % for h in range(2):
                    c${i}_${h} += a${i // 4}.s${i % 4} * b${h};
                    % endfor
                    % endfor
                }
</%def>
## Moves the sums of row i + 1 to row i, for a loop that stores row 0 only: unrolled, the addresses of all rows would
## take the registers of a second work-group.
<%def name="shift_rows()">
            % for i in R8[:-1]:
            c${i}_0 = c${i + 1}_0;
            c${i}_1 = c${i + 1}_1;
            % endfor
</%def>
## Vector form: stores the sums. They pass through the tiles' local memory, as columns of a work-item are four apart, so
## that neighbours store neighbouring columns. The body stores `sum` of `row` and `column` of the tile. Row after row
## uses the other tile, which saves a barrier; the tiles are free after the next barrier. With `unroll` steps of the
## inner loop at once ptxas keeps the sums in registers: others spill some.
<%def name="store_sums(ctype, wide, rows, unroll)">
        #pragma unroll 1
        for (int r = 0; r < 8; r++) {
            __local ${ctype} *const staged = r % 2 ? &tile_b[0][0][0] : &tile_a[0][0][0];
            % for h in range(2):
            *(__local ${ctype}4 *)&staged[128 * ty + ${64 * h} + 4 * tx] = c0_${h};
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll ${unroll}
            for (int q = item / 128; q < ${rows // 8}; q += ${2 * rows // 128}) {
                const int row = ${rows // 2} * (r / 4) + r % 4 + 4 * q, column = item % 128;
                const ${wide} sum = staged[128 * q + column];
                ${caller.body()}
            }
            ${shift_rows()}
        }
</%def>
