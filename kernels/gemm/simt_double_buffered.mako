## Matrix product of float32 or float64, schedule simt, in tiles whose sums are in registers.
##
## Algorithm   Two stages of local memory: the next step along k is loaded from global memory while the one before is
##             computed, then stored into the other stage. One barrier for each step. `slices` parts of a work-group
##             each compute the whole tile for their part of each step; their sums are added at the end, in order: so
##             small tiles have as many work-items as large ones, and as many sums in each.
##             `matrix`, the k of an instruction m16n8k8 or m8n8k4 of NVIDIA's tensor cores: 32 neighbouring work-items
##             compute 32 x 32 sums by it. It rounds as fma does. 0: multiply-adds.
## Operands    A (m, k), B (k, n), C and O (m, n), any strides, up to four batch dimensions; plan.mako. Work-items load
##             16 bytes at a time where one stride is 1, the other a multiple of 16 bytes, and the first element
##             aligned.
## Tiling      Rows x columns sums for a work-group, `step` elements along k. A work-item has `item_rows` rows x 2
##             vectors of 16 bytes: the vectors of a row, and runs of as many rows, are far apart, so that 8 neighbours
##             read 128 bytes. With `matrix` it has 4 rows x 4 pairs.
##             `fragments`: how many of a work-item's parts of A and B, for one element along k, are in registers: with
##             2 the next ones are read while it multiplies, even beyond the barrier. `registers`: the limit for a
##             work-item on NVIDIA's devices; 0: none.
## NDRange     A work-group for each tile, of each product of a batch or of each part of k: group 0 has all of them.
## Workspace   The partial sums (split_k, m, n), if k is split.
## Invariants  Local memory is stage x (A, then B) x element along k x row (or column). Row i of element k is stored at
##             i ^ swizzle(k), so that neither the loads nor the stores of a column have bank conflicts.
##             The first pass of the loop only loads, the last one only computes.
## Reference   PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m8n8k4" with .f64 type. The order along k of the
##             fragments is free, as long as A and B have the same: number j of a work-item is element
##             2 * (lane % 4) + j.
<%page args="rows, columns, step, slices, matrix, item_rows, fragments, registers, name, ctype, wide, index,
             has_alpha, has_c, call, starts, inputs, repeated, outputs, statements"/>
