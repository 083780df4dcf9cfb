## LU factors with partial pivoting, P A = L U, of panels of a batch of matrices; and what is computed from them.
##
## Algorithm  `_panel`: schedule cpu: left-looking in a copy with contiguous columns, vectors along the rows; simt:
##            right-looking; a row's multiples are subtracted from the rows below it.
##            `_lanes`: left-looking, `lanes` square matrices at a time, one in each lane of a vector, with pivots of
##            its own.
##            `_swap`: applies the interchanges of rows to other columns. `_determinant`: signs and logarithms of
##            the pivots.
## Operands   a: rows x columns, any strides, columns <= block; L below the diagonal, U above it, overwrite the panel.
##            Of `_lanes` another array gets them.
##            pivots: for step k of the panel the row that was interchanged with row k, `base` added to it.
## NDRange    `_panel`: schedule cpu: work-items share the matrices evenly; simt: work-groups of `group` loop over them.
##            `_lanes`: work-items share groups of matrices evenly.
##            `_swap`: work-items share the columns. `_determinant`, `_singular`: work-items loop over matrices.
## Workspace  `_lanes`: rows * (rows + 1) vectors for each work-item. `_panel`, schedule cpu: columns * (rows | 1), rows
##            in vectors.
## Invariant  A pivot that is zero divides nothing: its column below the diagonal is zero already.
## Reference  Golub and Van Loan, Matrix Computations, 3.4.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="moves" file="/linalg/moves.mako"/>\
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<% V, T = ctype if lanes == 1 else f"{ctype}{lanes}", ctype %>
% if schedule == "cpu":
<%
    digits, is_double = "0123456789abcdef", ctype == "double"
    I = f"{'long' if is_double else 'int'}{lanes}"
    smallest = "DBL_MIN" if is_double else "FLT_MIN"
