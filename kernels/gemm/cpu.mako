## Matrix product, schedule cpu: O = alpha * A @ B + beta * C, or an epilogue of that.
##
## Algorithm   The five loops of BLIS around a micro-kernel. The operands are read in place; only what the micro-kernel
##             cannot read (B without contiguous columns, the edges) is packed into panels first: by each work-item, or
##             by another kernel (shared_packing.mako), once for all of them.
## Operands    A (m, k), B (k, n), C and O (m, n), any strides, up to four batch dimensions; plan.mako.
## Tiling      Blocks of mc rows and kc elements along k; panels of nr = lanes * vectors columns; register tiles of mr x
##             nr sums.
## NDRange     dimension 0 is a partition of the columns, or of the panels that all work-items share; dimension 1 of the
##             rows; dimension 2 counts the parts of k of each part of the batches.
## Workspace   The shared packed B; for each work-item its packed B and packed A; then the partial sums of split-K.
## Invariants  a tile whose sums are stored in place has all rows and columns. The last panel of a row of tiles begins
##             earlier (`overlap`), and recomputes sums of another one; if there is none, B is packed.
## Reference   BLIS (Van Zee and van de Geijn 2015); routines/gemm/schedule_cpu.py chooses blocking and partition.
<%page args="name, micro, store, ctype, wide, itemsize, lanes, mr, vectors, shapes, packed_rows, has_alpha, has_c,
             starts, inputs, repeated, outputs, statements"/>
<%namespace name="arguments" file="/common/device_scalars.mako"/>
<%namespace name="gemm_epilogue" file="/gemm/epilogue.mako"/>
<%namespace name="epilogue" file="/common/epilogue.mako"/>
<%namespace name="panels" file="/gemm/shared_packing.mako"/>
<%
    nr = lanes * vectors
    packed_mr = (mr + 3) // 4 * 4  # panels of A are packed four rows at a time
    line = 64 // itemsize  # elements of a cache line
    low_mr = min(shapes)[0]  # rows of the micro-kernels for the last rows
    half = lanes // 2 if (mr, 1) in shapes else 0
    full_width = f"MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    scalars = ["alpha"] * has_alpha + ["beta"] * has_c
    neutral = [f"s.{x} == {y}" for x, y in zip(scalars, (1, 0))]
    may_store_in_place = "0" if outputs else " && ".join(["p.o.col == 1", *neutral])
%>
## The ranges of rows, of columns or shared panels, and of k of this work-item.
<%def name="work_item_ranges()">
    const long x = get_global_id(0), y = get_global_id(1);
    const long z = get_global_id(2) / p.split_k, part = get_global_id(2) % p.split_k;
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2) / p.split_k;
    const long m_begin = partition_begin(p.m, ${mr}, y, ny), m_end = partition_begin(p.m, ${mr}, y + 1, ny);
    const long n_begin = p.shared_b_size ? 0 : partition_begin(p.n, ${lanes}, x, nx);
    const long n_end = p.shared_b_size ? p.n : partition_begin(p.n, ${lanes}, x + 1, nx);
    const long k_begin = partition_begin(p.k, 16, part, p.split_k);
    const long k_end = partition_begin(p.k, 16, part + 1, p.split_k);
    ${panels.panel_count("n_end - n_begin", lanes, nr, half)}
    const long panel_begin = p.shared_b_size ? partition_begin(panels, 1, x, nx) : 0;
    const long panel_end = p.shared_b_size ? partition_begin(panels, 1, x + 1, nx) : panels;
</%def>
## The place where the block of mc rows and kc elements along k begins in each operand.
<%def name="block_pointers()">
                const long kc = min(p.kc, k_end - k0), mc = min(p.mc, m_end - m0);
                __global const ${ctype} *const a =
                    A + s.a + gemm_start(&p.a, p.batch_shape, batch) + m0 * p.a.row + k0 * p.a.col;
                __global const ${ctype} *const b = B + s.b + gemm_start(&p.b, p.batch_shape, batch) + k0 * p.b.row;
                __global const ${ctype} *const next_b =
                    p.prefetch && batch + 1 < p.batch_count ? B + s.b + gemm_start(&p.b, p.batch_shape, batch + 1) : b;
                % if has_c:
                __global const ${ctype} *const c = C + s.c + gemm_start(&p.c, p.batch_shape, batch) + m0 * p.c.row;
                % else:
                __global const ${ctype} *const c = C;
                % endif
                __global ${ctype} *const o = O + s.o + gemm_start(&p.o, p.batch_shape, batch) + m0 * p.o.row;
