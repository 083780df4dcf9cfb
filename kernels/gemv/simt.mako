## Matrix-vector product, schedule simt: o = alpha * A @ x + beta * y.
##
## Algorithm: <name>_row, the dot variant, for contiguous rows: a work-group sums a row in local memory. <name>_col,
##     the axpy variant, for contiguous columns or short rows: a work-item sums a row.
## Operands: A (m, k), x (k), y and o (m), any strides; plan.mako.
## NDRange -> work: dimension 0 loops over rows, group 1 is the part of k.
## Workspace: partial (split_k, m), if k is split.
## Invariants: work-items of a group take the same path to each barrier.
<%page args="name, ctype, wide, group, has_alpha, has_y, call"/>
<%namespace name="common" file="/gemv/common.mako"/>
<%include file="/gemv/store.mako"
          args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y, call=call"/>
<%def name="begin(variant)">
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_${variant}(${common.parameters()})
{
    const long part = get_group_id(1);
    const long k_begin = partition_begin(p.k, ${group}, part, p.split_k);
    const long k_end = partition_begin(p.k, ${group}, part + 1, p.split_k);
    __global const ${ctype} *const a = A + s.a + p.a_start;
    __global const ${ctype} *const x = X + s.x + p.x_start;
    ${common.read_scalars()}
</%def>
${begin("row")}
    __local ${ctype} sums[${group}];
    const int item = get_local_id(0);
    for (long i = get_group_id(0); i < p.m; i += get_num_groups(0)) {
        ${wide} sum = 0;
        for (long k = k_begin + item; k < k_end; k += ${group})
            sum += (${wide})a[i * p.a_row + k * p.a_col] * x[k * p.x_step];
        sums[item] = sum;
        for (int offset = ${group // 2}; offset > 0; offset /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < offset)
                sums[item] += sums[item + offset];
        }
        if (item == 0) {
            ${common.store("i", "sums[0]")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

${begin("col")}
    for (long i = get_global_id(0); i < p.m; i += get_global_size(0)) {
        ${wide} sum = 0;
        for (long k = k_begin; k < k_end; k++)
            sum += (${wide})a[i * p.a_row + k * p.a_col] * x[k * p.x_step];
        ${common.store("i", "sum")}
    }
}
