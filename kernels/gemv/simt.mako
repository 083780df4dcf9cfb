## Matrix-vector product, schedule simt: o = alpha * A @ x + beta * y.
##
## Algorithm   <name>_row, the dot variant, for contiguous rows: a work-group sums a row in local memory. <name>_col,
##             the axpy variant, for contiguous columns or short rows: a work-item sums a row. Short rows pass through
##             local memory, so that neighbours read neighbouring elements.
## Operands    A (m, k), x (k), y and o (m), any strides; plan.mako.
## NDRange     dimension 0 loops over rows, group 1 is the part of k.
## Workspace   Partial (split_k, m), if k is split.
## Invariants  work-items of a group take the same path to each barrier.
<%page args="name, ctype, wide, group, itemsize, tile_bytes, has_alpha, has_y, call"/>
<%namespace name="common" file="/gemv/common.mako"/>
<%
    columns = tile_bytes // itemsize  # of the rows' parts in local memory
%>
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

## The loop over the rows of a work-item. The statements see row `i`, and add to `sum`.
<%def name="sum_rows()">
    for (long i0 = get_group_id(0) * ${group}; i0 < p.m; i0 += get_num_groups(0) * ${group}) {
        const long i = i0 + item;
        ${wide} sum = 0;
        ${caller.body()}
        if (i < p.m) {
            ${common.store("i", "sum")}
        }
    }
</%def>
${begin("col")}
    __local ${ctype} tile[${group * (columns + 1)}];
    const int item = get_local_id(0);
    if (abs(p.a_row) <= (ulong)p.a_col) {
        <%call expr="sum_rows()">
        for (long k = k_begin; i < p.m && k < k_end; k++)
            sum += (${wide})a[i * p.a_row + k * p.a_col] * x[k * p.x_step];
        </%call>
        return;
    }
    <%call expr="sum_rows()">
        const int height = (int)min((long)${group}, p.m - i0);
        for (long k0 = k_begin; k0 < k_end; k0 += ${columns}) {
            const int width = (int)min((long)${columns}, k_end - k0), stride = width | 1;  // odd: no bank conflicts
            for (int e = item; e < height * width; e += ${group}) {
                const int row = e / width, column = e % width;
                tile[row * stride + column] = a[(i0 + row) * p.a_row + (k0 + column) * p.a_col];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int column = 0; item < height && column < width; column++)
                sum += (${wide})tile[item * stride + column] * x[(k0 + column) * p.x_step];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    </%call>
}
