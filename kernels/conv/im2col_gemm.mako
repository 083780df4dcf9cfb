## Convolution as a matrix product with im2col, schedule cpu: w is read in place, a block of x is copied to a
##     matrix. For few output pixels, where packing w would take long, and where neither operand is used often.
##
## Algorithm   A is w (m, k), B is the matrix (k, n), y is (m, n), for each group; see implicit_gemm.mako.
## Operands    x and y with any strides; w with contiguous k; plan.mako.
## Tiling      Blocks of nc columns and kc elements along k; register tiles of mr x (lanes * vectors) sums.
## NDRange     dimension 0 is a partition of the columns, dimension 1 of the rows, dimension 2 of the groups and parts
##             of k.
## Workspace   For each work-item the matrix (kc, nc + lanes), then its last columns (`edge`, kc), transposed.
## Invariants  M is at least mr: the last tile begins earlier, and its first rows are computed twice.
<%page args="name, ctype, itemsize, lanes, micro, mr, vectors, edge, further=(), offsets=None, statements=''"/>
<%namespace name="product" file="/conv/gemm_common.mako"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="stores" file="/conv/store.mako"/>
<%
    nr, vec = lanes * vectors, f"conv_{ctype}{lanes}"
    heights = [mr, mr // 2] if mr >= 8 else [mr]
    full_width = f"MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    function = f"static NOINLINE {full_width}"
%>
typedef ${vec} ${name}_vec;
<%include file="/conv/im2col.mako" args="name=name, ctype=ctype, lanes=lanes, vec=vec, function=function"/>
% if statements:
${epilogue.declarations(name, ctype, lanes, further, offsets, statements)}
% endif
${stores.store(name, ctype, lanes, vectors, further, statements, function)}
${stores.columns(name, lanes, vectors, function)}
// One column of a tile: the lanes run along k, of which there are whole vectors.
${function} void ${name}_dot(__global const ${ctype} *a, long row, __global const ${ctype} *b, long depth,
                                      ${ctype} *tile)
{
    % for i in range(mr):
    ${ctype}${lanes} c${i} = 0;
    % endfor
    for (long k = 0; k < depth; k += ${lanes}) {
        const ${ctype}${lanes} x = *(__global const ${vec} *)(b + k);
        % for i in range(mr):
        c${i} = x * *(__global const ${vec} *)(a + ${i} * row + k) + c${i};
        % endfor
    }
    % for i in range(mr):
    tile[${i * nr}] = ${vec}_sum(c${i});
    % endfor
}

// A tile whose rows begin at a: `width` columns from b on, or the last columns of a block (is_edge), stored as rows.
static void ${name}_tile(__global const ${ctype} *a, long row, __global const ${ctype} *b, long b_row, long depth,
                         long width, int is_edge, int height, ${ctype} *tile)
{
    if (is_edge) {
        for (int i = 0; i < width; i++)
            ${name}_dot(a, row, b + i * b_row, depth, tile + i);
        return;
    }
    __global ${ctype} *const sums = private_as_global(${ctype}, tile);
    switch (4 * height + (width + ${lanes - 1}) / ${lanes}) {
    % for height in heights:
    % for count in range(1, vectors + 1):
    case ${4 * height + count}:
        ${micro}_multiply${height}x${2 * count}(a, row, 1, ${height - 1}, b, b_row, depth, sums, ${nr}, 0);
        break;
    % endfor
    % endfor
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) ${full_width}
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *workspace${epilogue.parameters(name, ctype, further) if statements else ""})
{
    ${product.work_item_ranges(lanes)}
    const long matrix_row = p.nc + ${lanes};
    __global ${ctype} *const matrix = workspace + p.workspace_size * ((z * ny + y) * nx + x);
    __global ${ctype} *const edges = matrix + p.kc * matrix_row;
    ${ctype} tile[${mr * nr}] __attribute__((aligned(64)));
    long column_offsets[${nr}];
    int is_contiguous[${vectors}];
    for (long b = b_begin; b < b_end; b++)
        for (long n0 = n_begin; n0 < n_end; n0 += p.nc) {
            ${product.block_operands()}
            // A few last columns are cheaper one by one than as a vector.
            const int has_whole_vectors = k % ${lanes} == 0 && p.kc % ${lanes} == 0;
            const long edge_columns = has_whole_vectors && nc % ${lanes} <= ${edge} ? nc % ${lanes} : 0;
            for (long k0 = k_begin; k0 < k_end; k0 += p.kc) {
                const long kc = min(p.kc, k_end - k0);
                ${name}_im2col(&p, x_g, n0, nc, k0, kc, matrix, matrix_row);
                for (long e = 0; e < edge_columns; e++)
                    for (long i = 0; i < kc; i++)
                        edges[e * p.kc + i] = matrix[i * matrix_row + nc - edge_columns + e];
                for (long j0 = 0, width; j0 < nc; j0 += width) {
                    const int is_edge = edge_columns && j0 == nc - edge_columns;
                    width = min(${nr}L, nc - edge_columns - j0 + (is_edge ? edge_columns : 0));
                    ${name}_columns(&p, n0 + j0, width, column_offsets, is_contiguous);
                    __global const ${ctype} *const b_panel = is_edge ? edges : matrix + j0;
                    for (long i0 = m_begin; i0 < m_end; i0 += ${mr}) {
                        const int height = is_edge || m_end - i0 > ${heights[-1]} ? ${mr} : ${heights[-1]};
                        const long first_row = min(i0, p.m - height);
                        __global ${ctype} *const to = y_g + i0 * p.y.m;
                        ${name}_tile(w_g + k0 + first_row * p.w.m, p.w.m, b_panel, is_edge ? p.kc : matrix_row, kc,
                                     width, is_edge, height, tile);
                        ${name}_store(tile + (i0 - first_row) * ${nr}, column_offsets, is_contiguous, p.y.m,
                                      min((long)height, m_end - i0), width, k0 == k_begin, to
                                      % if statements:
                                      , k0 + p.kc >= k_end, g * p.m + i0, to - Y${epilogue.arguments(further)}
                                      % endif
                                      );
                    }
                }
            }
        }
}
