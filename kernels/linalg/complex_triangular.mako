## Solutions of L X = B with lower triangular complex matrices of at most `block` rows. Strides of upper ones are
## negative.
##
## Algorithm  Forward substitution for `width` columns of B at a time, which are contiguous in private memory on
##            schedule cpu, in local memory, with the matrix, on simt: once row k is known, its multiples are
##            subtracted from the rows below.
## Operands   a: rows x rows, b and x: rows x columns, any strides, rows <= block. b and x may be the same array.
##            `whole` is a sum of flags: 1: x is NaN if an element of the diagonal is zero, which LAPACK's trtrs
##            reports; 2: the conjugate of a takes its place.
## Invariant  Where the inverse of an element of the diagonal is not a normal number, the elements divide instead.
## NDRange    `_columns`: LINALG_UNITS of tiles of columns. `_finish`: work-items loop over the matrices.
## Reference  Golub and Van Loan, Matrix Computations, 3.1.
<%page args="name, ctype, lanes, block, group, unit, width, schedule"/>
<%namespace name="moves" file="/linalg/moves.mako"/>\
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if is_cpu else ""
sync = "" if is_cpu else "barrier(CLK_LOCAL_MEM_FENCE);"
stride = block + 1
%>
<%def name="factor(i, k)">
% if is_cpu:
(${Z})(1, sign_of) * matrix[(${i}) * a_at.row + (${k}) * a_at.column]
% else:
factors[(${i}) * ${stride} + (${k})]
% endif
</%def>
__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_columns(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                     const linalg_strides x_at, __global const ${Z} *a, __global const ${Z} *b, __global ${Z} *x)
{
    const int n = size.rows;
    const long tiles = (size.columns + ${width - 1}) / ${width};
    const ${T} sign_of = size.whole & 2 ? -1 : 1;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
    ${Z} space[${block * width}];
    __global ${Z} *const tile = private_as_global(${Z}, space);
% else:
    __local ${Z} tile[${block * width}], factors[${block * stride}];
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count * tiles, unit) {
        const long batch = unit / tiles, first = (unit - batch * tiles) * ${width};
        const int columns = min((long)${width}, size.columns - first);
        __global const ${Z} *matrix = a + a_at.offset + batch * a_at.batch;
        __global const ${Z} *source = b + b_at.offset + batch * b_at.batch + first * b_at.column;
        __global ${Z} *target = x + x_at.offset + batch * x_at.batch + first * x_at.column;
% if not is_cpu:
        LINALG_TILE_simt(n, n, i, k) {
            if (k ${"<" if unit else "<="} i)
                factors[i * ${stride} + k] = (${Z})(1, sign_of) * matrix[i * a_at.row + k * a_at.column];
        }
% endif
        LINALG_TILE_${schedule}(n, columns, i, j) {
            tile[i * ${width} + j] = source[i * b_at.row + j * b_at.column];
        }
        ${sync}
        int failed = 0;
        for (int k = 0; k < n; ++k) {
% if not unit:
            const ${Z} pivot = ${factor("k", "k")};
            failed |= !any(pivot != 0) && size.whole & 1;
            const int has_inverse = linalg_has_inverse_${Z}(pivot);
            const ${Z} inverse = linalg_over_${Z}((${Z})(1, 0), pivot);
            LINALG_TILE_${schedule}(1, columns, zero, j) {
                const ${Z} value = tile[k * ${width} + j];
                tile[k * ${width} + j] =
                    has_inverse ? linalg_times_${Z}(value, inverse) : linalg_over_${Z}(value, pivot);
            }
            ${sync}
% endif
% if is_cpu:
            for (int i = k + 1; i < n; ++i)
                linalg_subtract_${Z}(tile + i * ${width}, ${factor("i", "k")}, tile + k * ${width}, columns);
% else:
            LINALG_TILE_simt(n - k - 1, columns, row, j) {
                const int i = k + 1 + row;
                tile[i * ${width} + j] -= linalg_times_${Z}(${factor("i", "k")}, tile[k * ${width} + j]);
            }
            ${sync}
% endif
        }
        LINALG_TILE_${schedule}(n, columns, i, j) {
            target[i * x_at.row + j * x_at.column] = failed ? (${Z})NAN : tile[i * ${width} + j];
        }
        ${sync}
    }
}

${moves.finish_triangular(name, Z, one_item_groups, "!any({} != 0)")}
