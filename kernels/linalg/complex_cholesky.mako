## Cholesky factors of a batch of small Hermitian matrices: A = L L^H, of which only the lower triangle is read.
##
## Algorithm  `_block`: right-looking; rows of U = L^H are contiguous, in private memory on schedule cpu, in local
##            memory on simt. Imaginary parts of the diagonal are taken for zero.
## Operands   a, l: rows x rows, any strides, rows <= block. a and l may be the same array.
##            Where `whole` is nonzero, zeros are written above the diagonal of l, and NaN everywhere if A is not
##            positive definite.
## NDRange    `_block`: LINALG_UNITS of matrices. `_finish`: work-items share the elements.
## Invariant  A pivot that is not positive becomes NaN, which reaches the last element of the diagonal.
## Reference  Golub and Van Loan, Matrix Computations, 4.2.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if is_cpu else ""
sync = "" if is_cpu else "barrier(CLK_LOCAL_MEM_FENCE);"
stride = block if is_cpu else block + 1
%>
__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_block(const linalg_sizes size, const linalg_strides a_at, const linalg_strides l_at,
                   __global const ${Z} *a, __global ${Z} *l)
{
    const int n = size.rows;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
    ${Z} space[${block * stride}];
    __global ${Z} *const tile = private_as_global(${Z}, space);
% else:
    __local ${Z} tile[${block * stride}];
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, b) {
        __global const ${Z} *source = a + a_at.offset + b * a_at.batch;
        __global ${Z} *target = l + l_at.offset + b * l_at.batch;
        LINALG_TILE_${schedule}(n, n, i, j) {
            if (j <= i) {
                const ${Z} value = source[i * a_at.row + j * a_at.column];
                tile[j * ${stride} + i] = (${Z})(value.x, i == j ? 0 : -value.y);
            }
        }
        ${sync}
        for (int k = 0; k < n; ++k) {
            const ${T} pivot = tile[k * ${stride + 1}].x;
            const ${T} root = pivot > 0 ? sqrt(pivot) : (${T})NAN;
            ${sync}
            LINALG_TILE_${schedule}(1, n - k, zero, j) {
                tile[k * ${stride + 1} + j] = j == 0 ? (${Z})(root, 0) : tile[k * ${stride + 1} + j] / root;
            }
            ${sync}
% if is_cpu:
            for (int i = k + 1; i < n; ++i)
                linalg_subtract_${Z}(tile + i * ${stride + 1}, linalg_conj_${Z}(tile[k * ${stride} + i]),
                                     tile + k * ${stride} + i, n - i);
% else:
            const int rest = n - k - 1;
            LINALG_TILE_simt(rest, rest, row, column) {
                const int i = k + 1 + row, j = k + 1 + column;
                if (j >= i)
                    tile[i * ${stride} + j] -=
                        linalg_times_${Z}(linalg_conj_${Z}(tile[k * ${stride} + i]), tile[k * ${stride} + j]);
            }
            ${sync}
% endif
        }
        const int failed = size.whole && isnan(tile[(n - 1) * ${stride + 1}].x);
        LINALG_TILE_${schedule}(n, n, i, j) {
            if (j <= i || size.whole)
                target[i * l_at.row + j * l_at.column] =
                    failed ? (${Z})NAN : j <= i ? linalg_conj_${Z}(tile[j * ${stride} + i]) : (${Z})0;
        }
        ${sync}
    }
}

/* Zeros above the diagonal; NaN everywhere where the last element of the diagonal is NaN. */
__kernel ${one_item_groups}
void ${name}_finish(const linalg_sizes size, const linalg_strides l_at, __global ${Z} *l)
{
    const long part = get_global_id(0), parts = get_global_size(0), n = size.rows;
    const long last = (n - 1) * (l_at.row + l_at.column);
    LINALG_ELEMENTS_${schedule}(size, b, i, j) {
        __global ${Z} *matrix = l + l_at.offset + b * l_at.batch;
        const int failed = isnan(matrix[last].x);
        if (j > i || (failed && i + j < 2 * n - 2))  /* the last one is read, and NaN then */
            matrix[i * l_at.row + j * l_at.column] = failed ? (${Z})NAN : (${Z})0;
    }
}
