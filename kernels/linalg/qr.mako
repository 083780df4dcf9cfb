## QR factors by Householder reflections, of panels of a batch of matrices; and what their products need.
##
## Algorithm  `_panel`: LAPACK's geqr2. `_vectors`: the reflection vectors V of a panel, with ones on the diagonal.
##            `_lanes`: geqr2 and org2r, `lanes` matrices at a time, one in each lane of a vector; the first columns
##            of Q are written where `whole`, their number, is nonzero, and with `signs` their directions are those of
##            the columns of A if these are orthogonal; the first rows of R where `rows_of_r` is nonzero.
##            `_factor`: T of the block reflection I - V T V^T, from V^T V. `_upper`: R. `_signs`: signs of columns.
## Operands   a: rows x columns, any strides, columns <= block; R on and above the diagonal, V below it, overwrite it.
##            taus: contiguous, `block` for each matrix.
## NDRange    `_panel`: schedule cpu: work-items share the matrices evenly; simt: work-groups of `group` loop over them.
##            `_lanes`: work-items share groups of matrices evenly.
##            `_factor`: work-items loop over the matrices. Others: work-items share the elements.
## Workspace  `_lanes`: rows * (columns + whole) vectors for each work-item.
## Invariant  A column whose elements are so small or so large that its norm, or a multiple of it, cannot be represented
##            is multiplied by a power of two before it is reflected, as in LAPACK's larfg; else Q is not orthogonal.
## Reference  Golub and Van Loan, Matrix Computations, 5.2; R. Schreiber and C. Van Loan, A storage-efficient WY
##            representation for products of Householder transformations, 1989.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="moves" file="/linalg/moves.mako"/>\
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<%
T = ctype
# The smallest normal number over epsilon, its inverse; a large number, and what makes it smaller.
exponents = (-103, 103, 111, -32) if T == "float" else (-970, 970, 1000, -64)
low, up, high, down = (f"0x1p{e}{'f' if T == 'float' else ''}" for e in exponents)
%>
<%def name="reflection(element, squares)">
            const ${T} extent = fmax(largest, fabs(${element}));
            const ${T} scale = extent < ${low} ? ${up} : extent > ${high} ? ${down} : 1;
            const ${T} pivot = ${element} * scale, norm = largest * scale * sqrt(${squares});
            const int is_done = norm == 0 && !isnan(pivot);
            const ${T} head = is_done ? pivot : -copysign(hypot(pivot, norm), pivot);
            const ${T} tau = is_done ? 0 : (head - pivot) / head;
            const ${T} inverse = is_done ? 1 : 1 / (pivot - head);
