## Packs B of a matrix product once for all work-items, schedule cpu: blocks along k one after the other, in each the panels.
## Rows are read from end to end, a few at a time: panel by panel takes a third longer where B comes from memory.
<%page args="name, tiles, store, ctype, lanes, cols, half, rows"/>
<%def name="panels(count, lanes, cols, half)">
    // Columns of whole vectors, the last of which may not be full, and a panel of half of one for what is left over
    const long columns = ${count}, odd = columns % ${lanes}, full = columns - (odd <= ${half} ? odd : 0);
    const long wide_panels = (full + ${cols - 1}) / ${cols}, panels = wide_panels + (full < columns);
</%def>
<%def name="columns(start, lanes, half)">
            const int is_half = panel == wide_panels;
            const long jc = ${start} + (is_half ? full : gemm_panel(full, ${lanes}, panel, wide_panels));
            const long width = is_half ? odd : ${start} + gemm_panel(full, ${lanes}, panel + 1, wide_panels) - jc;
            const long across = is_half ? ${half} : (width + ${lanes - 1}) / ${lanes} * ${lanes};
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}_panels(gemm_plan p, ${store}_call s, __global const ${ctype} *B, __global ${ctype} *scratch)
{
    ${panels("p.n", lanes, cols, half)}
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
            ${columns("0", lanes, half)}
            ${tiles}_pack(b + k * p.b.row + jc * p.b.col, p.b.col, p.b.row, width, next - k,
                          scratch + kc * p.packed_b + jc * kb + (k - kc) * across, across);
        }
    }
}
