## LU factors with partial pivoting, P A = L U, of panels of a batch of matrices; and what is computed from them.
##
## Algorithm  `_panel`: right-looking; a row's multiples are subtracted from the rows below it.
##            `_swap`: applies the interchanges of rows to other columns. `_determinant`: signs and logarithms of
##            the pivots.
## Operands   a: rows x columns, any strides, columns <= block; L below the diagonal, U above it, overwrite the panel.
##            pivots: for step k of the panel the row that was interchanged with row k, `base` added to it.
## NDRange    `_panel`: schedule cpu: work-items share the matrices evenly; simt: work-groups of `group` loop over them.
##            `_swap`: work-items share the columns. `_determinant`, `_singular`: work-items loop over matrices.
## Invariant  A pivot that is zero divides nothing: its column below the diagonal is zero already.
## Reference  Golub and Van Loan, Matrix Computations, 3.4.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<% V, T = ctype if lanes == 1 else f"{ctype}{lanes}", ctype %>
% if schedule == "cpu":
<% steps = -(-block // lanes) %>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                   __global ${T} *a, __global int *pivots)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const int m = size.rows, n = size.columns;
    ${V} row[${steps}];
    ${T} *element = (${T} *)row;
    const long b_end = partition_begin(size.count, 1, part + 1, parts);
    for (long b = partition_begin(size.count, 1, part, parts); b < b_end; ++b) {
        __global ${T} *matrix = a + a_at.offset + b * a_at.batch;
        __global int *pivot = pivots + p_at.offset + b * p_at.batch;
        for (int k = 0; k < min(m, n); ++k) {
            int best = k;
            ${T} largest = fabs(matrix[k * (a_at.row + a_at.column)]);
            for (int i = k + 1; i < m; ++i) {
                const ${T} size_of = fabs(matrix[i * a_at.row + k * a_at.column]);
                if (size_of > largest) {
                    largest = size_of;
                    best = i;
                }
            }
            pivot[k] = p_at.base + best;
            for (int j = 0; best != k && j < n; ++j) {
                const ${T} other = matrix[k * a_at.row + j * a_at.column];
                matrix[k * a_at.row + j * a_at.column] = matrix[best * a_at.row + j * a_at.column];
                matrix[best * a_at.row + j * a_at.column] = other;
            }
            /* Zeros up to the pivot: whole vectors leave L as it is. */
            for (int j = 0; j < n; ++j)
                element[j] = j > k ? matrix[k * a_at.row + j * a_at.column] : 0;
            const ${T} divisor = matrix[k * (a_at.row + a_at.column)];
            for (int i = k + 1; i < m; ++i) {
                __global ${T} *target = matrix + i * a_at.row;
                const ${T} factor = divisor == 0 ? target[k * a_at.column] : target[k * a_at.column] / divisor;
                target[k * a_at.column] = factor;
                int j = k + 1;
                if (a_at.column == 1) {
                    int v = j / ${lanes};
                    for (; (v + 1) * ${lanes} <= n; ++v)
                        *(__global linalg_${V} *)(target + v * ${lanes}) -= factor * row[v];
                    j = max(j, v * ${lanes});
                }
                for (; j < n; ++j)
                    target[j * a_at.column] -= factor * element[j];
            }
        }
    }
}
% else:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                   __global ${T} *a, __global int *pivots)
{
    __local ${T} largest[${group}];
    __local int best[${group}];
    const int m = size.rows, n = size.columns, item = get_local_id(0);
    for (long b = get_group_id(0); b < size.count; b += get_num_groups(0)) {
        __global ${T} *matrix = a + a_at.offset + b * a_at.batch;
        __global int *pivot = pivots + p_at.offset + b * p_at.batch;
        for (int k = 0; k < min(m, n); ++k) {
            int row = k;
            ${T} size_of = -1;
            for (int i = k + item; i < m; i += ${group}) {
                const ${T} value = fabs(matrix[i * a_at.row + k * a_at.column]);
                if (value > size_of) {
                    size_of = value;
                    row = i;
                }
            }
            largest[item] = size_of;
            best[item] = row;
            <%workgroup:tree_reduce group="${group // 2}" fences="CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE">
                    const ${T} other = largest[item + distance];
                    /* Of equal ones the first row counts, as LAPACK's does. */
                    if (other > largest[item] || (other == largest[item] && best[item + distance] < best[item])) {
                        largest[item] = other;
                        best[item] = best[item + distance];
                    }
            </%workgroup:tree_reduce>
            row = best[0];
            if (item == 0)
                pivot[k] = p_at.base + row;
            for (int j = item; row != k && j < n; j += ${group}) {
                const ${T} other = matrix[k * a_at.row + j * a_at.column];
                matrix[k * a_at.row + j * a_at.column] = matrix[row * a_at.row + j * a_at.column];
                matrix[row * a_at.row + j * a_at.column] = other;
            }
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            const ${T} divisor = matrix[k * (a_at.row + a_at.column)];
            for (int i = k + 1 + item; divisor != 0 && i < m; i += ${group})
                matrix[i * a_at.row + k * a_at.column] /= divisor;
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            const int rest = n - k - 1;
            for (long e = item; e < (long)(m - k - 1) * rest; e += ${group}) {
                const int i = k + 1 + e / rest, j = k + 1 + e % rest;
                matrix[i * a_at.row + j * a_at.column] -=
                    matrix[i * a_at.row + k * a_at.column] * matrix[k * a_at.row + j * a_at.column];
            }
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        }
    }
}
% endif

