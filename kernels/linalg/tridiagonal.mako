## Factors of tridiagonal matrices with interchanges of neighbouring rows, and solutions of linear systems with them.
##
## Algorithm  LAPACK's gttrf and gttrs: A = L U, where U has three diagonals. One work-item for each matrix, or for each
##            column of a right side.
## Operands   lower, upper (count, rows - 1), diagonal (count, rows), second (count, rows - 2), pivots (count, rows) of
##            int: C-contiguous. pivots[i] is i + 1, or i + 2 where rows i and i + 1 were interchanged.
## NDRange    Work-items loop over the matrices, or over the columns of all of them.
<%page args="name, ctype, schedule"/>
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
<% T = ctype %>
__kernel ${one_item_groups}
void ${name}_factor(const long count, const long rows, const long lower_at, const long diagonal_at,
                    const long upper_at, const long second_at, const long pivots_at,
                    __global ${T} *lowers, __global ${T} *diagonals, __global ${T} *uppers,
                    __global ${T} *seconds, __global int *all_pivots)
{
    for (long b = get_global_id(0); b < count; b += get_global_size(0)) {
        __global ${T} *lower = lowers + lower_at + b * (rows - 1), *diagonal = diagonals + diagonal_at + b * rows;
        __global ${T} *upper = uppers + upper_at + b * (rows - 1), *second = seconds + second_at + b * (rows - 2);
        __global int *pivots = all_pivots + pivots_at + b * rows;
        for (long i = 0; i < rows - 1; ++i) {
            const ${T} pivot = diagonal[i], below = lower[i], next = diagonal[i + 1], right = upper[i];
            const int is_swapped = fabs(pivot) < fabs(below);
            pivots[i] = i + 1 + is_swapped;
            if (i < rows - 2)
                second[i] = is_swapped ? upper[i + 1] : 0;
            if (is_swapped) {
                const ${T} factor = pivot / below;
                diagonal[i] = below;
                lower[i] = factor;
                upper[i] = next;
                diagonal[i + 1] = right - factor * next;
                if (i < rows - 2)
                    upper[i + 1] = -factor * upper[i + 1];
            } else if (pivot != 0) {
                const ${T} factor = below / pivot;
                lower[i] = factor;
                diagonal[i + 1] = next - factor * right;
            }
        }
        pivots[rows - 1] = rows;
    }
}

% for kind in ("solve", "transposed"):
/* x (count, rows, columns), C-contiguous, holds the right sides before and the solutions after. A batch step of zero
   repeats a matrix. */
__kernel ${one_item_groups}
void ${name}_${kind}(const long count, const long rows, const long columns, const long is_batch,
                     const long lower_at, const long diagonal_at, const long upper_at, const long second_at,
                     const long pivots_at, const long x_at, __global const ${T} *lowers,
                     __global const ${T} *diagonals, __global const ${T} *uppers,
                     __global const ${T} *seconds, __global const int *all_pivots, __global ${T} *solutions)
{
    const long n = rows, m = columns;
    for (long e = get_global_id(0); e < count * m; e += get_global_size(0)) {
        const long b = e / m, k = is_batch ? b : 0;
        __global const ${T} *lower = lowers + lower_at + k * (n - 1), *diagonal = diagonals + diagonal_at + k * n;
        __global const ${T} *upper = uppers + upper_at + k * (n - 1), *second = seconds + second_at + k * (n - 2);
        __global const int *pivots = all_pivots + pivots_at + k * n;
        __global ${T} *x = solutions + x_at + b * n * m + (e - b * m);
% if kind == "solve":
        for (long i = 0; i < n - 1; ++i) {
            const ${T} own = x[i * m], next = x[(i + 1) * m];
            const int is_swapped = pivots[i] != i + 1;
            x[i * m] = is_swapped ? next : own;
            x[(i + 1) * m] = is_swapped ? own - lower[i] * next : next - lower[i] * own;
        }
        ${T} following = 0, later = 0;
        for (long i = n - 1; i >= 0; --i) {
            const ${T} sum = (i < n - 1 ? upper[i] * following : 0) + (i < n - 2 ? second[i] * later : 0);
            later = following;
            following = (x[i * m] - sum) / diagonal[i];
            x[i * m] = following;
        }
% else:
        ${T} previous = 0, earlier = 0;
        for (long i = 0; i < n; ++i) {
            const ${T} sum = (i > 0 ? upper[i - 1] * previous : 0) + (i > 1 ? second[i - 2] * earlier : 0);
            earlier = previous;
            previous = (x[i * m] - sum) / diagonal[i];
            x[i * m] = previous;
        }
        for (long i = n - 2; i >= 0; --i) {
            const ${T} own = x[i * m], next = x[(i + 1) * m];
            const int is_swapped = pivots[i] != i + 1;
            x[i * m] = is_swapped ? next : own - lower[i] * next;
            x[(i + 1) * m] = is_swapped ? own - lower[i] * next : next;
        }
% endif
    }
}
% endfor
