## Kernels that move elements of the matrices of a batch, or mark those of which a factor is singular.
##
## Operands   Any strides. `kind`: C type of an element; `one`: a Boolean value as an element; `zero`: an element;
##            `is_zero`: whether an element, {}, is zero.
## NDRange    `_swap`: work-items share the columns. `_singular`, `_keep`: work-items loop over the matrices. Others:
##            work-items share the elements.
<%def name="swap(name, kind, schedule, one_item_groups)">\
/* Interchanges of rows in a (rows x columns), for the first `whole` pivots. Work-items share the columns. */
__kernel ${one_item_groups}
void ${name}_swap(const linalg_sizes size, const linalg_strides a_at, const linalg_pivots p_at,
                  __global ${kind} *a, __global const int *pivots)
{
% if schedule == "cpu":
    const long part = get_global_id(0), parts = get_global_size(0);
    const long begin = partition_begin(size.columns, 1, part, parts);
    const long end = partition_begin(size.columns, 1, part + 1, parts);
% else:
    const long step = get_global_size(0);
% endif
    for (long b = 0; b < size.count; ++b) {
        __global ${kind} *matrix = a + a_at.offset + b * a_at.batch;
        __global const int *pivot = pivots + p_at.offset + b * p_at.batch;
        for (long k = 0; k < size.whole; ++k) {
            const long other = pivot[k] - p_at.base;
% if schedule == "cpu":
            for (long j = begin; other != k && j < end; ++j) {
% else:
            for (long j = get_global_id(0); other != k && j < size.columns; j += step) {
% endif
                const ${kind} value = matrix[k * a_at.row + j * a_at.column];
                matrix[k * a_at.row + j * a_at.column] = matrix[other * a_at.row + j * a_at.column];
                matrix[other * a_at.row + j * a_at.column] = value;
            }
        }
    }
}
</%def>
<%def name="identity(name, kind, schedule, one_item_groups, one='{}')">\
/* x (rows x columns) becomes the identity. */
__kernel ${one_item_groups}
void ${name}_identity(const linalg_sizes size, const linalg_strides x_at, __global ${kind} *x)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_ELEMENTS_${schedule}(size, b, i, j) {
        x[x_at.offset + b * x_at.batch + i * x_at.row + j * x_at.column] = ${one.format("i == j")};
    }
}
</%def>
<%def name="keep(name, one_item_groups)">\
/* Pivots of rows that no step interchanges: those from number `columns` on. */
__kernel ${one_item_groups}
void ${name}_keep(const linalg_sizes size, const long pivots_at, __global int *pivots)
{
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0))
        for (long k = size.columns; k < size.rows; ++k)
            pivots[pivots_at + b * size.rows + k] = k;
}
</%def>
<%def name="singular(name, kind, one_item_groups, is_zero='{} == 0')">\
/* NaN in x (rows x columns) where U has a zero among the `whole` elements of its diagonal. */
__kernel ${one_item_groups}
void ${name}_singular(const linalg_sizes size, const linalg_strides a_at, const linalg_strides x_at,
                      __global const ${kind} *a, __global ${kind} *x, volatile __global int *error_flag,
                      const int number)
{
    for (long b = get_global_id(0); b < size.count; b += get_global_size(0)) {
        __global const ${kind} *matrix = a + a_at.offset + b * a_at.batch;
        int failed = 0;
        for (long k = 0; k < size.whole; ++k)
            failed |= ${is_zero.format("matrix[k * (a_at.row + a_at.column)]")};
        if (failed && number)
            report_error(error_flag, number, 0, b, 0);
        for (long e = 0; failed && e < size.rows * size.columns; ++e) {
            const long i = e / size.columns;
            x[x_at.offset + b * x_at.batch + i * x_at.row + (e - i * size.columns) * x_at.column] = (${kind})NAN;
        }
    }
}
</%def>
<%def name="finish_triangular(name, kind, one_item_groups, is_zero='{} == 0')">\
/* NaN in the solutions of matrices with a zero on the diagonal; a work-item for each matrix. */
__kernel ${one_item_groups}
void ${name}_finish(const linalg_sizes size, const linalg_strides a_at, const linalg_strides x_at,
                    __global const ${kind} *a, __global ${kind} *x)
{
    for (long batch = get_global_id(0); batch < size.count; batch += get_global_size(0)) {
        __global const ${kind} *matrix = a + a_at.offset + batch * a_at.batch;
        int failed = 0;
        for (long i = 0; i < size.rows; ++i)
            failed |= ${is_zero.format("matrix[i * (a_at.row + a_at.column)]")};
        for (long e = 0; failed && e < size.rows * size.columns; ++e) {
            const long i = e / size.columns;
            x[x_at.offset + batch * x_at.batch + i * x_at.row + (e - i * size.columns) * x_at.column] = (${kind})NAN;
        }
    }
}
</%def>
<%def name="vectors(name, kind, schedule, one_item_groups, one='{}')">\
/* v (rows x columns): the vectors of a panel, with ones on the diagonal and zeros above it. */
__kernel ${one_item_groups}
void ${name}_vectors(const linalg_sizes size, const linalg_strides a_at, const linalg_strides v_at,
                     __global const ${kind} *a, __global ${kind} *v)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_ELEMENTS_${schedule}(size, b, i, j) {
        const ${kind} value = a[a_at.offset + b * a_at.batch + i * a_at.row + j * a_at.column];
        v[v_at.offset + b * v_at.batch + i * v_at.row + j * v_at.column] = i > j ? value : ${one.format("i == j")};
    }
}
</%def>
<%def name="upper(name, kind, schedule, one_item_groups)">\
/* r (rows x columns): the upper triangle of a. */
__kernel ${one_item_groups}
void ${name}_upper(const linalg_sizes size, const linalg_strides a_at, const linalg_strides r_at,
                   __global const ${kind} *a, __global ${kind} *r)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_ELEMENTS_${schedule}(size, b, i, j) {
        const ${kind} value = a[a_at.offset + b * a_at.batch + i * a_at.row + j * a_at.column];
        r[r_at.offset + b * r_at.batch + i * r_at.row + j * r_at.column] = i <= j ? value : (${kind})0;
    }
}
</%def>
<%def name="signs(name, kind, schedule, one_item_groups, real='')">\
/* Columns of q (rows x columns) change sign where the element of r's diagonal, which is real, is negative. */
__kernel ${one_item_groups}
void ${name}_signs(const linalg_sizes size, const linalg_strides r_at, const linalg_strides q_at,
                   __global const ${kind} *r, __global ${kind} *q)
{
    const long part = get_global_id(0), parts = get_global_size(0);
    LINALG_ELEMENTS_${schedule}(size, b, i, j) {
        if (r[r_at.offset + b * r_at.batch + j * (r_at.row + r_at.column)]${real} < 0)
            q[q_at.offset + b * q_at.batch + i * q_at.row + j * q_at.column] *= -1;
    }
}
</%def>
