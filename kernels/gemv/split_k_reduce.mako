## Second launch of a split-K matrix-vector product: o = alpha * (sum of the partial sums) + beta * y.
##
## Operands    Partial (split_k, m), which the first launch wrote; y and o (m) with any strides; plan.mako.
## NDRange     Schedule cpu: work-items loop over the rows, with the NDRange as step. Schedule simt: groups loop over
##             tiles of p.finish_width rows.
## Invariants  The sum has one order, the same in each call; on schedule cpu that of the parts.
<%page args="name, ctype, wide, has_alpha, has_y, call, group"/>
<%namespace name="arguments" file="/common/device_scalars.mako"/>
<%namespace name="partials" file="/common/partials.mako"/>
<%include file="/gemv/store.mako"
          args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y, call=call"/>
<%
    scalars, is_cpu = ["alpha"] * has_alpha + ["beta"] * has_y, group == 1
%>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)${", vec_type_hint(int4)" if is_cpu else ""}))
void ${name}(gemv_plan p, ${name}_call s, __global const ${ctype} *Y, __global ${ctype} *O,
             __global const ${ctype} *partial${arguments.parameters(ctype, scalars)})
{
    ${arguments.load(scalars)}
    % if is_cpu:
    for (long i = get_global_id(0); i < p.m; i += get_global_size(0)) {
        ${wide} sum = 0;
        ${partials.combine("sum", "p.split_k", "partial[part * p.m + i]")}
        ${name}_store(&p, &s, i, sum, Y, O);
    }
    % else:
    __local ${wide} sums[${group}];
    const int item = get_local_id(0), width = (int)p.finish_width;
    for (long i0 = get_group_id(0) * (long)width; i0 < p.m; i0 += get_num_groups(0) * (long)width) {
        ${partials.sum_in_group(wide, group, "width", "p.split_k", f"({wide})partial[{{part}} * p.m + i0 + lane]",
            "i0 + lane < p.m")}
        if (item < width && i0 + item < p.m)
            ${name}_store(&p, &s, i0 + item, sums[item], Y, O);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    % endif
}
