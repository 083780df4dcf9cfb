## Second launch of a split-K matrix-vector product: o = alpha * (sum of the partial sums, in order) + beta * y.
##
## Operands    Partial (split_k, m), which the first launch wrote; y and o (m) with any strides; plan.mako.
## NDRange     work-items loop over the rows, with the NDRange as step.
## Invariants  The sum is in order of the parts, the same in each call.
<%page args="name, ctype, wide, has_alpha, has_y, call, cpu"/>
<%namespace name="arguments" file="/common/device_scalars.mako"/>
<%namespace name="partials" file="/common/partials.mako"/>
<%include file="/gemv/store.mako"
          args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y, call=call"/>
<%
    scalars = ["alpha"] * has_alpha + ["beta"] * has_y
%>
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))" if cpu else ""}
void ${name}(gemv_plan p, ${name}_call s, __global const ${ctype} *Y, __global ${ctype} *O,
             __global const ${ctype} *partial${arguments.parameters(ctype, scalars)})
{
    ${arguments.load(scalars)}
    for (long i = get_global_id(0); i < p.m; i += get_global_size(0)) {
        ${wide} sum = 0;
        ${partials.combine("sum", "p.split_k", "partial[part * p.m + i]")}
        ${name}_store(&p, &s, i, sum, Y, O);
    }
}