</%def>
<%def name="pack_a_block()">
                for (long i0 = 0; p.pack_a && i0 < mc; i0 += ${mr})
                    ${micro}_pack(a + i0 * p.a.row, p.a.row, p.a.col, min(${mr}L, mc - i0), kc,
                                  packed_a + i0 / ${mr} * kc * ${packed_mr}, ${packed_mr});
</%def>
## Packs a panel of B, unless it is read in place, or was packed before.
<%def name="pack_b_panel()">
                    const int is_packed = p.shared_b_size || p.pack_b || padded_width > n0 + panel_width;
                    const int overlap = is_packed ? 0 : padded_width - panel_width;
                    __global ${ctype} *const packed_panel =
                        p.shared_b_size ? workspace + k0 * p.packed_b_size + n0 * kc
                                        : packed_b + (keeps_packed_b ? (n0 - n_begin) * p.kc : 0);
                    const long b_row = is_packed ? padded_width : p.b.row;
                    if (is_packed && !p.shared_b_size && !(keeps_packed_b && m0 > m_begin))
                        ${micro}_pack(b + n0 * p.b.col, p.b.col, p.b.row, panel_width, kc, packed_panel, b_row);
</%def>
## The tiles of a panel that have elements of the triangle.
<%def name="rows_of_panel()">
                    const long i_begin = p.triangle > 0 ? max(0L, n0 - m0) / ${mr} * ${mr} : 0;
                    const long i_end = p.triangle < 0 ? min(mc, n0 + panel_width - m0) : mc;
</%def>
## The micro-kernel's operands, and whether its sums go to the output or to a private tile.
<%def name="tile_pointers()">
                        const int height = min(${mr}L, mc - i0);
                        const int mr = height > ${low_mr} || is_half_panel ? ${mr} : ${low_mr};
                        const int stores_in_place =
                            may_store_in_place && height == mr && overlap + panel_width == padded_width
                            && (!overlap || (kc == k_end - k_begin && n0 - overlap >= n_begin));
                        __global const ${ctype} *const a_panel =
                            p.pack_a ? packed_a + i0 / ${mr} * kc * ${packed_mr} : a + i0 * p.a.row;
                        const long a_row = p.pack_a ? 1 : p.a.row, a_col = p.pack_a ? ${packed_mr} : p.a.col;
                        __global const ${ctype} *const b_panel =
                            is_packed ? packed_panel : b + (n0 - overlap) * p.b.col;
                        __global ${ctype} *const to = o + i0 * p.o.row + n0 * p.o.col;
                        __global ${ctype} *const sums = stores_in_place ? to - overlap : tile;
                        const long sums_row = stores_in_place ? p.o.row : ${nr};
                        const int accumulate = stores_in_place && k0 > k_begin;
</%def>
## The line that is read at each element of the tile: rows need not begin at cache lines, so their last elements are
## fetched too.
<%def name="prefetch_tile(start, row, col)">
                        for (int r = 0; r < height; r++)
                            for (long j = 0; j < padded_width + ${lanes}; j += ${lanes})
                                prefetch_line(${start} + (i0 + r) * ${row}
                                              + (n0 + min(j, padded_width - 1L)) * ${col});
</%def>
## The products of the tile hide how long its addends take to arrive.
<%def name="prefetch_addends()">
                        % if has_c:
                        if (k0 == k_begin && s.beta != 0) {
                            ${prefetch_tile("c", "p.c.row", "p.c.col")}
                        }
                        % endif
                        % for number, is_repeated in enumerate(repeated, 1):
                        % if not is_repeated:
                        <% start, row, col = (f"at->{field}{number}" for field in ("i", "row", "col")) %>
                        ${prefetch_tile(f"{start} + m0 * {row}", row, col)}
                        % endif
                        % endfor
