## Matrix product, schedule cpu: each work-item computes a part of the output, tile by tile, in registers. The operands are
## read where they lie; only what a tile cannot read (B without contiguous columns, and the edges) is packed into panels first:
## by each work-item, or by another kernel before, once for all of them.
<%page args="name, tiles, store, ctype, wide, itemsize, lanes, rows, vectors, sizes, packed_rows, has_alpha, has_c, inputs=(), repeated=(), outputs=(), statements=''"/>
<%namespace name="epilogue" file="/gemm/epilogue.mako"/>
<%namespace name="each" file="/common/epilogue.mako"/>
<%namespace name="divided" file="/gemm/panels.mako"/>
<%
    cols, line, high = lanes * vectors, 64 // itemsize, (rows + 3) // 4 * 4  # panels of A are packed four rows at a time
    low, half = min(sizes)[0], lanes // 2 if (rows, 1) in sizes else 0
    full_width = f"GEMM_VECTORS({8 * itemsize * lanes})"
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_c else [])
    direct = "0" if outputs else " && ".join(["p.o.col == 1", *[f"s.{x} == {y}" for x, y in zip(scalars, (1, 0))]])
%>
% if outputs:
${epilogue.declarations(lanes)}
${epilogue.stores(ctype, lanes, cols, tiles, store, full_width, has_alpha)}
% endif
${full_width} __kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}(gemm_plan p${f', {name}_further further' if outputs else ''}, ${store}_call s, __global const ${ctype} *A, __global const ${ctype} *B,
             __global const ${ctype} *C, __global ${ctype} *O, __global ${ctype} *scratch${
             "".join(f", __global const {ctype} *{x}" for x in scalars)}${each.parameters() if outputs else ""})
{
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2) / p.splits, part = get_global_id(2) % p.splits;
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2) / p.splits;
    const long m0 = gemm_share(p.m, ${rows}, y, ny), m1 = gemm_share(p.m, ${rows}, y + 1, ny);
    // A work-item has columns, which it divides into panels, or some of the panels that all share
    const long n0 = p.shared ? 0 : gemm_share(p.n, ${lanes}, x, nx), n1 = p.shared ? p.n : gemm_share(p.n, ${lanes}, x + 1, nx);
    const long k0 = gemm_share(p.k, 16, part, p.splits), k1 = gemm_share(p.k, 16, part + 1, p.splits);
    ${divided.panels("n1 - n0", lanes, cols, half)}
    const long first = p.shared ? gemm_share(panels, 1, x, nx) : 0, last = p.shared ? gemm_share(panels, 1, x + 1, nx) : panels;
    __global ${ctype} *const packed_b = scratch + p.shared + p.scratch * ((get_global_id(2) * ny + y) * nx + x);
    __global ${ctype} *const packed_a = packed_b + (p.shared ? 0 : p.packed_b);
    ${ctype} space[${rows * cols + lanes}] __attribute__((aligned(64)));
    __global ${ctype} *const tile = private_as_global(${ctype}, space);
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
    if (p.splits > 1) {  // just the sum; ${name}_finish does the rest
        O = scratch + p.partial + part * p.m * p.n;
        p.o.start = s.o = 0, p.o.row = p.n, p.o.col = 1;
        s.alpha = 1, s.beta = 0;
    }
    const int is_kept = p.packed_b >= (n1 - n0) * p.k_block;  // what is packed of B is there for more blocks of rows
    const int direct = ${direct};  // sums may be kept where the result lies
    const long soon_row = p.b.col == 1 ? p.b.row : p.b.col, soon_count = p.batches == 1 ? 0 : p.b.col == 1 ? p.k : p.n;
    for (long batch = gemm_share(p.batches, 1, z, nz); batch < gemm_share(p.batches, 1, z + 1, nz); batch++) {
        % if outputs:
        ${epilogue.place("batch")}
        % endif
    for (long kc = k0; kc < k1 || kc == k0; kc += p.k_block)  // once at least: k = 0 leaves beta * C
    for (long ic = m0; ic < m1; ic += p.m_block) {
        const long kb = min(p.k_block, k1 - kc), mb = min(p.m_block, m1 - ic);
        __global const ${ctype} *const a = A + s.a + gemm_start(&p.a, p.shape, batch) + ic * p.a.row + kc * p.a.col;
        __global const ${ctype} *const b = B + s.b + gemm_start(&p.b, p.shape, batch) + kc * p.b.row;
        __global const ${ctype} *const soon = p.ahead && batch + 1 < p.batches ? B + s.b + gemm_start(&p.b, p.shape, batch + 1) : b;
        __global const ${ctype} *const c = ${"C + s.c + gemm_start(&p.c, p.shape, batch) + ic * p.c.row" if has_c else "C"};
        __global ${ctype} *const o = O + s.o + gemm_start(&p.o, p.shape, batch) + ic * p.o.row;
        for (long i = 0; p.pack_a && i < mb; i += ${rows})
            ${tiles}_pack(a + i * p.a.row, p.a.row, p.a.col, min(${rows}L, mb - i), kb, packed_a + i / ${rows} * kb * ${high}, ${high});
        for (long panel = first; panel < last; panel++) {
            ${divided.columns("n0", lanes, half)}
            // The last tile of a row begins sooner, and computes again what another one has stored; if there is none, B is packed.
            const int packed = p.shared || p.pack_b || across > jc + width, before = packed ? 0 : across - width;
            __global ${ctype} *const panel_b = p.shared ? scratch + kc * p.packed_b + jc * kb
                                                        : packed_b + (is_kept ? (jc - n0) * p.k_block : 0);
            const long b_row = packed ? across : p.b.row;
            if (packed && !p.shared && !(is_kept && ic > m0))
                ${tiles}_pack(b + jc * p.b.col, p.b.col, p.b.row, width, kb, panel_b, b_row);
            for (long i = 0; i < mb; i += ${rows}) {
                const int there = min(${rows}L, mb - i), height = there > ${low} || is_half ? ${rows} : ${low};
                const int whole = direct && there == height && before + width == across
                                  && (!before || (kb == k1 - k0 && jc - before >= n0));
                __global const ${ctype} *const a_panel = p.pack_a ? packed_a + i / ${rows} * kb * ${high} : a + i * p.a.row;
                const long a_row = p.pack_a ? 1 : p.a.row, a_col = p.pack_a ? ${high} : p.a.col;
                __global const ${ctype} *const b_panel = packed ? panel_b : b + (jc - before) * p.b.col;
                __global ${ctype} *const to = o + i * p.o.row + jc * p.o.col, *const sums = whole ? to - before : tile;
                const long next = whole ? p.o.row : ${cols};
                const int more = whole && kc > k0;
                % for k in (k for k, one in enumerate(repeated, 1) if not one):
                for (int r = 0; r < there; r++)
                    for (int j = 0; j < across; j += ${lanes})
                        prefetch_line(at->i${k} + (ic + i + r) * at->row${k} + (jc + j) * at->col${k});
                % endfor
                // Fetched meanwhile: A for the next tiles; in the second panel the next product's B, contiguous rows or columns of it.
                const long from = i / ${rows} * ${line};
                if (p.ahead && across == ${cols} && height == ${rows} && (panel == first || (panel == first + 1 && from < soon_count)))
                    ${tiles}_multiply${rows}x${2 * vectors}_ahead(
                        a_panel, a_row, a_col, there - 1, b_panel, b_row, kb, sums, next, more,
                        panel > first ? soon + from * soon_row : a_panel + ${rows} * a_row, panel > first ? soon_row : a_col == 1 ? a_row : a_col, panel > first ? 1 : a_col);
                else switch (8 * height + 2 * across / ${lanes}) {
                % for height, halves in sizes:
                case ${8 * height + halves}:
                    ${tiles}_multiply${height}x${halves}(a_panel, a_row, a_col, there - 1, b_panel, b_row, kb, sums, next, more);
                    break;
                % endfor
                }
                if (!whole)
                    ${f"{name}_store" if outputs else f"{store}_put"}(tile + before, &p, &s, there, width, kc == k0,
                              c${" + i * p.c.row + jc * p.c.col" if has_c else ""}, to${
                              ", kc + p.k_block >= k1, at, ic + i, jc" if outputs else ""});
            }
        }
    }
    }
}
<%include file="/gemm/panels.mako" args="name=name, tiles=tiles, store=store, ctype=ctype, lanes=lanes, cols=cols, half=half, rows=packed_rows"/>
## The epilogue of a split product is a kernel of its own.
% if not outputs:
<%include file="/gemm/split_k_reduce.mako" args="name=name, store=store, ctype=ctype, cols=cols, scalars=scalars, has_c=has_c"/>
% endif
