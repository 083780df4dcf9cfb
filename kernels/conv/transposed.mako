## What the kernels of gradients share: products that are stored turned. The defs see the arguments of the template that calls them.
<%namespace name="parts" file="/conv/winograd_transforms.mako"/>
<%def name="products(vec, heights, cols, full_width)">
// D[column, row] = sum over k of a[row, k] * b[k, column], or D += it; there are whole vectors of columns in b, and whole tiles of rows.
static ${full_width} void ${name}_products(__global const ${ctype} *a, long a_row, long a_col, __global const ${ctype} *b, long b_row,
    long rows, long columns, long depth, __global ${ctype} *D, long apart, int first)
{
    ${ctype} tile[${(rows + lanes) * cols}] __attribute__((aligned(64)));
    for (long j = 0, count; j < columns; j += count * ${lanes}) {
        count = min(${vectors}L, (columns - j + ${lanes - 1}) / ${lanes});
        for (long q = 0; q < rows; q += ${lanes}) {
            for (long i = q, height; i < min(q + ${lanes}, rows); i += height) {
                height = rows - i > ${heights[-1]} ? ${rows} : ${heights[-1]};
                const long from = min(i, rows - height);  // what is before i is computed for nothing
                __global const ${ctype} *const from_a = a + from * a_row;
                // Devices of this schedule have one memory.
                __global ${ctype} *const sums = private_as_global(${ctype}, tile + (${rows} + from - q) * ${cols});
                switch (4 * height + count) {
                % for height in heights:
                % for count in range(1, vectors + 1):
                case ${4 * height + count}: ${tiles}_multiply${height}x${2 * count}(from_a, a_row, a_col, ${height - 1}, b + j, b_row, depth, sums, ${cols}, 0); break;
                % endfor
                % endfor
                }
            }
            for (long v = 0; v < count * ${lanes}; v += ${lanes}) {
                ${vec} turned[${lanes}];
                const ${ctype} *const from = tile + ${rows * cols} + v;
                ${parts.turn(lambda l: f"*(const {vec} *)(from + {l * cols})", lambda l: f"turned[{l}]")}
                __global ${ctype} *const to = D + (j + v) * apart + q;
                const long width = rows - q, high = min(${lanes}L, columns - j - v);
                if (width >= ${lanes})
                    for (long l = 0; l < high; l++)
                        *(__global ${vec} *)(to + l * apart) = first ? turned[l] : *(__global ${vec} *)(to + l * apart) + turned[l];
                else
                    for (long l = 0; l < high; l++)
                        for (long e = 0; e < width; e++)
                            to[l * apart + e] = (first ? 0 : to[l * apart + e]) + ((const ${ctype} *)turned)[l * ${lanes} + e];
            }
        }
    }
}
</%def>
