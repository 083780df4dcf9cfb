## Convolution as a matrix product, schedule cpu: w is read where it lies, x is unfolded to a matrix, a block of it at a time. For few
## positions, where packing w would take long, and where neither operand is used so often that its order in memory matters.
<%page args="name, ctype, itemsize, lanes, tiles, rows, vectors, edge, further=(), statements=''"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="parts" file="/conv/store.mako"/>
<%
    cols, vec, heights = lanes * vectors, f"conv_{ctype}{lanes}", [rows, rows // 2] if rows >= 8 else [rows]
    full_width = f"CONV_VECTORS({8 * itemsize * lanes})"
%>
typedef ${vec} ${name}_vec;
<%include file="/conv/im2col.mako" args="name=name, ctype=ctype, lanes=lanes, vec=vec"/>
% if statements:
${epilogue.declarations(lanes)}
% endif
${parts.store(lanes, vectors, statements)}
${parts.columns(lanes, vectors)}
// One column of a tile: the lanes run along k, of which there are whole vectors.
static ${full_width} void ${name}_dot(__global const ${ctype} *a, long row, __global const ${ctype} *b, long depth, ${ctype} *tile)
{
    % for i in range(rows):
    ${ctype}${lanes} c${i} = 0;
    % endfor
    for (long k = 0; k < depth; k += ${lanes}) {
        const ${ctype}${lanes} x = *(__global const ${vec} *)(b + k);
        % for i in range(rows):
        c${i} = x * *(__global const ${vec} *)(a + ${i} * row + k) + c${i};
        % endfor
    }
    % for i in range(rows):
    tile[${i * cols}] = ${vec}_sum(c${i});
    % endfor
}

// Columns of a tile whose rows begin at a: `width` of them from b on, or the `edge` last ones of a block, which lie in rows from b on.
static void ${name}_tile(__global const ${ctype} *a, long row, __global const ${ctype} *b, long apart, long depth, long width,
                         int edge, int height, ${ctype} *tile)
{
    if (edge) {
        for (int i = 0; i < width; i++)
            ${name}_dot(a, row, b + i * apart, depth, tile + i);
        return;
    }
    __global ${ctype} *const sums = private_as_global(${ctype}, tile);
    switch (4 * height + (width + ${lanes - 1}) / ${lanes}) {
    % for height in heights:
    % for count in range(1, vectors + 1):
    case ${4 * height + count}: ${tiles}_multiply${height}x${2 * count}(a, row, 1, ${height - 1}, b, apart, depth, sums, ${cols}, 0); break;
    % endfor
    % endfor
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) ${full_width}
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *scratch${epilogue.parameters() if statements else ""})
{
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2);
    const long n = p.batch * p.out[0] * p.out[1] * p.out[2], k = p.c * p.taps[0] * p.taps[1] * p.taps[2];
    const long m0 = conv_share(p.m, ${rows}, y, ny), m1 = conv_share(p.m, ${rows}, y + 1, ny);
    const long n0 = conv_share(n, ${lanes}, x, nx), n1 = conv_share(n, ${lanes}, x + 1, nx);
    const long apart = p.n_block + ${lanes};
    __global ${ctype} *const matrix = scratch + p.scratch * ((z * ny + y) * nx + x), *const edges = matrix + p.k_block * apart;
    ${ctype} tile[${rows * cols}] __attribute__((aligned(64)));
    long at[${cols}];
    int unit[${vectors}];
    for (long b = conv_share(p.groups * p.parts, 1, z, nz); b < conv_share(p.groups * p.parts, 1, z + 1, nz); b++)
    for (long jc = n0; jc < n1; jc += p.n_block) {
        const long g = b % p.groups, part = b / p.groups, nb = min(p.n_block, n1 - jc);
        const long k0 = conv_share(k, p.k_block, part, p.parts), k1 = conv_share(k, p.k_block, part + 1, p.parts);
        // A few last columns are cheaper one by one than as a vector.
        const long few = k % ${lanes} == 0 && p.k_block % ${lanes} == 0 && nb % ${lanes} <= ${edge} ? nb % ${lanes} : 0;
        __global const ${ctype} *const x_g = X + s.x + g * p.x[1], *const w_g = W + s.w + g * p.w[0];
        __global ${ctype} *const y_g = Y + s.y + g * p.y[1] + part * p.y_part;
        for (long kc = k0; kc < k1; kc += p.k_block) {
            const long kb = min(p.k_block, k1 - kc);
            ${name}_unfold(&p, x_g, jc, nb, kc, kb, matrix, apart);
            for (long e = 0; e < few; e++)
                for (long i = 0; i < kb; i++)
                    edges[e * p.k_block + i] = matrix[i * apart + nb - few + e];
            for (long j = 0, width; j < nb; j += width) {
                const int edge = few && j == nb - few;
                width = min(${cols}L, nb - few - j + (edge ? few : 0));
                ${name}_columns(&p, jc + j, width, at, unit);
                for (long i = m0; i < m1; i += ${rows}) {
                    const int height = edge || m1 - i > ${heights[-1]} ? ${rows} : ${heights[-1]};
                    const long from = min(i, p.m - height);  // m is at least that; rows before i are computed for nothing
                    ${name}_tile(w_g + kc + from * p.w[1], p.w[1], edge ? edges : matrix + j, edge ? p.k_block : apart, kb, width, edge, height, tile);
                    ${name}_store(tile + (i - from) * ${cols}, at, unit, p.y[2], min((long)height, m1 - i), width, kc == k0, y_g + i * p.y[2]${
                                   ", kc + p.k_block >= k1, g * p.m + i, y_g + i * p.y[2] - Y" + capture(epilogue.arguments) if statements else ""});
                }
            }
        }
    }
}
