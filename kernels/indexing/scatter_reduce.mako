## Algorithm   o = x + the private copies of several work-items, added in order.
## Operands    x[size], contiguous or (x_step 0) one element; added[parts], `copy_stride` elements from one to the next.
## NDRange     (work-items): each takes a contiguous range of the elements.
<%page args="name, plan, ctype, combine, lanes"/>\
<%include file="/common/partition.mako"/>\
<%namespace name="partials" file="/common/partials.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import widened
%>\
<%def name="elements(n)">
<% kind = widened(ctype, n) if n == 1 else f"{name}_vector" %>
    for (; k + ${n} <= end; k += ${n}) {
        ${widened(ctype, n)} sum;
        if (p.x_step)
            sum = *(__global const ${kind} *)(x + k);
        else {
            ${ctype} lane[${n}];
            for (int l = 0; l < ${n}; ++l)
                lane[l] = x[0];
            sum = *(const ${kind} *)lane;
        }
        ${partials.combine("sum", "p.parts", f"*(__global const {kind} *)(added + part * p.copy_stride + k)",
            combine.format(a="{total}", b="{partial}"))}
        *(__global ${kind} *)(o + k) = sum;
    }
</%def>\
% if lanes > 1:
typedef ${widened(ctype, lanes)} ${name}_vector __attribute__((aligned(sizeof(${ctype}))));
% endif
${plan.c_typedef(f"{name}_plan")}

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${ctype} *x, __global const ${ctype} *added, __global ${ctype} *o,
    const ${name}_plan p)
{
    const long item = get_global_id(0);
    const long items = get_global_size(0);
    const long end = partition_begin(p.size, 1, item + 1, items);
    long k = partition_begin(p.size, 1, item, items);
    x += p.x;
    o += p.o;
    ${elements(lanes) if lanes > 1 else ""}
    ${elements(1)}
}
