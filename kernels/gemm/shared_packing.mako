## Packing of B of a matrix product once for all work-items, schedule cpu: a launch before that of the product.
##
## Algorithm   B is cut into blocks of p.kc rows, these into panels. Rows are read from end to end, a few at a time:
##             panel by panel takes a third longer where B comes from memory.
## Operands    B: any strides, no batch dimensions. workspace: the panel of columns n0.. and block of rows k0.. begins
##             at k0 * p.packed_b_size + n0 * kc; its rows are padded_width long.
## NDRange     dimension 0 is a partition of the panels, dimension 1 of the rows.
<%page args="name, micro, store, ctype, lanes, nr, half, rows"/>

## Cuts `count` columns into panels of at most `nr` columns; what is left over of the last vector has a panel of half a
## vector, where it fits into one.
<%def name="panel_count(count, lanes, nr, half)">
    const long columns = ${count}, n_tail = columns % ${lanes};
    const long full_columns = columns - (n_tail <= ${half} ? n_tail : 0);
    const long full_panels = (full_columns + ${nr - 1}) / ${nr};
    const long panels = full_panels + (full_columns < columns);
</%def>
## First column, columns and columns in whole vectors of panel number `panel`.
<%def name="panel_bounds(start, lanes, half)">
            const int is_half_panel = panel == full_panels;
            const long n0 = ${start}
                + (is_half_panel ? full_columns
                                 : partition_begin_descending(full_columns, ${lanes}, panel, full_panels));
            const long panel_width = is_half_panel
                ? n_tail
                : ${start} + partition_begin_descending(full_columns, ${lanes}, panel + 1, full_panels) - n0;
            const long padded_width = is_half_panel ? ${half} : (panel_width + ${lanes - 1}) / ${lanes} * ${lanes};
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}_panels(gemm_plan p, ${store}_call s, __global const ${ctype} *B, __global ${ctype} *workspace)
{
    ${panel_count("p.n", lanes, nr, half)}
    const long panel_begin = partition_begin(panels, 1, get_global_id(0), get_global_size(0));
    const long panel_end = partition_begin(panels, 1, get_global_id(0) + 1, get_global_size(0));
    const long k_begin = partition_begin(p.k, ${rows}, get_global_id(1), get_global_size(1));
    const long k_end = partition_begin(p.k, ${rows}, get_global_id(1) + 1, get_global_size(1));
    const long step = p.b.col == 1 ? ${rows} : p.k;
    __global const ${ctype} *const b = B + s.b + p.b.start;
    for (long k = k_begin, next; k < k_end; k = next) {
        const long k0 = k / p.kc * p.kc, kc = min(p.kc, p.k - k0);
        next = min(min(k + step, k_end), k0 + kc);
        for (long panel = panel_begin; panel < panel_end; panel++) {
            ${panel_bounds("0", lanes, half)}
            __global ${ctype} *const packed = workspace + k0 * p.packed_b_size + n0 * kc + (k - k0) * padded_width;
            ${micro}_pack(b + k * p.b.row + n0 * p.b.col, p.b.col, p.b.row, panel_width, next - k, packed,
                          padded_width);
        }
    }
}