%>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                   __global ${T} *a, __global int *pivots, __global ${V} *workspace)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    const int m = size.rows, n = size.columns, vectors = (m + ${lanes - 1}) / ${lanes};
    const int step = vectors | 1; /* from column to column: odd, so that they do not share sets of the cache */
    __global ${V} *columns = workspace + part * n * step;
    __global ${T} *element = (__global ${T} *)columns;
    const ${I} lane = (${I})(${", ".join(map(str, range(lanes)))});
    const long b_end = partition_begin(size.count, 1, part + 1, parts);
    for (long b = partition_begin(size.count, 1, part, parts); b < b_end; ++b) {
        __global ${T} *matrix = a + a_at.offset + b * a_at.batch;
        __global int *pivot = pivots + p_at.offset + b * p_at.batch;
        for (int v = 0; v < vectors; ++v)
            linalg_load_${V}(matrix + v * ${lanes} * a_at.row, a_at.row, min(${lanes}, m - v * ${lanes}), a_at.column,
                             n, columns + v, step);
        for (int j = 0; j < n; ++j)
            for (int i = m; i < vectors * ${lanes}; ++i)
                element[j * step * ${lanes} + i] = 0; /* is no pivot */
        for (int k = 0; k < min(m, n); ++k) {
            __global ${V} *column = columns + k * step;
            __global ${T} *values = (__global ${T} *)column;
            const int first = k / ${lanes};
            /* Rows up to the vector of row k: U, one after the other. */
            for (int t = 0; t < k; ++t) {
                __global const ${V} *left = columns + t * step;
                const ${T} factor = values[t];
                int v = t / ${lanes};
                column[v] = select(column[v], column[v] - factor * left[v], lane > (${I})(t - v * ${lanes}));
                for (++v; v <= first; ++v)
                    column[v] -= factor * left[v];
            }
            const ${V} top = select((${V})-1, fabs(column[first]), lane >= (${I})(k - first * ${lanes}));
            ${V} largest = select((${V})-1, top, top > -1);
            ${I} best_vector = first;
            int v = first + 1;
            for (; v + 4 <= vectors; v += 4) {
    % for r in range(4):
                ${V} sum${r} = column[v + ${r}];
    % endfor
                for (int t = 0; t < k; ++t) {
                    __global const ${V} *left = columns + t * step + v;
                    const ${T} factor = values[t];
    % for r in range(4):
                    sum${r} -= factor * left[${r}];
    % endfor
                }
    % for r in range(4):
                {
                    column[v + ${r}] = sum${r};
                    const ${I} is_larger = fabs(sum${r}) > largest;
                    largest = select(largest, fabs(sum${r}), is_larger);
                    best_vector = select(best_vector, (${I})(v + ${r}), is_larger);
                }
    % endfor
            }
            for (; v < vectors; ++v) {
                ${V} sum = column[v];
                for (int t = 0; t < k; ++t)
                    sum -= values[t] * columns[t * step + v];
                column[v] = sum;
                const ${I} is_larger = fabs(sum) > largest;
                largest = select(largest, fabs(sum), is_larger);
                best_vector = select(best_vector, (${I})(v), is_larger);
            }
            /* Of equal ones the first row counts. A pivot that is NaN stays: nothing is larger. */
            int best = k;
            ${T} size_of = fabs(values[k]);
    % for l in range(lanes):
            {
                const ${T} other = largest.s${digits[l]};
                const int row = best_vector.s${digits[l]} * ${lanes} + ${l};
                if (other > size_of || (other == size_of && row < best)) {
                    size_of = other;
                    best = row;
                }
            }
    % endfor
            pivot[k] = p_at.base + best;
            for (int j = 0; best != k && j < n; ++j) {
                __global ${T} *pair = element + j * step * ${lanes};
                const ${T} other = pair[k];
                pair[k] = pair[best];
                pair[best] = other;
            }
            const ${T} divisor = values[k] == 0 ? 1 : values[k];
            const ${I} is_below = lane > (${I})(k - first * ${lanes});
            if (fabs(divisor) >= ${smallest} && fabs(divisor) <= 1 / ${smallest}) {
                const ${T} inverse = 1 / divisor;
                column[first] = select(column[first], column[first] * inverse, is_below);
                for (int v = first + 1; v < vectors; ++v)
                    column[v] *= inverse;
            } else {
                column[first] = select(column[first], column[first] / divisor, is_below);
                for (int v = first + 1; v < vectors; ++v)
                    column[v] /= divisor;
            }
        }
        for (int v = 0; v < vectors; ++v)
            linalg_store_${V}(matrix + v * ${lanes} * a_at.row, a_at.row, min(${lanes}, m - v * ${lanes}), a_at.column,
                              n, columns + v, step);
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}_lanes(const linalg_sizes size, const linalg_strides a_at, const linalg_strides lu_at,
                   const linalg_pivots p_at, __global const ${T} *a, __global ${T} *lu, __global int *pivots,
                   __global ${V} *workspace)
{
    const long part = get_global_id(0), parts = get_global_size(0), groups = (size.count + ${lanes - 1}) / ${lanes};
    const int n = size.rows;
    __global ${V} *column = workspace + part * (n * (n + 1)), *values = column + n;
    const long g_end = partition_begin(groups, 1, part + 1, parts);
    for (long g = partition_begin(groups, 1, part, parts); g < g_end; ++g) {
        const long b = g * ${lanes};
        const int valid = min((long)${lanes}, size.count - b);
        linalg_load_matrices_${V}(a + a_at.offset + b * a_at.batch, a_at, valid, n, n, values);
        for (int k = 0; k < n; ++k) {
            for (int t = 0; t < k; ++t)
                column[t] = values[t * n + k];
            ${V} largest = -1;
            ${I} best = k;
            int i = k;
            for (; i + 4 <= n; i += 4) {
    % for r in range(4):
                __global ${V} *row${r} = values + (i + ${r}) * n;
                ${V} sum${r} = row${r}[k];
    % endfor
                for (int t = 0; t < k; ++t) {
                    const ${V} value = column[t];
    % for r in range(4):
                    sum${r} -= row${r}[t] * value;
    % endfor
                }
    % for r in range(4):
                row${r}[k] = sum${r};
                {
                    /* A pivot that is NaN stays: nothing is larger. */
                    const ${V} size_of = fabs(sum${r});
                    const ${I} is_larger = size_of > largest || (${I})(i + ${r} == k ? -1 : 0);
                    largest = select(largest, size_of, is_larger);
                    best = select(best, (${I})(i + ${r}), is_larger);
                }
    % endfor
            }
            for (; i < n; ++i) {
                __global ${V} *row = values + i * n;
                ${V} sum = row[k];
                for (int t = 0; t < k; ++t)
                    sum -= row[t] * column[t];
                row[k] = sum;
                const ${V} size_of = fabs(sum);
                const ${I} is_larger = size_of > largest || (${I})(i == k ? -1 : 0);
                largest = select(largest, size_of, is_larger);
                best = select(best, (${I})(i), is_larger);
            }
            __global ${V} *pivot_row = values + k * n;
    % for lane in range(lanes):
            {
                const int other = best.s${digits[lane]};
                if (${lane} < valid)
                    pivots[p_at.offset + (b + ${lane}) * p_at.batch + k] = p_at.base + other;
                /* All lanes with this pivot at once. */
                if (other != k${"".join(f" && other != best.s{digits[l]}" for l in range(lane))}) {
                    __global ${V} *other_row = values + other * n;
                    const ${I} is_swapped = best == (${I})(other);
                    for (int j = 0; j < n; ++j) {
                        const ${V} first = pivot_row[j], second = other_row[j];
                        pivot_row[j] = select(first, second, is_swapped);
                        other_row[j] = select(second, first, is_swapped);
                    }
                }
            }
    % endfor
            const ${V} pivot = pivot_row[k], divisor = select(pivot, (${V})1, pivot == 0);
            if (all(fabs(divisor) >= ${smallest} && fabs(divisor) <= 1 / ${smallest})) {
                const ${V} inverse = 1 / divisor;
                for (int i = k + 1; i < n; ++i)
                    values[i * n + k] *= inverse;
            } else
                for (int i = k + 1; i < n; ++i)
                    values[i * n + k] /= divisor;
            int j = k + 1;
            for (; j + 8 <= n; j += 8) {
    % for c in range(8):
                ${V} sum${c} = pivot_row[j + ${c}];
    % endfor
                for (int t = 0; t < k; ++t) {
                    const ${V} factor = pivot_row[t];
                    __global const ${V} *row = values + t * n + j;
    % for c in range(8):
                    sum${c} -= factor * row[${c}];
    % endfor
                }
    % for c in range(8):
                pivot_row[j + ${c}] = sum${c};
    % endfor
            }
            for (; j < n; ++j) {
                ${V} sum = pivot_row[j];
                for (int t = 0; t < k; ++t)
                    sum -= pivot_row[t] * values[t * n + j];
                pivot_row[j] = sum;
            }
        }
        linalg_store_matrices_${V}(lu + lu_at.offset + b * lu_at.batch, lu_at, valid, n, n, values);
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

${moves.swap(name, T, schedule, one_item_groups)}
${moves.identity(name, T, schedule, one_item_groups)}
<%
    word, bits = ("ulong", 52) if ctype == "double" else ("uint", 23)
    low, one, field = (1 << bits) - 1, (1023 if bits == 52 else 127) << bits, 2047 if bits == 52 else 255
    suffix = "UL" if bits == 52 else "U"
    ln2 = "0.693147180559945309417" + ("" if bits == 52 else "f")
%>
/* Sign and logarithm of the absolute value of each determinant, from its factors. The product of the pivots is kept as
   a mantissa in [1, 2) and an exponent. */
__kernel ${one_item_groups}
void ${name}_determinant(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                         __global const ${T} *a, __global const int *pivots, __global ${T} *signs,
                         __global ${T} *logs, const long signs_at, const long logs_at)
{
    const long part = get_global_id(0), parts = get_global_size(0);
% if schedule == "cpu":
    const long b_end = partition_begin(size.count, 1, part + 1, parts);
    for (long b = partition_begin(size.count, 1, part, parts); b < b_end; ++b) {
% else:
    for (long b = part; b < size.count; b += parts) {
% endif
        __global const ${T} *matrix = a + a_at.offset + b * a_at.batch;
        __global const int *pivot = pivots + p_at.offset + b * p_at.batch;
        int is_negative = 0, has_special = 0;
        long exponent = 0;
        ${T} product = 1;
        for (long k = 0; k < size.rows; ++k) {
            const ${word} value = as_${word}(matrix[k * (a_at.row + a_at.column)]);
            const int biased = (value >> ${bits}) & ${field};
            has_special |= biased == 0 || biased == ${field}; /* zero, subnormal, infinite or NaN */
            is_negative ^= (pivot[k] != k) ^ (int)(value >> ${8 * (8 if bits == 52 else 4) - 1});
            product *= as_${T}((value & 0x${f"{low:x}"}${suffix}) | 0x${f"{one:x}"}${suffix});
            const ${word} scaled = as_${word}(product);
            exponent += biased + (int)(scaled >> ${bits}) - ${2 * (one >> bits)};
            product = as_${T}((scaled & 0x${f"{low:x}"}${suffix}) | 0x${f"{one:x}"}${suffix});
        }
        ${T} sign_of = is_negative ? -1 : 1, sum = log(product) + exponent * ${ln2};
        ${T} determinant = ldexp(product, (int)clamp(exponent, -10000L, 10000L));
        if (has_special) {
            sign_of = 1;
            sum = 0;
            for (long k = 0; k < size.rows; ++k) {
                const ${T} value = matrix[k * (a_at.row + a_at.column)];
                sign_of = pivot[k] == k ? sign_of : -sign_of;
                sign_of *= value == 0 ? 0 : value < 0 ? (${T})-1 : value > 0 ? (${T})1 : value;
                sum += log(fabs(value));
            }
            determinant = exp(sum);
        }
        /* size.whole: whether the determinant itself is wanted. */
        signs[signs_at + b] = size.whole ? sign_of * determinant : sign_of;
        if (!size.whole)
            logs[logs_at + b] = sum;
    }
}

${moves.keep(name, one_item_groups)}
${moves.singular(name, T, one_item_groups)}
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
