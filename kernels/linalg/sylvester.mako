## Solutions X of A X + X B = C for batches of matrices, where A and B are block triangular, as in Schur forms.
##
## Algorithm  LAPACK's trsyl: blocks of X, of at most two rows and two columns, from the left to the right, and from the
##            last rows to the first ones, are small linear systems, solved by elimination with complete pivoting.
##            Pivots that are no larger than the rounding errors of A and B are replaced.
## Operands   a: rows x rows, and b: columns x columns, with contiguous rows. xt: columns x rows, C-contiguous; holds
##            the transpose of C before and of X after.
## Invariant  Elements below the diagonal of a and b are read directly below it only; no two that are neighbours may
##            differ from zero.
## NDRange    LINALG_UNITS of matrices; the work-items of a group share rows.
## Reference  R. Bartels and G. Stewart, Solution of the matrix equation AX + XB = C, 1972.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%
T, is_cpu = ctype, schedule == "cpu"
sync = "" if is_cpu else "barrier(CLK_GLOBAL_MEM_FENCE);"
epsilon, smallest = (f"{'FLT' if T == 'float' else 'DBL'}_{v}" for v in ("EPSILON", "MIN"))
%>
__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_solve(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                   __global const ${T} *a, __global const ${T} *b, __global ${T} *all_xt)
{
    const int m = size.rows, n = size.columns;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
% else:
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, batch) {
        __global const ${T} *left = a + a_at.offset + batch * a_at.batch;
        __global const ${T} *right = b + b_at.offset + batch * b_at.batch;
        __global ${T} *xt = all_xt + batch * m * n;
        ${T} extent = 0;
        for (int i = 0; i < m; ++i)
            for (int j = max(0, i - 1); j < m; ++j)
                extent = fmax(extent, fabs(left[i * a_at.row + j]));
        for (int i = 0; i < n; ++i)
            for (int j = max(0, i - 1); j < n; ++j)
                extent = fmax(extent, fabs(right[i * b_at.row + j]));
        const ${T} least = fmax(${epsilon} * extent, ${smallest} * m * n / ${epsilon});
        for (int l = 0, next; l < n; l = next) {
            const int columns = 1 + (l < n - 1 && right[(l + 1) * b_at.row + l] != 0);
            next = l + columns;
            for (int c = l; c < next; ++c) {
% if is_cpu:
                for (int j = 0; j < l; ++j)
                    linalg_add_${T}(xt + c * m, -right[j * b_at.row + c], xt + j * m, m);
% else:
                LINALG_SHARE_${schedule}(0, m, r) {
                    ${T} sum = xt[c * m + r];
                    for (int j = 0; j < l; ++j)
                        sum -= right[j * b_at.row + c] * xt[j * m + r];
                    xt[c * m + r] = sum;
                }
% endif
            }
            ${sync}
            for (int last = m - 1, first; last >= 0; last = first - 1) {
                first = last - (last > 0 && left[last * a_at.row + last - 1] != 0);
                const int rows = last - first + 1, unknowns = rows * columns;
                ${T} system[16], x[4];
                for (int e = 0; e < unknowns; ++e) {
                    const int i = first + e / columns, c = l + e % columns;
                    x[e] = xt[c * m + i];
% if is_cpu:
                    x[e] -= linalg_dot_${T}(left + i * a_at.row + last + 1, xt + c * m + last + 1, m - last - 1);
% endif
                    for (int f = 0; f < unknowns; ++f) {
                        const int j = first + f / columns, d = l + f % columns;
                        system[e * unknowns + f] =
                            (c == d ? left[i * a_at.row + j] : 0) + (i == j ? right[d * b_at.row + c] : 0);
                    }
                }
                small_system_${T}(system, x, unknowns, least);
% if not is_cpu:
                LINALG_SHARE_${schedule}(0, first, r)
                    for (int e = 0; e < unknowns; ++e)
                        xt[(l + e % columns) * m + r] -= left[r * a_at.row + first + e / columns] * x[e];
                ${sync}
% endif
                for (int e = 0; ${"" if is_cpu else "item == 0 && "}e < unknowns; ++e)
                    xt[(l + e % columns) * m + first + e / columns] = x[e];
            }
            ${sync}
        }
    }
}
