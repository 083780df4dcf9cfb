## Cholesky factors of a batch of small matrices: A = L L^T, of which only the lower triangle is read.
##
## Algorithm  `_block`: right-looking, one matrix after the other; rows of U = L^T are contiguous in private memory.
##            `_lanes`: left-looking, `lanes` matrices at a time, one in each lane of a vector. The next ones are
##            prefetched, a row of each for each column of the factor.
##            `_group`: right-looking, one matrix for each work-group, in local memory.
## Operands   a, l: rows x rows, any strides, rows <= block. a and l may be the same array.
##            Where `whole` is nonzero, zeros are written above the diagonal of l, and NaN everywhere if A is not
##            positive definite.
## NDRange    `_block`, `_lanes`: work-items share the matrices evenly. `_group`: work-groups of `group` loop over
##            the matrices.
## Workspace  `_lanes`: rows * rows vectors for each work-item.
## Invariant  A pivot that is not positive becomes NaN, which reaches the last element of the diagonal.
## Reference  Golub and Van Loan, Matrix Computations, 4.2.
<%page args="name, ctype, lanes, block, group, schedule"/>
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<% V, T = f"{ctype}{lanes}", ctype %>
% if schedule == "cpu":
<%include file="/common/prefetch.mako"/>\
<%
    steps = block // lanes
    line = 64 // {"float": 4, "double": 8}[ctype]  # elements of a cache line