</%def>
% if schedule == "cpu":
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, __global ${T} *a, __global ${T} *all_taus)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const int m = size.rows, n = size.columns;
    ${T} sums[${block}];
    const long b_end = partition_begin(size.count, 1, part + 1, parts);
    for (long b = partition_begin(size.count, 1, part, parts); b < b_end; ++b) {
        __global ${T} *matrix = a + a_at.offset + b * a_at.batch, *taus = all_taus + b * ${block};
        for (int k = 0; k < min(m, n); ++k) {
            __global ${T} *column = matrix + k * a_at.column;
            ${T} largest = 0, rest = 0;
            for (int i = k + 1; i < m; ++i)
                largest = fmax(largest, fabs(column[i * a_at.row]));
            for (int i = k + 1; largest > 0 && i < m; ++i) {
                const ${T} value = column[i * a_at.row] / largest;
                rest += value * value;
            }
            ${reflection("column[k * a_at.row]", "rest")}
            column[k * a_at.row] = head / scale;
            taus[k] = tau;
            for (int j = k + 1; j < n; ++j)
                sums[j] = matrix[k * a_at.row + j * a_at.column];
            for (int i = k + 1; i < m; ++i) {
                __global ${T} *row = matrix + i * a_at.row;
                const ${T} value = row[k * a_at.column] * scale * inverse;
                row[k * a_at.column] = value;
                for (int j = k + 1; j < n; ++j)
                    sums[j] += value * row[j * a_at.column];
            }
            for (int j = k + 1; j < n; ++j) {
                sums[j] *= tau;
                matrix[k * a_at.row + j * a_at.column] -= sums[j];
            }
            for (int i = k + 1; i < m; ++i) {
                __global ${T} *row = matrix + i * a_at.row;
                const ${T} value = row[k * a_at.column];
                for (int j = k + 1; j < n; ++j)
                    row[j * a_at.column] -= value * sums[j];
            }
        }
    }
}
% if lanes > 1:
<% V, integers = f"{ctype}{lanes}", f"{'int' if ctype == 'float' else 'long'}{lanes}" %>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_lanes(const linalg_sizes size, const linalg_strides a_at, const linalg_strides q_at,
                   const linalg_strides r_at, const long rows_of_r, const int signs, __global const ${T} *a,
                   __global ${T} *q, __global ${T} *r, __global ${V} *workspace)
{
    const long part = get_global_id(0), parts = get_global_size(0), groups = (size.count + ${lanes - 1}) / ${lanes};
    const int m = size.rows, n = size.columns, columns = size.whole, steps = min(m, n);
    __global ${V} *factor = workspace + part * (m * n + m * columns), *product = factor + m * n;
    ${V} taus[${block}];
    const long g_end = partition_begin(groups, 1, part + 1, parts);
    for (long g = partition_begin(groups, 1, part, parts); g < g_end; ++g) {
        const long b = g * ${lanes};
        const int valid = min((long)${lanes}, size.count - b);
        linalg_load_matrices_${V}(a + a_at.offset + b * a_at.batch, a_at, valid, m, n, factor);
        for (int k = 0; k < steps; ++k) {
            __global ${V} *column = factor + k;
            ${V} largest = 0, rest = 0;
            for (int i = k + 1; i < m; ++i)
                largest = fmax(largest, fabs(column[i * n]));
            const ${V} unit = select((${V})1, largest, largest > 0), extent = fmax(largest, fabs(column[k * n]));
            for (int i = k + 1; i < m; ++i) {
                const ${V} value = column[i * n] / unit;
                rest += value * value;
            }
            ${V} scale = select((${V})1, (${V})${up}, extent < ${low});
            scale = select(scale, (${V})${down}, extent > ${high});
            const ${V} pivot = column[k * n] * scale, norm = largest * scale * sqrt(rest);
            const ${integers} is_done = norm == 0 && !isnan(pivot);
            const ${V} head = select(-copysign(hypot(pivot, norm), pivot), pivot, is_done);
            const ${V} tau = select((head - pivot) / head, (${V})0, is_done);
            const ${V} inverse = 1 / select(pivot - head, (${V})1, is_done);
            column[k * n] = head / scale;
            taus[k] = tau;
            for (int i = k + 1; i < m; ++i)
                column[i * n] = column[i * n] * scale * inverse;
            for (int j = k + 1; j < n; ++j) {
                __global ${V} *other = factor + j;
                ${V} sum = other[k * n];
                for (int i = k + 1; i < m; ++i)
                    sum += column[i * n] * other[i * n];
                sum *= tau;
                other[k * n] -= sum;
                for (int i = k + 1; i < m; ++i)
                    other[i * n] -= column[i * n] * sum;
            }
        }
        for (int i = 0; columns && i < m; ++i)
            for (int j = 0; j < columns; ++j)
                product[i * columns + j] = i == j;
        for (int k = columns ? steps - 1 : -1; k >= 0; --k)
            for (int j = k; j < columns; ++j) {
                __global const ${V} *column = factor + k;
                __global ${V} *other = product + j;
                ${V} sum = other[k * columns];
                for (int i = k + 1; i < m; ++i)
                    sum += column[i * n] * other[i * columns];
                sum *= taus[k];
                other[k * columns] -= sum;
                for (int i = k + 1; i < m; ++i)
                    other[i * columns] -= column[i * n] * sum;
            }
        for (int j = 0; signs && j < min(steps, columns); ++j) {
            const ${V} sign_of = select((${V})1, (${V})-1, factor[j * (n + 1)] < 0);
            for (int i = 0; i < m; ++i)
                product[i * columns + j] *= sign_of;
        }
        if (columns)
            linalg_store_matrices_${V}(q + q_at.offset + b * q_at.batch, q_at, valid, m, columns, product);
        for (int i = 0; i < rows_of_r; ++i)
            for (int j = 0; j < min(i, n); ++j)
                factor[i * n + j] = 0;
        if (rows_of_r)
            linalg_store_matrices_${V}(r + r_at.offset + b * r_at.batch, r_at, valid, rows_of_r, n, factor);
    }
}
% endif
% else:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, __global ${T} *a, __global ${T} *all_taus)
{
    __local ${T} partial[${group}];
    const int m = size.rows, n = size.columns, item = get_local_id(0);
    for (long b = get_group_id(0); b < size.count; b += get_num_groups(0)) {
        __global ${T} *matrix = a + a_at.offset + b * a_at.batch, *taus = all_taus + b * ${block};
        for (int k = 0; k < min(m, n); ++k) {
            __global ${T} *column = matrix + k * a_at.column;
            ${T} largest = 0, rest = 0;
            for (int i = k + 1 + item; i < m; i += ${group})
                largest = fmax(largest, fabs(column[i * a_at.row]));
            partial[item] = largest;
            <%workgroup:tree_reduce group="${group // 2}">
                    partial[item] = fmax(partial[item], partial[item + distance]);
            </%workgroup:tree_reduce>
            largest = partial[0];
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int i = k + 1 + item; largest > 0 && i < m; i += ${group}) {
                const ${T} value = column[i * a_at.row] / largest;
                rest += value * value;
            }
            partial[item] = rest;
            <%workgroup:tree_reduce group="${group // 2}">
                    partial[item] += partial[item + distance];
            </%workgroup:tree_reduce>
            ${reflection("column[k * a_at.row]", "partial[0]")}
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); /* every work-item has read the pivot */
            if (item == 0) {
                column[k * a_at.row] = head / scale;
                taus[k] = tau;
            }
            for (int i = k + 1 + item; i < m; i += ${group})
                column[i * a_at.row] = column[i * a_at.row] * scale * inverse;
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            for (int j = k + 1 + item; j < n; j += ${group}) {
                __global ${T} *other = matrix + j * a_at.column;
                ${T} sum = other[k * a_at.row];
                for (int i = k + 1; i < m; ++i)
                    sum += column[i * a_at.row] * other[i * a_at.row];
                sum *= tau;
                other[k * a_at.row] -= sum;
                for (int i = k + 1; i < m; ++i)
                    other[i * a_at.row] -= column[i * a_at.row] * sum;
            }
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        }
    }
}
% endif

${moves.vectors(name, T, schedule, one_item_groups)}
/* t (columns x columns) holds V^T V before and T after. */
__kernel ${one_item_groups}
void ${name}_factor(const linalg_sizes size, const linalg_strides t_at, __global const ${T} *all_taus,
                    __global ${T} *t)
{
    const long n = size.columns, row = t_at.row, column = t_at.column;
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${T} *taus = all_taus + b * ${block};
        __global ${T} *matrix = t + t_at.offset + b * t_at.batch;
        for (long j = 0; j < n; ++j) {
            const ${T} tau = taus[j];
            for (long i = 0; i < j; ++i) {
                ${T} sum = 0;
                for (long k = i; k < j; ++k)
                    sum += matrix[i * row + k * column] * matrix[k * row + j * column];
                matrix[i * row + j * column] = -tau * sum;
            }
            matrix[j * (row + column)] = tau;
            for (long i = j + 1; i < n; ++i)
                matrix[i * row + j * column] = 0;
        }
    }
}

${moves.upper(name, T, schedule, one_item_groups)}
${moves.identity(name, T, schedule, one_item_groups)}
${moves.signs(name, T, schedule, one_item_groups)}
