## Transposed products of the gradients of convolutions: D.T = A @ B.
##
## Operands    A (rows, depth) with any strides; B (depth, columns) with contiguous rows and whole vectors of columns; D
##             (columns, rows), rows d_row apart.
## Tiling      Tiles of mr x (lanes * vectors) sums in private memory, transposed in registers.
## Invariants  Rows is at least the smaller micro-kernel: the last tile begins earlier, and its first rows are computed
##             twice.
## The defs use the arguments of the template that calls them: name, ctype, lanes, micro, mr, vectors.
<%namespace name="registers" file="/common/register_transpose.mako"/>
<%def name="products(vec, heights, nr, function)">
// D = (A @ B).T, or D += it when it is not the first block along k.
${function} void ${name}_products(__global const ${ctype} *a, long a_row, long a_col,
                                           __global const ${ctype} *b, long b_row, long rows,
                                           long columns, long depth, __global ${ctype} *D, long d_row, int is_first)
{
    ${ctype} tile[${(mr + lanes) * nr}] __attribute__((aligned(64)));
    for (long j = 0, count; j < columns; j += count * ${lanes}) {
        count = min(${vectors}L, (columns - j + ${lanes - 1}) / ${lanes});
        for (long q = 0; q < rows; q += ${lanes}) {
            for (long i = q, height; i < min(q + ${lanes}, rows); i += height) {
                height = rows - i > ${heights[-1]} ? ${mr} : ${heights[-1]};
                const long first_row = min(i, rows - height);
                __global const ${ctype} *const a_tile = a + first_row * a_row;
                __global ${ctype} *const sums = private_as_global(${ctype}, tile + (${mr} + first_row - q) * ${nr});
                switch (4 * height + count) {
                % for height in heights:
                % for count in range(1, vectors + 1):
                case ${4 * height + count}:
                    ${micro}_multiply${height}x${2 * count}(
                        a_tile, a_row, a_col, ${height - 1}, b + j, b_row, depth, sums, ${nr}, 0);
                    break;
                % endfor
                % endfor
                }
            }
            for (long v = 0; v < count * ${lanes}; v += ${lanes}) {
                ${vec} transposed[${lanes}];
                const ${ctype} *const from = tile + ${mr * nr} + v;
                ${registers.transpose(ctype, lanes, f"*(const {vec} *)(from + {{l}} * {nr})", "transposed[{l}]")}
                __global ${ctype} *const to = D + (j + v) * d_row + q;
                const long width = rows - q, d_rows = min(${lanes}L, columns - j - v);
                if (width >= ${lanes})
                    for (long l = 0; l < d_rows; l++) {
                        __global ${vec} *const d = (__global ${vec} *)(to + l * d_row);
                        *d = is_first ? transposed[l] : *d + transposed[l];
                    }
                else
                    for (long l = 0; l < d_rows; l++)
                        for (long e = 0; e < width; e++)
                            to[l * d_row + e] = (is_first ? 0 : to[l * d_row + e])
                                + ((const ${ctype} *)transposed)[l * ${lanes} + e];
            }
        }
    }
}
</%def>