<%namespace name="common" file="/gemm/simt_common.mako"/>
<%
    itemsize = {"float": 4, "double": 8}[ctype]
    lanes = 16 // itemsize  # elements of 16 bytes
    vector = f"{ctype}{lanes}"
    own_rows, own_vectors = (4, 4) if matrix else (item_rows, 2)  # sums of a work-item
    group_rows = rows // own_rows  # rows of the tile that are stored at a time
    items = group_rows * columns // (own_vectors * lanes) * slices
    depth = step // slices  # elements along k of a slice's step
    # distance between the banks of `lanes` elements along k, and how many distances there are
    unit, cycle = (4, 4) if matrix else (128 // itemsize // (step // lanes), step // lanes)
    stage_size = step * (rows + columns)
    staged_size = group_rows * columns * slices
    alternates = 2 * staged_size <= 2 * stage_size
    R, H, V = range(own_rows), range(own_vectors), range(lanes)
    out_lanes = 1 if outputs else lanes
    pipelined = fragments == 2 and not matrix and depth % 2 == 0
    assert not pipelined or all(n % 128 == 0 for n in (columns * itemsize // own_vectors, rows * 16 // own_rows))
    fragment_names = [f"b{h}" for h in H] + [f"a{g}" for g in range(own_rows // lanes)]
    tiles_of = {"a": rows, "b": columns}
    loads = {x: tile * step // lanes // items for x, tile in tiles_of.items()}  # vectors that a work-item loads

    def run(number, length, first):  # where a vector is stored whose run of vectors begins at number * length
        return f"({first} {'+' if length * itemsize % 128 == 0 else '^'} {number * length})"

    def next_i(x):  # how far apart the vectors along k are that a work-item loads
        return items * lanes // step

    def next_k(x):  # the same for vectors along rows or columns
        return items * lanes // tiles_of[x]

    assert all(n * lanes * items == tiles_of[x] * step for x, n in loads.items()) and staged_size <= 2 * stage_size
%>
${common.declarations()}

<%def name="swizzle(k)" buffered="True" filter="trim">${unit} * (${k} / ${lanes} % ${cycle})</%def>
<%def name="first_vector(x, across)">
    const int ${x}_along_k = ${across} != 1;
    const int ${x}_i = ${x}_along_k ? item / ${step // lanes} : item % ${tiles_of[x] // lanes} * ${lanes};
    const int ${x}_k = ${x}_along_k ? item % ${step // lanes} * ${lanes} : item / ${tiles_of[x] // lanes};
</%def>
## The vectors of a tile that a work-item loads: the first begins at (x_i, x_k), the next are x_next elements apart in
## global memory. Number q is stored at x_to<q> of the tile.
<%def name="loaded_vectors(x, across, along)">
<% tile = tiles_of[x] %>\
    ${first_vector(x, across)}
    const ${index} ${x}_next = ${x}_along_k ? ${next_i(x)} * ${across} : ${next_k(x)} * ${along};
    % for q in range(loads[x]):
    const int ${x}_to${q} = ${x}_along_k
        ? ${x}_k * ${tile} + ((${x}_i + ${q * next_i(x)}) ^ ${swizzle(f"{x}_k")})
        : (${x}_k + ${q * next_k(x)}) * ${tile} + (${x}_i ^ ${swizzle(f"({x}_k + {q * next_k(x)})")});
    % endfor
</%def>
## The sums of a work-item.
<%def name="item_position()">
    const int slice = item / ${items // slices}, own = item % ${items // slices}, lane = own % 32;
    % if matrix:
    const int across = own / 32 % ${columns // 32} * 32, down = own / 32 / ${columns // 32};
    const int pair = lane % 4, staged_row = down * 8 + lane / 4;
    const int a_bank0 = down * 32 + (lane / 4 ^ 4 * pair), a_bank1 = a_bank0 ^ 8;
    const int b_bank0 = across + (lane / 4 ^ 4 * pair), b_bank1 = b_bank0 ^ 8;
    const int column0 = across + 2 * pair;
    % else:
    // 32 neighbours are 4 x 8, in an order in which those of each half read 128 bytes of B, and the same of A.
    const int tx = own / 32 % ${columns // lanes // 16} * 8 + lane / 4 % 4 * 2 + lane % 2;
    const int staged_row = own / 32 / ${columns // lanes // 16} * 4 + lane / 16 * 2 + lane / 2 % 2;
    const int row0 = ${lanes} * staged_row, column0 = ${lanes} * tx;
    % endif
</%def>
<%def name="tile_position()">
    const ${index} part = place[0], m0 = place[1], n0 = place[2], height = p.m - m0, width = p.n - n0;
    const ${index} batch = p.split_k > 1 ? 0 : part;
</%def>
## Whether the vectors of an operand can be loaded at once.
<%def name="bounds(x, across, along, count)">
        const int ${x}_has_vectors =
            (${x}_along_k ? ${along} == 1 && ${across} % ${lanes} == 0 : ${along} % ${lanes} == 0)
            && ((size_t)${x} & 15) == 0;
        ${x}_is_full = ${x}_has_vectors && ${count} >= ${tiles_of[x]};
</%def>
## At an edge a work-item finds its place again: in other tiles no register is left for it.
<%def name="load_global(x, across, along, count)">
                if (${x}_is_full && left >= ${step}) {
                    % for q in range(loads[x]):
                    ${x}_${q} = *(__global const ${vector} *)(${x} + ${q} * ${x}_next);
                    % endfor
                } else {
                    const int item = place[3] + get_local_id(1) * 32 + get_local_id(0);
                    ${first_vector(x, across)}
                    const ${index} ${x}_next = ${x}_along_k ? ${next_i(x)} * ${across} : ${next_k(x)} * ${along};
                    const int ${x}_left = ${count} - ${x}_i;
                    if (${x}_along_k) {
                    % for q in range(loads[x]):
                    % for e in V:
                    if (${q * next_i(x)} < ${x}_left && ${e} < left - ${x}_k)
                        ${x}_${q}.s${e} = ${x}[${q} * ${x}_next + ${e} * ${along}];
                    % endfor
                    % endfor
                    } else {
                    % for q in range(loads[x]):
                    % for e in V:
                    if (${e} < ${x}_left && ${q * next_k(x)} < left - ${x}_k)
                        ${x}_${q}.s${e} = ${x}[${q} * ${x}_next + ${e}];
                    % endfor
                    % endfor
                    }
                }
                ${x} += ${step} * ${along};
</%def>
<%def name="store_local(x)">
<% tile, at = tiles_of[x], "next" if x == "a" else f"next + {step * rows}" %>\
                if (${x}_along_k) {
                    % for q in range(loads[x]):
                    % for e in V:
                    (${at})[${x}_to${q} + ${e * tile}] = ${x}_${q}.s${e};
                    % endfor
                    % endfor
                } else {
                    % for q in range(loads[x]):
                    *(__local ${vector} *)(${at} + ${x}_to${q}) = ${x}_${q};
                    % endfor
                }
</%def>
<%def name="multiply()">
                // Not all steps at once: what they read early would take registers that the sums need.
                #pragma unroll 2
                for (int d = slice * ${depth}; d < slice * ${depth} + ${depth}; d += ${min(depth, lanes)}) {
                    const int row = row0 ^ ${swizzle("d")}, column = column0 ^ ${swizzle("d")};
                    __local const ${ctype} *const a_at = now + d * ${rows};
                    __local const ${ctype} *const b_at = now + ${step * rows} + d * ${columns};
                    #pragma unroll ${min(depth, lanes) if slices == 1 else 2}
                    for (int k = 0; k < ${min(depth, lanes)}; k++) {
                        % for h in H:
                        const ${vector} b${h} = *(__local const ${vector} *)
                            &b_at[k * ${columns} + ${run(h, columns // own_vectors, "column")}];
                        % endfor
                        % for g in range(own_rows // lanes):
                        const ${vector} a${g} = *(__local const ${vector} *)
                            &a_at[k * ${rows} + ${run(g, rows * lanes // own_rows, "row")}];
                        % endfor
                        % for i in R:
                        % for h in H:
                        c${i}_${h} += a${i // lanes}.s${i % lanes} * b${h};
                        % endfor
                        % endfor
                    }
                }
</%def>
## The places of a work-item's fragments in a stage, for each way in which elements along k are stored.
<%def name="fragment_places(stage)">
                % for way in range(max(1, min(cycle, depth // lanes))):
                const int turn${way} = ${swizzle(f"(slice * {depth} + {way * lanes})")};
                __local const ${ctype} *const a_at${way} = ${stage} + slice * ${depth * rows} + (row0 ^ turn${way});
                __local const ${ctype} *const b_at${way} =
                    ${stage} + ${step * rows} + slice * ${depth * columns} + (column0 ^ turn${way});
                % endfor
</%def>
## Reads the fragments of element k of the slice's step.
<%def name="read_fragments(k)">
<%
    way, to = k // lanes % cycle, f"_{k % 2}"
%>\
                % for h in H:
                b${h}${to} = *(__local const ${vector} *)(b_at${way} + ${k * columns + h * columns // own_vectors});
                % endfor
                % for g in range(own_rows // lanes):
                a${g}${to} = *(__local const ${vector} *)(a_at${way} + ${k * rows + g * rows * lanes // own_rows});
                % endfor
</%def>
<%def name="multiply_fragments(k)">
                % for i in R:
                % for h in H:
                c${i}_${h} += a${i // lanes}_${k % 2}.s${i % lanes} * b${h}_${k % 2};
                % endfor
                % endfor
</%def>
<%def name="multiply_by_instruction()">
                #pragma unroll
                for (int d = 0; d < ${depth}; d += 8) {
                    __local const ${ctype} *const a_at = now + (slice * ${depth} + d + 2 * pair) * ${rows};
                    __local const ${ctype} *const b_at = now + ${step * rows}
                        + (slice * ${depth} + d + 2 * pair) * ${columns};
                    % for j in range(2):
                    % for i in R:
                    const ${ctype} a${i}_${j} = a_at[${j * rows} + a_bank${i % 2} + ${i // 2 * 16}];
                    % endfor
                    % endfor
                    % for h in H:
                    {
                        const ${ctype} b0 = b_at[b_bank${h % 2} + ${h // 2 * 16}];
                        const ${ctype} b1 = b_at[${columns} + b_bank${h % 2} + ${h // 2 * 16}];
                        % if matrix == 8:
                        % for i in (0, 2):
                        __asm__ volatile(
                            "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                            "{%8, %9}, {%0, %1, %2, %3};"
                            : "+d"(c${i}_${h}x), "+d"(c${i}_${h}y), "+d"(c${i + 1}_${h}x), "+d"(c${i + 1}_${h}y)
                            : "d"(a${i}_0), "d"(a${i + 1}_0), "d"(a${i}_1), "d"(a${i + 1}_1), "d"(b0), "d"(b1));
                        % endfor
                        % else:
                        % for j in range(2):
                        % for i in R:
                        __asm__ volatile(
                            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                            : "+d"(c${i}_${h}x), "+d"(c${i}_${h}y) : "d"(a${i}_${j}), "d"(b${j}));
                        % endfor
                        % endfor
                        % endif
                    }
                    % endfor
                }
</%def>
## Stores the sums, a row of each work-item at a time: they pass through local memory, where the slices' sums are added
## up, so that neighbours store neighbouring columns. A loop that stores row 0, to which the others move: unrolled, the
## addresses of all rows would take the registers of a second work-group.
<%def name="store_sums()">
        #pragma unroll 1
        for (int r = 0; r < ${own_rows}; r++) {
            __local ${ctype} *const staged = space${f" + r % 2 * {stage_size}" if alternates else ""};
            __local ${ctype} *const to = staged + (slice * ${group_rows} + staged_row) * ${columns};
            % for h in H:
            *(__local ${vector} *)&to[column0 + ${h * (8 if matrix else columns // own_vectors)}] =
                ${f"(double2)(c0_{h}x, c0_{h}y)" if matrix else f"c0_{h}"};
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 1
            for (int q = item; q < ${group_rows * columns // out_lanes}; q += ${items}) {
                const int t = q / ${columns // out_lanes}, column = q % ${columns // out_lanes} * ${out_lanes};
                % if matrix:
                const int row = t / 8 * 32 + 8 * r + t % 8;
                % else:
                const int row = r / ${lanes} * ${rows * lanes // own_rows} + r % ${lanes} + t * ${lanes};
                % endif
                % if outputs:
                ${ctype} sum = staged[q];
                % for k in range(1, slices):
                sum += staged[${k * group_rows * columns} + q];
                % endfor
                if (row < height && column < width) {
                    ${common.store("sum", "(m0 + row)", "(n0 + column)")}
                }
                % else:
                ${vector} sum = *(__local ${vector} *)&staged[${lanes} * q];
                % for k in range(1, slices):
                sum += *(__local ${vector} *)&staged[${k * group_rows * columns} + ${lanes} * q];
                % endfor
                if (row < height && column < width) {
                    ${store_vector()}
                }
                % endif
            }
            % for i in R[:-1]:
            % for h in H:
            % for end in ("x", "y") if matrix else ("",):
            c${i}_${h}${end} = c${i + 1}_${h}${end};
            % endfor
            % endfor
            % endfor
            % if not alternates:
            barrier(CLK_LOCAL_MEM_FENCE);
            % endif
        }
</%def>
<%def name="store_vector()">
                    % if has_alpha or has_c:
                    if (p.split_k == 1) {
                        % for e in V:
                        ${"if (column + %d < width)" % e if e else ""}
                            sum.s${e} = ${name}_scaled(sum.s${e}, &p, &s, m0 + row, n0 + column + ${e}, c);
                        % endfor
                    }
                    % endif
                    __global ${ctype} *const r0 = result + row * result_row + column * result_col;
                    if (result_has_vectors && column + ${lanes} <= width)
                        *(__global ${vector} *)r0 = sum;
                    else {
                        % for e in V:
                        ${"if (column + %d < width)" % e if e else ""}
                            r0[${e} * result_col] = sum.s${e};
                        % endfor
                    }
</%def>
% if registers and index != "long" and (itemsize == 4 or matrix):
## 64-bit indices take too many registers for a limit, and float64 needs no second work-group to fill its units.
// ${65536 // registers} work-items run at a time on a multiprocessor of NVIDIA's if a work-item has \
at most ${registers} registers.
% endif
__kernel __attribute__((reqd_work_group_size(32, ${items // 32}, 1)))
void ${name}(${common.parameters()})
{
    __local ${ctype} space[${2 * stage_size}] __attribute__((aligned(16)));
    // Where the tile is, and which work-item is the first: read again after the loop, which needs all registers.
    __local ${index} place[4];
    % for i in R:
    % if matrix:
    ${ctype} ${", ".join(f"c{i}_{h}x = 0, c{i}_{h}y = 0" for h in H)};
    % else:
    ${vector} ${", ".join(f"c{i}_{h} = 0" for h in H)};
    % endif
    % endfor
    {
        const int item = get_local_id(1) * 32 + get_local_id(0);
        ${item_position()}
        const ${index} a_row = p.a.row, a_step = p.a.col, b_step = p.b.row, b_col = p.b.col;
        ${loaded_vectors("a", "a_row", "a_step")}
        ${loaded_vectors("b", "b_col", "b_step")}
        const ${index} tiles_per_row = (p.n + ${columns - 1}) / ${columns};
        const ${index} tiles = (p.m + ${rows - 1}) / ${rows} * tiles_per_row;
        ${common.read_scalars()}
        if (item == 0) {
            place[0] = get_group_id(0) / tiles;
            place[1] = get_group_id(0) % tiles / tiles_per_row * ${rows};
            place[2] = get_group_id(0) % tiles % tiles_per_row * ${columns};
            place[3] = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ${index} left;  // elements along k from the next step on
        __global const ${ctype} *a, *b;
        int a_is_full, b_is_full;
        {
            ${tile_position()}
            const ${index} k_begin = p.split_k > 1 ? partition_begin(p.k, ${step}, part, p.split_k) : 0;
            const ${index} k_end = p.split_k > 1 ? partition_begin(p.k, ${step}, part + 1, p.split_k) : p.k;
            left = k_end - k_begin;
            a = A + s.a + gemm_start(&p.a, p.batch_shape, batch);
            b = B + s.b + gemm_start(&p.b, p.batch_shape, batch);
            ${bounds("a", "a_row", "a_step", "height")}
            ${bounds("b", "b_col", "b_step", "width")}
            a += (m0 + a_i) * p.a.row + (k_begin + a_k) * p.a.col;
            b += (n0 + b_i) * p.b.col + (k_begin + b_k) * p.b.row;
        }
        % if pipelined:
        ${vector} ${", ".join(f"{x}_{f} = 0" for x in fragment_names for f in (0, 1))};
        % endif
        int stage = 2;  // of the step that is computed; 2: there is none yet
        for (; left > -${step}; left -= ${step}) {
            ${vector} ${", ".join(f"{x}_{q} = 0" for x in "ab" for q in range(loads[x]))};
            if (left > 0) {
                ${load_global("a", "a_row", "a_step", "p.m - place[1]")}
                ${load_global("b", "b_col", "b_step", "p.n - place[2]")}
            }
            if (stage < 2) {
                __local const ${ctype} *const now = space + stage * ${stage_size};
                % if pipelined:
                ${fragment_places("now")}
                % for k in range(depth - 1):
                ${read_fragments(k + 1)}
                ${multiply_fragments(k)}
                % endfor
                % else:
                ${multiply_by_instruction() if matrix else multiply()}
                % endif
            }
            stage = (stage ^ 1) & 1;
            if (left > 0) {
                __local ${ctype} *const next = space + stage * ${stage_size};
                ${store_local("a")}
                ${store_local("b")}
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            % if pipelined:
            // The last element along k of this step, while the first of the next step is read. Before the first step
            // all fragments are zero.
            if (left > 0) {
                __local const ${ctype} *const next = space + stage * ${stage_size};
                ${fragment_places("next")}
                ${read_fragments(0)}
            }
            ${multiply_fragments(depth - 1)}
            % endif
        }
    }
    const int item = place[3] + get_local_id(1) * 32 + get_local_id(0);
    ${item_position()}
    ${tile_position()}
    ${common.output_pointers()}
    % if not outputs:
    const int is_part = p.split_k > 1;
    const long result_row = is_part ? p.n : p.o.row, result_col = is_part ? 1 : p.o.col;
    __global ${ctype} *const result =
        (is_part ? workspace + (long)part * p.m * p.n : o) + m0 * result_row + n0 * result_col;
    const int result_has_vectors = result_col == 1 && result_row % ${lanes} == 0 && ((size_t)result & 15) == 0;
    % endif
    ${store_sums()}
}
${common.finish()}
