## Solutions of L X = B with lower triangular matrices of at most `block` rows. Upper ones have negative strides.
##
## Algorithm  Forward substitution. `_columns`: lanes are columns of B that share a matrix, which is packed: for each
##            four rows the columns before them, then their triangle with inverse diagonal.
##            `_lanes`: `lanes` matrices at a time, one in each lane of a vector.
##            `_group`: a column for each work-item, eight rows of it at a time; the matrix in local memory. The rows
##            before are read from x, as registers have no room for all of them.
##            `_rows`: a row for each work-item, for few columns; several matrices in local memory.
## Operands   a: rows x rows, b and x: rows x columns, any strides, rows <= block. b and x may be the same array.
##            Where `whole` is nonzero, x is NaN if an element of the diagonal is zero, which LAPACK's trtrs reports.
## Invariant  Where the inverse of an element of the diagonal is infinite, the elements divide instead.
## NDRange    `_columns`, `_lanes`: work-items share tiles of columns, or groups of matrices, evenly.
##            `_group`: work-groups loop over tiles of `group` columns. `_rows`: work-groups loop over bundles of
##            matrices.
## Workspace  `_lanes`: rows * (rows + 1) / 2 + rows vectors for each work-item.
## Reference  Golub and Van Loan, Matrix Computations, 3.1.
<%page args="name, ctype, lanes, block, group, unit, schedule"/>
<%namespace name="moves" file="/linalg/moves.mako"/>\
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<%
V, T = f"{ctype}{lanes}", ctype
ROWS = 4  # that are solved at a time
%>
## Whether an element of the diagonal is zero; if `tiny` is the name of a variable, whether one is subnormal or zero.
<%def name="singular(source, tiny='')">
    % if unit:
    const int failed = 0;
    % else:
    int failed = 0;
    for (int i = 0; i < n; ++i) {
        const ${T} element = ${source};
        failed |= element == 0;
        % if tiny:
        ${tiny} |= fabs(element) < ${"DBL_MIN" if T == "double" else "FLT_MIN"};
        % endif
    }
    failed = failed && size.whole;
    % endif
</%def>
## Solve for some columns by division.
<%def name="divide(columns)">
            ${singular("matrix[i * (a_at.row + a_at.column)]")}
            for (long e = 0; e < ${columns} * (long)n; ++e) {
                const long j = e / n, i = e - j * n;
                ${T} sum = source[i * b_at.row + j * b_at.column];
                for (int k = 0; k < i; ++k)
                    sum -= matrix[i * a_at.row + k * a_at.column] * target[k * x_at.row + j * x_at.column];
                sum = failed ? (${T})NAN : sum / matrix[i * (a_at.row + a_at.column)];
                target[i * x_at.row + j * x_at.column] = sum;
            }
</%def>
<%def name="tile(vectors)">
<% width = vectors * lanes %>
            if (b_at.column == 1 && valid == ${width}) {
                for (int i = 0; i < n; ++i) {
    % for v in range(vectors):
                    tile[i * ${vectors} + ${v}] = *(__global const linalg_${V} *)(source + i * b_at.row + ${v * lanes});
    % endfor
                }
            } else {
    % for v in range(vectors):
                linalg_load_${V}(source + min(${v * lanes}, valid - 1) * b_at.column, b_at.column,
                                 clamp(valid - ${v * lanes}, 1, ${lanes}), b_at.row, n, tile + ${v}, ${vectors});
    % endfor
            }
            for (int i = n; i < padded; ++i) {
    % for v in range(vectors):
                tile[i * ${vectors} + ${v}] = 0;
    % endfor
            }
            const ${T} *factor = factors;
            for (int begin = 0; begin < padded; begin += ${ROWS}) {
    % for r in range(ROWS):
        % for v in range(vectors):
                ${V} x${r}_${v} = tile[(begin + ${r}) * ${vectors} + ${v}];
        % endfor
    % endfor
                for (int k = 0; k < begin; ++k, factor += ${ROWS}) {
    % for v in range(vectors):
                    const ${V} solved${v} = tile[k * ${vectors} + ${v}];
    % endfor
    % for r in range(ROWS):
        % for v in range(vectors):
                    x${r}_${v} -= factor[${r}] * solved${v};
        % endfor
    % endfor
                }
    % for k in range(ROWS):
        % for v in range(vectors):
            % if not unit:
                x${k}_${v} *= factor[${k * ROWS + k}];
            % endif
                tile[(begin + ${k}) * ${vectors} + ${v}] = x${k}_${v};
        % endfor
        % for r in range(k + 1, ROWS):
            % for v in range(vectors):
                x${r}_${v} -= factor[${k * ROWS + r}] * x${k}_${v};
            % endfor
        % endfor
    % endfor
                factor += ${ROWS * ROWS};
            }
            if (x_at.column == 1 && valid == ${width}) {
                for (int i = 0; i < n; ++i) {
    % for v in range(vectors):
                    *(__global linalg_${V} *)(target + i * x_at.row + ${v * lanes}) = tile[i * ${vectors} + ${v}];
    % endfor
                }
            } else {
    % for v in range(vectors):
                linalg_store_${V}(target + ${v * lanes} * x_at.column, x_at.column,
                                  clamp(valid - ${v * lanes}, 0, ${lanes}), x_at.row, n, tile + ${v}, ${vectors});
    % endfor
            }
