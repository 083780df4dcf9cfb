## Matrix product, schedule cpu: each work-item computes a part of the output, tile by tile, in registers. The operands are
## read where they lie; only what a tile cannot read (B without contiguous columns, and the edges) is packed into panels first.
<%page args="name, tiles, store, ctype, wide, itemsize, lanes, rows, vectors, has_alpha, has_c, inputs=(), repeated=(), outputs=(), statements=''"/>
<%namespace name="epilogue" file="gemm_epilogue.mako"/>
<%namespace name="each" file="epilogue.mako"/>
<%
    cols = lanes * vectors
    heights = [rows, rows // 2] if rows >= 8 else [rows]
    full_width = f"GEMM_VECTORS({8 * itemsize * lanes})"
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_c else [])
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
    const long n0 = gemm_share(p.n, ${lanes}, x, nx), n1 = gemm_share(p.n, ${lanes}, x + 1, nx);
    const long k0 = gemm_share(p.k, 16, part, p.splits), k1 = gemm_share(p.k, 16, part + 1, p.splits);
    const long panels = (n1 - n0 + ${cols - 1}) / ${cols};
    __global ${ctype} *const packed_b = scratch + p.scratch * ((get_global_id(2) * ny + y) * nx + x);
    __global ${ctype} *const packed_a = packed_b + p.k_block * ${cols};
    ${ctype} tile[${rows * cols}] __attribute__((aligned(64)));
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
    if (p.splits > 1) {  // just the sum; ${name}_finish does the rest
        O = scratch + p.partial + part * p.m * p.n;
        p.o.start = s.o = 0, p.o.row = p.n, p.o.col = 1;
        s.alpha = 1, s.beta = 0;
    }
    for (long batch = gemm_share(p.batches, 1, z, nz); batch < gemm_share(p.batches, 1, z + 1, nz); batch++) {
        % if outputs:
        ${epilogue.place("batch")}
        % endif
    for (long kc = k0; kc < k1 || kc == k0; kc += p.k_block)  // once at least: k = 0 leaves beta * C
    for (long ic = m0; ic < m1; ic += p.m_block) {
        const long kb = min(p.k_block, k1 - kc), mb = min(p.m_block, m1 - ic), whole = p.pack_a ? 0 : mb / ${rows} * ${rows};
        __global const ${ctype} *const a = A + s.a + gemm_start(&p.a, p.shape, batch) + ic * p.a.row + kc * p.a.col;
        __global const ${ctype} *const b = B + s.b + gemm_start(&p.b, p.shape, batch) + kc * p.b.row;
        __global const ${ctype} *const c = ${"C + s.c + gemm_start(&p.c, p.shape, batch) + ic * p.c.row" if has_c else "C"};
        __global ${ctype} *const o = O + s.o + gemm_start(&p.o, p.shape, batch) + ic * p.o.row;
        for (long i = whole; i < mb; i += ${rows})
            ${tiles}_pack(a + i * p.a.row, p.a.row, p.a.col, min(${rows}L, mb - i), kb, packed_a + (i - whole) * kb, ${rows});
        for (long panel = 0; panel < panels; panel++) {
            const long jc = n0 + gemm_share(n1 - n0, ${lanes}, panel, panels);
            const long width = n0 + gemm_share(n1 - n0, ${lanes}, panel + 1, panels) - jc, count = (width + ${lanes - 1}) / ${lanes};
            const int packed = p.pack_b || width % ${lanes} > 0;
            __global const ${ctype} *const b_panel = packed ? packed_b : b + jc * p.b.col;
            const long b_row = packed ? count * ${lanes} : p.b.row;
            if (packed)
                ${tiles}_pack(b + jc * p.b.col, p.b.col, p.b.row, width, kb, packed_b, b_row);
            for (long i = 0; i < mb; i += ${rows}) {
                const int there = i < whole;
                __global const ${ctype} *const a_panel = there ? a + i * p.a.row : packed_a + (i - whole) * kb;
                const long a_row = there ? p.a.row : 1, a_col = there ? p.a.col : ${rows};
                const int height = mb - i > ${heights[-1]} ? ${rows} : ${heights[-1]};
                % for k in (k for k, one in enumerate(repeated, 1) if not one):
                for (int r = 0; r < min((long)height, mb - i); r++)
                    for (int j = 0; j < count * ${lanes}; j += ${lanes})
                        GEMM_FETCH(at->i${k} + (ic + i + r) * at->row${k} + (jc + j) * at->col${k});
                % endfor
                switch (4 * height + count) {
                % for height in heights:
                % for count in range(1, vectors + 1):
                case ${4 * height + count}: ${tiles}_multiply${height}x${count}(a_panel, a_row, a_col, b_panel, b_row, kb, tile); break;
                % endfor
                % endfor
                }
                ${f"{name}_store" if outputs else f"{store}_put"}(tile, &p, &s, min(${rows}L, mb - i), width, kc == k0,
                              c${" + i * p.c.row + jc * p.c.col" if has_c else ""}, o + i * p.o.row + jc * p.o.col${
                              ", kc + p.k_block >= k1, at, ic + i, jc" if outputs else ""});
            }
        }
    }
    }
}
## The epilogue of a split product is a kernel of its own.
% if not outputs:
<%include file="gemm_finish.mako" args="name=name, store=store, ctype=ctype, cols=cols, scalars=scalars, has_c=has_c"/>
% endif
