## QR factors by Householder reflections, of panels of a batch of complex matrices; and what their products need.
##
## Algorithm  `_panel`: LAPACK's geqr2: the diagonal of R is real. `_factor`: T of the block reflection I - V T V^H,
##            from V^H V. Others: see moves.mako.
## Operands   a: rows x columns, columns <= block; columns are neighbours; R on and above the diagonal, V below it,
##            overwrite it. taus: contiguous, `block` for each matrix.
## NDRange    `_panel`: LINALG_UNITS of matrices. `_factor`: work-items loop over the matrices.
## Invariant  A column whose elements are so small or so large that its norm, or a multiple of it, cannot be represented
##            is multiplied by a power of two before it is reflected, as in LAPACK's larfg; else Q is not unitary.
## Reference  Golub and Van Loan, Matrix Computations, 5.2; R. Schreiber and C. Van Loan, A storage-efficient WY
##            representation for products of Householder transformations, 1989.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="moves" file="/linalg/moves.mako"/>\
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if is_cpu else ""
sync = "" if is_cpu else "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
first, step = (0, 1) if is_cpu else ("item", group)
# The smallest normal number over epsilon, its inverse; a large number, and what makes it smaller.
exponents = (-103, 103, 111, -32) if T == "float" else (-970, 970, 1000, -64)
low, up, high, down = (f"0x1p{e}{'f' if T == 'float' else ''}" for e in exponents)
%>
__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, __global ${Z} *a, __global ${Z} *all_taus)
{
    const int m = size.rows, n = size.columns;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
    ${Z} space[${block}];
    __global ${Z} *const sums = private_as_global(${Z}, space);
% else:
    __local ${T} partial[${group}];
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global ${Z} *matrix = a + a_at.offset + b * a_at.batch, *taus = all_taus + b * ${block};
        for (int k = 0; k < min(m, n); ++k) {
            __global ${Z} *column = matrix + k, *top = matrix + k * a_at.row;
            ${T} largest = 0, rest = 0;
            for (int i = k + 1 + ${first}; i < m; i += ${step}) {
                const ${Z} value = column[i * a_at.row];
                largest = fmax(largest, fmax(fabs(value.x), fabs(value.y)));
            }
% if not is_cpu:
            partial[item] = largest;
            <%workgroup:tree_reduce group="${group // 2}">
                    partial[item] = fmax(partial[item], partial[item + distance]);
            </%workgroup:tree_reduce>
            largest = partial[0];
            barrier(CLK_LOCAL_MEM_FENCE);
% endif
            for (int i = k + 1 + ${first}; largest > 0 && i < m; i += ${step}) {
                const ${Z} value = column[i * a_at.row] / largest;
                rest += value.x * value.x + value.y * value.y;
            }
% if not is_cpu:
            partial[item] = rest;
            <%workgroup:tree_reduce group="${group // 2}">
                    partial[item] += partial[item + distance];
            </%workgroup:tree_reduce>
            rest = partial[0];
% endif
            const ${T} extent = fmax(largest, fmax(fabs(top[k].x), fabs(top[k].y)));
            const ${T} scale = extent < ${low} ? ${up} : extent > ${high} ? ${down} : 1;
            const ${Z} pivot = top[k] * scale;
            const ${T} norm = largest * scale * sqrt(rest);
            const int is_done = norm == 0 && pivot.y == 0 && !isnan(pivot.x);
            const ${T} head = is_done ? pivot.x : -copysign(hypot(hypot(pivot.x, pivot.y), norm), pivot.x);
            const ${Z} tau = is_done ? (${Z})0 : (${Z})(head - pivot.x, -pivot.y) / head;
            const ${Z} unit = (${Z})(1, 0);
            const ${Z} inverse = is_done ? unit : linalg_over_${Z}(unit, (${Z})(pivot.x - head, pivot.y));
            ${sync}
            /* The conjugate transpose of I - tau v v^H makes the column real and zero below the diagonal. */
% if is_cpu:
            top[k] = (${Z})(head / scale, 0);
            taus[k] = tau;
            for (int j = k + 1; j < n; ++j)
                sums[j] = top[j];
            for (int i = k + 1; i < m; ++i) {
                __global ${Z} *row = matrix + i * a_at.row;
                row[k] = linalg_times_${Z}(row[k] * scale, inverse);
                linalg_subtract_${Z}(sums + k + 1, -linalg_conj_${Z}(row[k]), row + k + 1, n - k - 1);
            }
            for (int j = k + 1; j < n; ++j) {
                sums[j] = linalg_times_${Z}(linalg_conj_${Z}(tau), sums[j]);
                top[j] -= sums[j];
            }
            for (int i = k + 1; i < m; ++i) {
                __global ${Z} *row = matrix + i * a_at.row;
                linalg_subtract_${Z}(row + k + 1, row[k], sums + k + 1, n - k - 1);
            }
% else:
            if (item == 0) {
                top[k] = (${Z})(head / scale, 0);
                taus[k] = tau;
            }
            for (int i = k + 1 + item; i < m; i += ${group})
                column[i * a_at.row] = linalg_times_${Z}(column[i * a_at.row] * scale, inverse);
            ${sync}
            for (int j = k + 1 + item; j < n; j += ${group}) {
                __global ${Z} *other = matrix + j;
                ${Z} sum = other[k * a_at.row];
                for (int i = k + 1; i < m; ++i)
                    sum += linalg_times_${Z}(linalg_conj_${Z}(column[i * a_at.row]), other[i * a_at.row]);
                sum = linalg_times_${Z}(linalg_conj_${Z}(tau), sum);
                other[k * a_at.row] -= sum;
                for (int i = k + 1; i < m; ++i)
                    other[i * a_at.row] -= linalg_times_${Z}(column[i * a_at.row], sum);
            }
            ${sync}
% endif
        }
    }
}

${moves.vectors(name, Z, schedule, one_item_groups, f"({Z})({{}}, 0)")}
/* t (columns x columns) holds V^H V before and T after. */
__kernel ${one_item_groups}
void ${name}_factor(const linalg_sizes size, const linalg_strides t_at, __global const ${Z} *all_taus,
                    __global ${Z} *t)
{
    const long n = size.columns, row = t_at.row, column = t_at.column;
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${Z} *taus = all_taus + b * ${block};
        __global ${Z} *matrix = t + t_at.offset + b * t_at.batch;
        for (long j = 0; j < n; ++j) {
            const ${Z} tau = taus[j];
            for (long i = 0; i < j; ++i) {
                ${Z} sum = 0;
                for (long k = i; k < j; ++k)
                    sum += linalg_times_${Z}(matrix[i * row + k * column], matrix[k * row + j * column]);
                matrix[i * row + j * column] = -linalg_times_${Z}(tau, sum);
            }
            matrix[j * (row + column)] = tau;
            for (long i = j + 1; i < n; ++i)
                matrix[i * row + j * column] = 0;
        }
    }
}

${moves.upper(name, Z, schedule, one_item_groups)}
${moves.identity(name, Z, schedule, one_item_groups, f"({Z})({{}}, 0)")}
${moves.signs(name, Z, schedule, one_item_groups, ".x")}
