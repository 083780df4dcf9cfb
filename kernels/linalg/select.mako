## Take some matrices of a batch from another one.
##
## Operands   x, y: C-contiguous matrices of `size` elements, one for each of `count` numbers; counts: contiguous.
##            x[b] = y[b] where counts[b] > step.
## NDRange    Work-items share the elements of all matrices.
<%page args="name, ctype, schedule"/>
<% one_item_groups = "__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else "" %>
__kernel ${one_item_groups}
void ${name}(const long count, const long size, const int step, const long counts_at, const long x_at,
             const long y_at, __global const int *counts, __global ${ctype} *x, __global const ${ctype} *y)
{
    for (long e = get_global_id(0); e < count * size; e += get_global_size(0))
        if (counts[counts_at + e / size] > step)
            x[x_at + e] = y[y_at + e];
}
