## Solutions X of A X + X B = C for batches of complex matrices, where A and B are upper triangular.
##
## Algorithm  As in sylvester.mako, element by element.
## Operands   As in sylvester.mako. Elements below the diagonal are not read.
## NDRange    As in sylvester.mako.
## Reference  R. Bartels and G. Stewart, Solution of the matrix equation AX + XB = C, 1972.
<%page args="name, ctype, lanes, block, group, schedule"/>
<%
T, Z, is_cpu = ctype, f"{ctype}2", schedule == "cpu"
sync = "" if is_cpu else "barrier(CLK_GLOBAL_MEM_FENCE);"
epsilon, smallest = (f"{'FLT' if T == 'float' else 'DBL'}_{v}" for v in ("EPSILON", "MIN"))
times, over, size_of = (f"linalg_{v}_{Z}" for v in ("times", "over", "size"))
%>
__kernel __attribute__((reqd_work_group_size(${1 if is_cpu else group}, 1, 1)))
void ${name}_solve(const linalg_sizes size, const linalg_strides a_at, const linalg_strides b_at,
                   __global const ${Z} *a, __global const ${Z} *b, __global ${Z} *all_xt)
{
    const int m = size.rows, n = size.columns;
% if is_cpu:
    const long part = get_global_id(0), parts = get_global_size(0);
% else:
    const int item = get_local_id(0);
% endif
    LINALG_UNITS_${schedule}(size.count, batch) {
        __global const ${Z} *left = a + a_at.offset + batch * a_at.batch;
        __global const ${Z} *right = b + b_at.offset + batch * b_at.batch;
        __global ${Z} *xt = all_xt + batch * m * n;
        ${T} extent = 0;
        for (int i = 0; i < m; ++i)
            for (int j = i; j < m; ++j)
                extent = fmax(extent, ${size_of}(left[i * a_at.row + j]));
        for (int i = 0; i < n; ++i)
            for (int j = i; j < n; ++j)
                extent = fmax(extent, ${size_of}(right[i * b_at.row + j]));
        const ${T} least = fmax(${epsilon} * extent, ${smallest} * m * n / ${epsilon});
        for (int c = 0; c < n; ++c) {
% if is_cpu:
            for (int j = 0; j < c; ++j)
                linalg_subtract_${Z}(xt + c * m, right[j * b_at.row + c], xt + j * m, m);
% else:
            LINALG_SHARE_${schedule}(0, m, r) {
                ${Z} sum = xt[c * m + r];
                for (int j = 0; j < c; ++j)
                    sum -= ${times}(right[j * b_at.row + c], xt[j * m + r]);
                xt[c * m + r] = sum;
            }
% endif
            ${sync}
            for (int i = m - 1; i >= 0; --i) {
                ${Z} x = xt[c * m + i], divisor = left[i * (a_at.row + 1)] + right[c * (b_at.row + 1)];
% if is_cpu:
                for (int j = i + 1; j < m; ++j)
                    x -= ${times}(left[i * a_at.row + j], xt[c * m + j]);
% endif
                if (${size_of}(divisor) < least)
                    divisor = (${Z})(least, 0);
                x = ${over}(x, divisor);
% if not is_cpu:
                LINALG_SHARE_${schedule}(0, i, r)
                    xt[c * m + r] -= ${times}(left[r * a_at.row + i], x);
                ${sync}
                if (item == 0)
% endif
                xt[c * m + i] = x;
            }
            ${sync}
        }
    }
}