/* Interchanges of rows in a (rows x columns), for the first `whole` pivots. Work-items share the columns. */
__kernel ${one_item_groups}
void ${name}_swap(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                  __global ${T} *a, __global const int *pivots)
{
% if schedule == "cpu":
    const long part = get_global_id(0), parts = get_global_size(0);
    const long begin = partition_begin(size.columns, 1, part, parts);
    const long end = partition_begin(size.columns, 1, part + 1, parts);
% else:
    const long step = get_global_size(0);
% endif
    for (long b = 0; b < size.count; ++b) {
        __global ${T} *matrix = a + a_at.offset + b * a_at.batch;
        __global const int *pivot = pivots + p_at.offset + b * p_at.batch;
        for (long k = 0; k < size.whole; ++k) {
            const long other = pivot[k] - p_at.base;
% if schedule == "cpu":
            for (long j = begin; other != k && j < end; ++j) {
% else:
            for (long j = get_global_id(0); other != k && j < size.columns; j += step) {
% endif
                const ${T} value = matrix[k * a_at.row + j * a_at.column];
                matrix[k * a_at.row + j * a_at.column] = matrix[other * a_at.row + j * a_at.column];
                matrix[other * a_at.row + j * a_at.column] = value;
            }
        }
    }
}

/* x (rows x columns) becomes the identity. */
__kernel ${one_item_groups}
void ${name}_identity(const linalg_sizes size, const linalg_strides x_at, __global ${T} *x)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_ELEMENTS_${schedule}(size, b, i, j) {
        x[x_at.offset + b * x_at.batch + i * x_at.row + j * x_at.column] = i == j;
    }
}

/* Sign and logarithm of the absolute value of each determinant, from its factors. */
__kernel ${one_item_groups}
void ${name}_determinant(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                         __global const ${T} *a, __global const int *pivots, __global ${T} *signs,
                         __global ${T} *logs, const long signs_at, const long logs_at)
{
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${T} *matrix = a + a_at.offset + b * a_at.batch;
        __global const int *pivot = pivots + p_at.offset + b * p_at.batch;
        ${T} sign_of = 1, sum = 0;
        for (long k = 0; k < size.rows; ++k) {
            const ${T} value = matrix[k * (a_at.row + a_at.column)];
            sign_of = pivot[k] == k ? sign_of : -sign_of;
            sign_of *= value == 0 ? 0 : value < 0 ? (${T})-1 : value > 0 ? (${T})1 : value;
            sum += log(fabs(value));
        }
        /* size.whole: whether the determinant itself is wanted. */
        signs[signs_at + b] = size.whole ? sign_of * exp(sum) : sign_of;
        if (!size.whole)
            logs[logs_at + b] = sum;
    }
}

/* NaN in x (rows x columns) where U has a zero on its diagonal. */
__kernel ${one_item_groups}
void ${name}_singular(const linalg_sizes size, const linalg_strides a_at, const linalg_strides x_at,
                      __global const ${T} *a, __global ${T} *x, volatile __global int *error_flag,
                      const int number)
{
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${T} *matrix = a + a_at.offset + b * a_at.batch;
        int failed = 0;
        for (long k = 0; k < size.rows; ++k)
            failed |= matrix[k * (a_at.row + a_at.column)] == 0;
        if (failed && number)
            report_error(error_flag, number, 0, b, 0);
        for (long e = 0; failed && e < size.rows * size.columns; ++e) {
            const long i = e / size.columns;
            x[x_at.offset + b * x_at.batch + i * x_at.row + (e - i * size.columns) * x_at.column] = (${T})NAN;
        }
    }
}

/* Row k of P A is row p[k] of A (or the inverse permutation), from interchanges; a work-item for each vector. */
__kernel ${one_item_groups}
void ${name}_permutation(const linalg_sizes size, const linalg_strides pivots_at, const long p_at,
                         __global const int *pivots, __global long *p, __global long *order,
                         volatile __global int *error_flag, const int number)
{
    const long n = size.rows;
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const int *pivot = pivots + pivots_at.offset + b * pivots_at.batch;
        __global long *found = order + b * n, *target = p + p_at + b * n;
        for (long k = 0; k < n; ++k)
            found[k] = k;
        for (long k = 0; k < n; ++k) {
            long other = pivot[k * pivots_at.row];
            if (other < -n || other >= n) {
                report_error(error_flag, number, 0, other, n);
                other = 0;
            }
            other += other < 0 ? n : 0;
            const long row = found[k];
            found[k] = found[other];
            found[other] = row;
        }
        for (long k = 0; k < n; ++k)
            target[size.whole ? k : found[k]] = size.whole ? found[k] : k;
    }
}