%>
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}_block(const linalg_sizes size, const linalg_strides a_at, const linalg_strides l_at,
                   __global const ${T} *a, __global ${T} *l)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const int n = size.rows;
    ${V} u[${block} * ${steps}];
    ${T} *element = (${T} *)u;
    const long b_end = partition_begin(size.count, 1, part + 1, parts);
    for (long b = partition_begin(size.count, 1, part, parts); b < b_end; ++b) {
        __global const ${T} *source = a + a_at.offset + b * a_at.batch;
        __global ${T} *target = l + l_at.offset + b * l_at.batch;
        for (int j = 0; j < n; ++j)
            for (int i = 0; i <= j; ++i)
                element[i * ${block} + j] = source[j * a_at.row + i * a_at.column];
        for (int k = 0; k < n; ++k) {
            const ${T} pivot = element[k * ${block} + k];
            const ${T} root = pivot > 0 ? sqrt(pivot) : (${T})NAN;
            const ${T} inverse = 1 / root;
            for (int v = k / ${lanes}; v * ${lanes} < n; ++v)
                u[k * ${steps} + v] *= inverse;
            element[k * ${block} + k] = root;
            for (int i = k + 1; i < n; ++i) {
                const ${T} factor = element[k * ${block} + i];
                for (int v = i / ${lanes}; v * ${lanes} < n; ++v)
                    u[i * ${steps} + v] -= factor * u[k * ${steps} + v];
            }
        }
        const int failed = isnan(element[(n - 1) * ${block} + n - 1]);
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j <= i; ++j)
                target[i * l_at.row + j * l_at.column] = size.whole && failed ? (${T})NAN : element[j * ${block} + i];
            if (size.whole)
                for (int j = i + 1; j < n; ++j)
                    target[i * l_at.row + j * l_at.column] = failed ? (${T})NAN : 0;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_lanes(const linalg_sizes size, const linalg_strides a_at, const linalg_strides l_at,
                   __global const ${T} *a, __global ${T} *l, __global ${V} *workspace)
{
    const long part = get_global_id(0), parts = get_global_size(0), groups = (size.count + ${lanes - 1}) / ${lanes};
    const int n = size.rows;
    __global ${V} *factor = workspace + part * (n * n);
    const long g_end = partition_begin(groups, 1, part + 1, parts);
    for (long g = partition_begin(groups, 1, part, parts); g < g_end; ++g) {
        const long b = g * ${lanes};
        const int valid = min((long)${lanes}, size.count - b);
        linalg_load_matrices_${V}(a + a_at.offset + b * a_at.batch, a_at, valid, n, n, factor);
        const int is_contiguous = a_at.column == 1 && a_at.row == n;
        const int next = is_contiguous && g + 1 < g_end ? min((long)${lanes}, size.count - b - ${lanes}) : 0;
        __global const ${T} *later = a + a_at.offset + (b + ${lanes}) * a_at.batch;
        for (int j = 0; j < n; ++j) {
            for (int lane = 0; lane < next; ++lane)
                for (int e = 0; e < n; e += ${line})
                    prefetch_later(later + lane * a_at.batch + j * n + e);
            __global ${V} *pivots = factor + j * n;
            ${V} pivot = pivots[j];
            for (int k = 0; k < j; ++k)
                pivot -= pivots[k] * pivots[k];
            const ${V} root = sqrt(select((${V})NAN, pivot, pivot > 0));
            const ${V} inverse = 1 / root;
            pivots[j] = root;
            int i = j + 1;
            for (; i + 4 <= n; i += 4) {
                __global ${V} *row0 = factor + i * n, *row1 = row0 + n, *row2 = row1 + n, *row3 = row2 + n;
                ${V} sum0 = row0[j], sum1 = row1[j], sum2 = row2[j], sum3 = row3[j];
                for (int k = 0; k < j; ++k) {
                    const ${V} value = pivots[k];
                    sum0 -= row0[k] * value;
                    sum1 -= row1[k] * value;
                    sum2 -= row2[k] * value;
                    sum3 -= row3[k] * value;
                }
                row0[j] = sum0 * inverse;
                row1[j] = sum1 * inverse;
                row2[j] = sum2 * inverse;
                row3[j] = sum3 * inverse;
            }
            for (; i < n; ++i) {
                __global ${V} *row = factor + i * n;
                ${V} sum = row[j];
                for (int k = 0; k < j; ++k)
                    sum -= row[k] * pivots[k];
                row[j] = sum * inverse;
            }
        }
        const ${V} failed = select((${V})0, (${V})NAN, isnan(factor[n * n - 1])); /* NaN plus an element is NaN */
        for (int i = 0; i < n; ++i) {
            for (int j = 0; j <= i; ++j)
                factor[i * n + j] += failed;
            for (int j = i + 1; j < n; ++j)
                factor[i * n + j] = failed;
        }
        linalg_store_matrices_${V}(l + l_at.offset + b * l_at.batch, l_at, valid, n, n, factor);
    }
}
% else:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_group(const linalg_sizes size, const linalg_strides a_at, const linalg_strides l_at,
                   __global const ${T} *a, __global ${T} *l)
{
    __local ${T} tile[${block} * ${block + 1}];
    const int n = size.rows, stride = n | 1, item = get_local_id(0);
    for (long b = get_group_id(0); b < size.count; b += get_num_groups(0)) {
        __global const ${T} *source = a + a_at.offset + b * a_at.batch;
        __global ${T} *target = l + l_at.offset + b * l_at.batch;
        for (int e = item; e < n * n; e += ${group}) {
            const int i = e / n, j = e - i * n;
            if (j <= i)
                tile[i * stride + j] = source[i * a_at.row + j * a_at.column];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < n; ++k) {
            const ${T} pivot = tile[k * stride + k];
            const ${T} root = pivot > 0 ? sqrt(pivot) : (${T})NAN;
            barrier(CLK_LOCAL_MEM_FENCE); /* every work-item has read the pivot */
            for (int i = k + item; i < n; i += ${group})
                tile[i * stride + k] = i == k ? root : tile[i * stride + k] / root;
            barrier(CLK_LOCAL_MEM_FENCE);
            const int rest = n - k - 1;
            for (int e = item; e < rest * rest; e += ${group}) {
                const int i = k + 1 + e / rest, j = k + 1 + e % rest;
                if (j <= i)
                    tile[i * stride + j] -= tile[i * stride + k] * tile[j * stride + k];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const int failed = size.whole && isnan(tile[(n - 1) * stride + n - 1]);
        for (int e = item; e < n * n; e += ${group}) {
            const int i = e / n, j = e - i * n;
            if (j <= i || size.whole)
                target[i * l_at.row + j * l_at.column] =
                    failed ? (${T})NAN : j <= i ? tile[i * stride + j] : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* before the next matrix overwrites the tile */
    }
}
% endif

% if schedule == "cpu":
/* The lower triangle of a, and zeros above it. */
__kernel ${one_item_groups}
void ${name}_begin(const linalg_sizes size, const linalg_strides a_at, const linalg_strides l_at,
                   __global const ${T} *a, __global ${T} *l)
{
    const long part = get_global_id(0), parts = get_global_size(0), n = size.rows;
    const int by_column = abs(l_at.column) > abs(l_at.row);
    const long outer_step = by_column ? l_at.column : l_at.row, inner_step = by_column ? l_at.row : l_at.column;
    const long a_outer_step = by_column ? a_at.column : a_at.row, a_inner_step = by_column ? a_at.row : a_at.column;
    const long line_end = partition_begin(size.count * n, 1, part + 1, parts);
    for (long line = partition_begin(size.count * n, 1, part, parts); line < line_end; ++line) {
        const long b = line / n, outer = line - b * n;
        __global const ${T} *source = a + a_at.offset + b * a_at.batch + outer * a_outer_step;
        __global ${T} *target = l + l_at.offset + b * l_at.batch + outer * outer_step;
        const long begin = by_column ? outer : 0, end = by_column ? n : outer + 1;
        for (long inner = 0; inner < begin; ++inner)
            target[inner * inner_step] = 0;
        if (inner_step == 1 && a_inner_step == 1)
            for (long inner = begin; inner < end; ++inner)
                target[inner] = source[inner];
        else
            for (long inner = begin; inner < end; ++inner)
                target[inner * inner_step] = source[inner * a_inner_step];
        for (long inner = end; inner < n; ++inner)
            target[inner * inner_step] = 0;
    }
}

% endif
/* Zeros above the diagonal, in so many of its neighbours as there are `columns`; NaN everywhere where the last element
   of the diagonal is NaN. Neighbours in memory are neighbours in the loop. */
__kernel ${one_item_groups}
void ${name}_finish(const linalg_sizes size, const linalg_strides l_at, __global ${T} *l)
{
    const long part = get_global_id(0), parts = get_global_size(0), n = size.rows;
    const long last = (n - 1) * (l_at.row + l_at.column);
    const int by_column = abs(l_at.column) > abs(l_at.row);
% if schedule == "cpu":
    const long outer_step = by_column ? l_at.column : l_at.row, inner_step = by_column ? l_at.row : l_at.column;
    const long line_end = partition_begin(size.count * n, 1, part + 1, parts);
    for (long line = partition_begin(size.count * n, 1, part, parts); line < line_end; ++line) {
        const long b = line / n, outer = line - b * n;
        __global ${T} *matrix = l + l_at.offset + b * l_at.batch;
        const int failed = isnan(matrix[last]);
        const ${T} value = failed ? (${T})NAN : 0;
        const long begin = failed ? 0 : by_column ? max(0L, outer - size.columns) : outer + 1;
        const long end = failed ? n : by_column ? outer : min(n, outer + 1 + size.columns);
        for (long inner = begin; inner < end; ++inner)
            matrix[outer * outer_step + inner * inner_step] = value;
    }
% else:
    LINALG_ELEMENTS_simt(size, b, outer, inner) {
        const long i = by_column ? inner : outer, j = by_column ? outer : inner;
        __global ${T} *matrix = l + l_at.offset + b * l_at.batch;
        const int failed = isnan(matrix[last]);
        if (j > i || (failed && i + j < 2 * n - 2))  /* the last one is read, and NaN then */
            matrix[i * l_at.row + j * l_at.column] = failed ? (${T})NAN : 0;
    }
% endif
}
