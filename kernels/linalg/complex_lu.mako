## LU factors with partial pivoting, P A = L U, of panels of a batch of complex matrices; what is computed from them.
##
## Algorithm  `_panel`: right-looking; a row's multiples are subtracted from the rows below it. The pivot has the
##            largest sum of absolute values of its parts, as in LAPACK. `_determinant`: signs and logarithms of the
##            pivots.
## Operands   a: rows x columns, columns <= block; columns are neighbours; L below the diagonal, U above it, overwrite
##            the panel.
##            pivots: for step k of the panel the row that was interchanged with row k, `base` added to it.
## NDRange    `_panel`: LINALG_UNITS of matrices. `_determinant`: work-items loop over the matrices. Others: see
##            moves.mako.
## Invariant  A pivot that is zero divides nothing: its column below the diagonal is zero already.
## Reference  Golub and Van Loan, Matrix Computations, 3.4.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="moves" file="/linalg/moves.mako"/>\
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if is_cpu else ""
sync = "" if is_cpu else "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);"
ln2 = "0.693147180559945309417" + ("" if T == "double" else "f")
first, step = (0, 1) if is_cpu else ("item", group)
%>
__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_panel(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                   __global ${Z} *a, __global int *pivots)
{
    const int m = size.rows, n = size.columns;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
% else:
    __local ${T} largest[${group}];
    __local int best[${group}];
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global ${Z} *matrix = a + a_at.offset + b * a_at.batch;
        __global int *pivot = pivots + p_at.offset + b * p_at.batch;
        for (int k = 0; k < min(m, n); ++k) {
            __global ${Z} *top = matrix + k * a_at.row;
            int row = k;
            /* A pivot that is NaN stays: nothing is larger. */
            ${T} size_of = ${f"linalg_size_{Z}(top[k])" if is_cpu else "-1"};
            for (int i = k + ${first}; i < m; i += ${step}) {
                const ${T} value = linalg_size_${Z}(matrix[i * a_at.row + k]);
                if (value > size_of) {
                    size_of = value;
                    row = i;
                }
            }
% if is_cpu:
            pivot[k] = p_at.base + row;
% else:
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
% endif
            for (int j = ${first}; row != k && j < n; j += ${step}) {
                const ${Z} other = top[j];
                top[j] = matrix[row * a_at.row + j];
                matrix[row * a_at.row + j] = other;
            }
            ${sync}
            const ${Z} divisor = top[k], inverse = linalg_over_${Z}((${Z})(1, 0), divisor);
            const int is_zero = !any(divisor != 0), has_inverse = linalg_has_inverse_${Z}(divisor);
            for (int i = k + 1 + ${first}; !is_zero && i < m; i += ${step}) {
                __global ${Z} *row_i = matrix + i * a_at.row;
                row_i[k] = has_inverse ? linalg_times_${Z}(row_i[k], inverse) : linalg_over_${Z}(row_i[k], divisor);
% if is_cpu:
                linalg_subtract_${Z}(row_i + k + 1, row_i[k], top + k + 1, n - k - 1);
% endif
            }
            ${sync}
% if not is_cpu:
            LINALG_TILE_simt(m - k - 1, n - k - 1, i, j) {
                __global ${Z} *row_i = matrix + (k + 1 + i) * a_at.row;
                row_i[k + 1 + j] -= linalg_times_${Z}(row_i[k], top[k + 1 + j]);
            }
            ${sync}
% endif
        }
    }
}

${moves.swap(name, Z, schedule, one_item_groups)}
${moves.identity(name, Z, schedule, one_item_groups, f"({Z})({{}}, 0)")}
/* Sign and logarithm of the absolute value of each determinant, from its factors. The product of the pivots is kept as
   a number of size near one and an exponent. */
__kernel ${one_item_groups}
void ${name}_determinant(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                         __global const ${Z} *a, __global const int *pivots, __global ${Z} *signs,
                         __global ${T} *logs, const long signs_at, const long logs_at)
{
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${Z} *matrix = a + a_at.offset + b * a_at.batch;
        __global const int *pivot = pivots + p_at.offset + b * p_at.batch;
        ${Z} product = (${Z})(1, 0);
        long exponent = 0;
        int is_zero = 0;
        for (long k = 0; k < size.rows; ++k) {
            ${Z} value = matrix[k * (a_at.row + a_at.column)];
            is_zero |= !any(value != 0);
            const ${T} extent = fmax(fabs(value.x), fabs(value.y));
            if (extent > 0 && extent < INFINITY) {
                const int scale = ilogb(extent);
                value = (${Z})(ldexp(value.x, -scale), ldexp(value.y, -scale));
                exponent += scale;
            }
            product = linalg_times_${Z}(product, pivot[k] == k ? value : -value);
            const ${T} length = fmax(fabs(product.x), fabs(product.y));
            if (length > 0 && length < INFINITY) {
                const int scale = ilogb(length);
                product = (${Z})(ldexp(product.x, -scale), ldexp(product.y, -scale));
                exponent += scale;
            }
        }
        /* A zero among the pivots makes the product zero; a NaN among them stays. */
        const int is_nan = isnan(product.x) || isnan(product.y);
        const ${T} length = hypot(product.x, product.y);
        if (size.whole) {
            const int shift = (int)clamp(exponent, -10000L, 10000L);
            signs[signs_at + b] = (${Z})(ldexp(product.x, shift), ldexp(product.y, shift));
        } else {
            signs[signs_at + b] = is_zero && !is_nan ? (${Z})0 : product / length;
            logs[logs_at + b] =
                is_zero && !is_nan ? -(${T})INFINITY : log(length) + exponent * ${ln2};
        }
    }
}

${moves.keep(name, one_item_groups)}
${moves.singular(name, Z, one_item_groups, "!any({} != 0)")}
