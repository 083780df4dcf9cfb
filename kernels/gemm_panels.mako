## Packs B of a matrix product once for all work-items, schedule cpu: blocks along k one after the other, in each the panels.
## Rows are read from end to end, a few at a time: panel by panel takes a third longer where B comes from memory.
<%page args="name, tiles, store, ctype, lanes, cols, half, rows"/>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}_panels(gemm_plan p, ${store}_call s, __global const ${ctype} *B, __global ${ctype} *scratch)
{
    const long odd = p.n % ${lanes}, full = p.n - (odd <= ${half} ? odd : 0);
    const long wide_panels = (full + ${cols - 1}) / ${cols}, panels = wide_panels + (full < p.n);
    const long first = gemm_share(panels, 1, get_global_id(0), get_global_size(0));
    const long last = gemm_share(panels, 1, get_global_id(0) + 1, get_global_size(0));
    const long k0 = gemm_share(p.k, ${rows}, get_global_id(1), get_global_size(1));
    const long k1 = gemm_share(p.k, ${rows}, get_global_id(1) + 1, get_global_size(1));
    const long step = p.b.col == 1 ? ${rows} : p.k;
    __global const ${ctype} *const b = B + s.b + p.b.start;
    for (long k = k0, next; k < k1; k = next) {
        const long kc = k / p.k_block * p.k_block, kb = min(p.k_block, p.k - kc);
        next = min(min(k + step, k1), kc + kb);
        for (long panel = first; panel < last; panel++) {
            const long jc = panel == wide_panels ? full : gemm_panel(full, ${lanes}, panel, wide_panels);
            const long width = panel == wide_panels ? odd : gemm_panel(full, ${lanes}, panel + 1, wide_panels) - jc;
            const long across = panel == wide_panels ? ${half} : (width + ${lanes - 1}) / ${lanes} * ${lanes};
            ${tiles}_pack(b + k * p.b.row + jc * p.b.col, p.b.col, p.b.row, width, next - k,
                          scratch + kc * p.packed_b + jc * kb + (k - kc) * across, across);
        }
    }
}