</%def>
## Prefetched by full tiles: A of the next tile in the first panel, in the second one contiguous rows or columns of the
##     next product's B.
<%def name="multiply()">
                        const long line0 = i0 / ${mr} * ${line};
                        if (p.prefetch && padded_width == ${nr} && mr == ${mr}
                            && (panel == panel_begin || (panel == panel_begin + 1 && line0 < next_b_lines)))
                            ${micro}_multiply${mr}x${2 * vectors}_prefetch(
                                a_panel, a_row, a_col, height - 1, b_panel, b_row, kc, sums, sums_row, accumulate,
                                panel > panel_begin ? next_b + line0 * next_b_stride : a_panel + ${mr} * a_row,
                                panel > panel_begin ? next_b_stride : a_col == 1 ? a_row : a_col,
                                panel > panel_begin ? 1 : a_col);
                        else
                            switch (8 * mr + 2 * padded_width / ${lanes}) {
                            % for shape_mr, half_vectors in shapes:
                            case ${8 * shape_mr + half_vectors}:
                                ${micro}_multiply${shape_mr}x${half_vectors}(
                                    a_panel, a_row, a_col, height - 1, b_panel, b_row, kc, sums, sums_row, accumulate);
                                break;
                            % endfor
                            }
</%def>
<%def name="store_tile()">
                        __global const ${ctype} *const tile_c = c${" + i0 * p.c.row + n0 * p.c.col" if has_c else ""};
                        if (!stores_in_place)
                            % if outputs:
                            ${name}_store(tile + overlap, &p, &s, height, panel_width, k0 == k_begin, tile_c, to,
                                          k0 + p.kc >= k_end, at, m0 + i0, n0);
                            % else:
                            ${store}_tile(tile + overlap, &p, &s, height, panel_width, k0 == k_begin, tile_c, to);
                            % endif
</%def>
% if outputs:
${gemm_epilogue.declarations(lanes)}
${gemm_epilogue.stores(ctype, lanes, nr, micro, store, full_width, has_alpha)}
% endif
${full_width} __kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}(gemm_plan p${f', {name}_operands operands' if outputs else ''}, ${store}_call s,
             __global const ${ctype} *A, __global const ${ctype} *B, __global const ${ctype} *C, __global ${ctype} *O,
             __global ${ctype} *workspace${arguments.parameters(ctype, scalars)}${
             epilogue.parameters() if outputs else ""})
{
    ${work_item_ranges()}
    __global ${ctype} *const packed_b =
        workspace + p.shared_b_size + p.workspace_size * ((get_global_id(2) * ny + y) * nx + x);
    __global ${ctype} *const packed_a = packed_b + (p.shared_b_size ? 0 : p.packed_b_size);
    ${ctype} space[${mr * nr + lanes}] __attribute__((aligned(64)));
    __global ${ctype} *const tile = private_as_global(${ctype}, space);
    ${arguments.load(scalars)}
    if (p.split_k > 1) {  // partial sums; ${name}_finish adds them up
        O = workspace + p.split_k_start + part * p.m * p.n;
        p.o.start = 0;
        s.o = 0;
        p.o.row = p.n;
        p.o.col = 1;
        s.alpha = 1;
        s.beta = 0;
    }
    const int keeps_packed_b = p.packed_b_size >= (n_end - n_begin) * p.kc;  // for more blocks of rows
    const int may_store_in_place = ${may_store_in_place};
    const long next_b_stride = p.b.col == 1 ? p.b.row : p.b.col;
    const long next_b_lines = p.batch_count == 1 ? 0 : p.b.col == 1 ? p.k : p.n;
    const long batch_begin = partition_begin(p.batch_count, 1, z, nz);
    const long batch_end = partition_begin(p.batch_count, 1, z + 1, nz);
    for (long batch = batch_begin; batch < batch_end; batch++) {
        % if outputs:
        ${gemm_epilogue.matrices("batch")}
        % endif
        for (long k0 = k_begin; k0 < k_end || k0 == k_begin; k0 += p.kc) {  // once at least: k = 0 leaves beta * C
            for (long m0 = m_begin; m0 < m_end; m0 += p.mc) {
                ${block_pointers()}
                ${pack_a_block()}
                for (long panel = panel_begin; panel < panel_end; panel++) {
                    ${panels.panel_bounds("n_begin", lanes, half)}
                    ${pack_b_panel()}
                    ${rows_of_panel()}
                    for (long i0 = i_begin; i0 < i_end; i0 += ${mr}) {
                        ${tile_pointers()}
                        ${prefetch_addends()}
                        ${multiply()}
                        ${store_tile()}
                    }
                }
            }
        }
    }
}
<%include file="/gemm/shared_packing.mako"
          args="name=name, micro=micro, store=store, ctype=ctype, lanes=lanes, nr=nr, half=half, rows=packed_rows"/>
## The epilogue of a split product is a kernel of its own.
% if not outputs:
<%include file="/gemm/split_k_reduce.mako"
          args="name=name, store=store, ctype=ctype, nr=nr, scalars=scalars, has_c=has_c"/>
% endif