</%def>
% if schedule == "cpu":
<% wide = 4 %>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_columns(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                     const linalg_strides x_at, __global const ${T} *a, __global const ${T} *b, __global ${T} *x)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const int n = size.rows, width = size.columns > ${lanes} ? ${wide * lanes} : ${lanes};
    const long tiles = (size.columns + width - 1) / width, units = size.count * tiles;
    const int padded = (n + ${ROWS - 1}) / ${ROWS} * ${ROWS};
    ${V} space[${block * wide}];
    __global ${V} *const tile = private_as_global(${V}, space);
    ${T} factors[${block * (block + ROWS) // 2}];
    long packed_item = -1;
    ${T} zero = 0; /* NaN if an element of the diagonal has no finite inverse */
    const long unit_end = partition_begin(units, 1, part + 1, parts);
    for (long unit = partition_begin(units, 1, part, parts); unit < unit_end; ++unit) {
        const long item = unit / tiles, column = (unit - item * tiles) * width;
        const int valid = min((long)width, size.columns - column);
        __global const ${T} *matrix = a + a_at.offset + item * a_at.batch;
        __global const ${T} *source = b + b_at.offset + item * b_at.batch + column * b_at.column;
        __global ${T} *target = x + x_at.offset + item * x_at.batch + column * x_at.column;
        if (item != packed_item) {
            ${singular("matrix[i * (a_at.row + a_at.column)]")}
            zero = 0;
            ${T} *factor = factors;
            for (int begin = 0; begin < padded; begin += ${ROWS}) {
                if (begin + ${ROWS} <= n) {
    % for r in range(ROWS):
                    __global const ${T} *row${r} = matrix + (begin + ${r}) * a_at.row;
    % endfor
                    for (int k = 0; k < begin; ++k, factor += ${ROWS}) {
    % for r in range(ROWS):
                        factor[${r}] = row${r}[k * a_at.column];
    % endfor
                    }
                } else
                    for (int k = 0; k < begin; ++k, factor += ${ROWS})
                        for (int r = 0; r < ${ROWS}; ++r)
                            factor[r] = begin + r < n ? matrix[(begin + r) * a_at.row + k * a_at.column] : 0;
                for (int k = begin; k < begin + ${ROWS}; ++k)
                    for (int i = begin; i < begin + ${ROWS}; ++i, ++factor) {
                        if (k < i)
                            *factor = i < n ? matrix[i * a_at.row + k * a_at.column] : 0;
    % if not unit:
                        else if (k == i) {
                            *factor = i < n ? (failed ? (${T})NAN : 1 / matrix[i * (a_at.row + a_at.column)]) : 1;
                            zero += 0 * *factor;
                        }
    % endif
                    }
            }
            packed_item = item;
        }
        if (zero != 0) {
            ${divide("valid")}
        } else if (width == ${lanes}) {
            ${tile(1)}
        } else {
            ${tile(wide)}
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_lanes(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                   const linalg_strides x_at, __global const ${T} *a, __global const ${T} *b, __global ${T} *x,
                   __global ${V} *workspace)
{
    const long part = get_global_id(0), parts = get_global_size(0), groups = (size.count + ${lanes - 1}) / ${lanes};
    const int n = size.rows, packed = n * (n + 1) / 2;
    __global ${V} *factors = workspace + part * (packed + n); /* row i begins at i * (i + 1) / 2 */
    __global ${V} *solution = factors + packed;
    const long g_end = partition_begin(groups, 1, part + 1, parts);
    for (long g = partition_begin(groups, 1, part, parts); g < g_end; ++g) {
        const int valid = min((long)${lanes}, size.count - g * ${lanes});
        int tiny = 0; /* an element of a diagonal has no finite inverse */
        for (int lane = 0; lane < ${lanes}; ++lane) {
            __global const ${T} *matrix = a + a_at.offset + (g * ${lanes} + min(lane, valid - 1)) * a_at.batch;
            __global ${T} *element = (__global ${T} *)factors + lane;
            ${singular("matrix[i * (a_at.row + a_at.column)]", "tiny")}
            for (int i = 0; i < n; ++i) {
                for (int j = 0; j < i; ++j, element += ${lanes})
                    *element = matrix[i * a_at.row + j * a_at.column];
                *element = ${"1" if unit else f"failed ? ({T})NAN : 1 / matrix[i * (a_at.row + a_at.column)]"};
                element += ${lanes};
            }
        }
        for (long column = 0; column < size.columns; ++column) {
            for (int lane = 0; lane < ${lanes}; ++lane) {
                __global const ${T} *source = b + b_at.offset + column * b_at.column +
                    (g * ${lanes} + min(lane, valid - 1)) * b_at.batch;
                for (int i = 0; i < n; ++i)
                    ((__global ${T} *)solution)[i * ${lanes} + lane] = source[i * b_at.row];
            }
            __global const ${V} *row = factors;
            for (int i = 0; i < n; row += ++i) {
                ${V} even = solution[i], odd = 0;
                int k = 0;
                for (; k + 2 <= i; k += 2) {
                    even -= row[k] * solution[k];
                    odd += row[k + 1] * solution[k + 1];
                }
                if (k < i)
                    even -= row[k] * solution[k];
                solution[i] = (even - odd) * row[i];
            }
            if (tiny) {
                for (int lane = 0; lane < valid; ++lane) {
                    const long item = g * ${lanes} + lane;
                    __global const ${T} *matrix = a + a_at.offset + item * a_at.batch;
                    __global const ${T} *source = b + b_at.offset + item * b_at.batch + column * b_at.column;
                    __global ${T} *target = x + x_at.offset + item * x_at.batch + column * x_at.column;
                    ${divide("1")}
                }
                continue;
            }
            for (int lane = 0; lane < valid; ++lane) {
                __global ${T} *target = x + x_at.offset + column * x_at.column + (g * ${lanes} + lane) * x_at.batch;
                for (int i = 0; i < n; ++i)
                    target[i * x_at.row] = ((__global const ${T} *)solution)[i * ${lanes} + lane];
            }
        }
    }
}
% else:
<% rows = 8 %>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_group(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                   const linalg_strides x_at, __global const ${T} *a, __global const ${T} *b, __global ${T} *x)
{
    __local ${T} factors[${block * (block + 1)}];
    const int n = size.rows, item = get_local_id(0), by_column = abs(a_at.column) > abs(a_at.row);
    const long tiles = (size.columns + ${group - 1}) / ${group};
    for (long unit = get_group_id(0); unit < size.count * tiles; unit += get_num_groups(0)) {
        const long batch = unit / tiles, column = (unit - batch * tiles) * ${group} + item;
        __global const ${T} *matrix = a + a_at.offset + batch * a_at.batch;
        barrier(CLK_LOCAL_MEM_FENCE); /* the matrix of the unit before is not read any more */
        for (int e = item; e < ${block * block}; e += ${group}) {
            const int i = by_column ? e % ${block} : e / ${block}, k = by_column ? e / ${block} : e % ${block};
            const int is_read = i < n && k ${"<" if unit else "<="} i;
            factors[i * ${block + 1} + k] = is_read ? matrix[i * a_at.row + k * a_at.column] : i == k;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ${singular(f"factors[i * {block + 2}]")}
        if (column < size.columns) {
            __global const ${T} *source = b + b_at.offset + batch * b_at.batch + column * b_at.column;
            __global ${T} *target = x + x_at.offset + batch * x_at.batch + column * x_at.column;
            for (int begin = 0; begin < n; begin += ${rows}) {
                __local const ${T} *panel = factors + begin * ${block + 1};
    % for i in range(rows):
                ${T} x${i} = begin + ${i} < n ? source[(begin + ${i}) * b_at.row] : 0;
    % endfor
                for (int k = 0; k < begin; ++k) {
                    const ${T} solved = target[k * x_at.row]; /* this work-item has written it */
    % for i in range(rows):
                    x${i} -= panel[${i * (block + 1)} + k] * solved;
    % endfor
                }
    % for i in range(rows):
        % for k in range(i):
                x${i} -= panel[begin + ${i * (block + 1) + k}] * x${k};
        % endfor
                x${i} /= panel[begin + ${i * (block + 2)}];
    % endfor
    % for i in range(rows):
                if (begin + ${i} < n)
                    target[(begin + ${i}) * x_at.row] = failed ? (${T})NAN : x${i};
    % endfor
            }
        }
    }
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_rows(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                  const linalg_strides x_at, __global const ${T} *a, __global const ${T} *b, __global ${T} *x)
{
    __local ${T} factors[${block * (block + 1)}], values[${max(group, block)}];
    const int n = size.rows, stride = n | 1, item = get_local_id(0);  /* odd: no bank conflicts */
    const int per_slot = min(n, ${group}), slots = min(${group} / per_slot, ${block * (block + 1)} / (n * stride));
    const int slot = item / per_slot, first_row = item - slot * per_slot;
    const int by_column = abs(a_at.column) > abs(a_at.row);
    __local const ${T} *matrix = factors + slot * n * stride;
    __local ${T} *value = values + slot * n;
    for (long begin = get_group_id(0) * (long)slots; begin < size.count; begin += get_num_groups(0) * (long)slots) {
        const int count = (int)min((long)slots, size.count - begin), exists = slot < count;
        barrier(CLK_LOCAL_MEM_FENCE); /* the matrices of the bundle before are not read any more */
        for (int e = item; e < count * n * n; e += ${group}) {
            const int line = e / n, inner = e - line * n, s = line / n, outer = line - s * n;
            const int i = by_column ? inner : outer, k = by_column ? outer : inner;
            factors[(s * n + i) * stride + k] =
                a[a_at.offset + (begin + s) * a_at.batch + i * a_at.row + k * a_at.column];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    % if unit:
        const int failed = 0;
    % else:
        int failed = 0;
        for (int i = 0; exists && i < n; ++i)
            failed |= matrix[i * (stride + 1)] == 0;
        failed = failed && size.whole;
    % endif
        for (long column = 0; column < size.columns; ++column) {
            __global const ${T} *source = b + b_at.offset + (begin + slot) * b_at.batch + column * b_at.column;
            __global ${T} *target = x + x_at.offset + (begin + slot) * x_at.batch + column * x_at.column;
            for (int i = first_row; exists && i < n; i += per_slot)
                value[i] = source[i * b_at.row];
            for (int k = 0; k < n; ++k) {
                barrier(CLK_LOCAL_MEM_FENCE);
                if (exists) {
                    const ${T} solved = value[k]${"" if unit else " / matrix[k * (stride + 1)]"};
                    for (int i = first_row; i < n; i += per_slot)
                        if (i > k)
                            value[i] -= matrix[i * stride + k] * solved;
                }
            }
            for (int i = first_row; exists && i < n; i += per_slot)
                target[i * x_at.row] =
                    failed ? (${T})NAN : value[i]${"" if unit else " / matrix[i * (stride + 1)]"};
            barrier(CLK_LOCAL_MEM_FENCE); /* others read the values until here */
        }
    }
}
% endif

${moves.finish_triangular(name, T, one_item_groups)}
