## Algorithm   f(x[i, j], y[i, j], ...): a function of the elements that index arrays, one for each axis, gather from
##             several arrays.
## Operands    Strides `i` are over the dimensions of the result; `step` are those of the arrays along the indexed axes.
## NDRange     in_parts: (work-items), each with a contiguous range; else any size, a loop with it as stride.
## Invariants  An index that is out of range is reported, and taken for 0.
<%page args="name, plan, offsets, inputs, by_value, output, statements, index_types, checked, ndim, index, in_parts,
             plan_in_buffer"/>\
<%namespace name="bounds" file="/common/bounds.mako"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, to_long
%>\
<%
arrays, count = [k for k, value in enumerate(by_value) if not value], len(index_types)
%>\
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

% if in_parts:
__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
% endif
__kernel void ${name}(
% for k, (dtype, value) in enumerate(zip(inputs, by_value, strict=True)):
    const ${f"{ctype(dtype)} i{k}" if value else f"__global {ctype(dtype)} *b_i{k}"},
% endfor
% for k, kind in enumerate(index_types):
    __global const ${kind} *index${k},
% endfor
    __global ${ctype(output)} *b_o0, const ${name}_offsets offset,
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*given_plan" if plan_in_buffer else "p"},
        volatile __global int *error_flag,
    const int error_code)
{
% if plan_in_buffer:
    const ${name}_plan p = *given_plan;
% endif
    const long item = get_global_id(0);
    const long items = get_global_size(0);
% if in_parts:
    const ${index} end = partition_begin(p.size, 1, item + 1, items);
    for (${index} n = partition_begin(p.size, 1, item, items); n < end; ++n) {
% else:
    for (${index} n = item; n < p.size; n += items) {
% endif
        ${index} rest = n;
% for k in range(count):
        long at_index${k} = offset.i[${k}];
% endfor
% for a, k in enumerate(arrays):
        long at_i${k} = offset.x[${a}];
% endfor
${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]",
    [(f"at_index{k}", f"p.i[{k}][{{}}]") for k in range(count)])}
% for c, is_checked in enumerate(checked):
        {
            ${bounds.decode("i", index_types[c], f"index{c}[at_index{c}]", f"p.length[{c}]", is_checked,
                f"(int)p.axis[{c}]")}
    % for a, k in enumerate(arrays):
            at_i${k} += i * p.step[${a}][${c}];
    % endfor
        }
% endfor
% for k in arrays:
        const ${ctype(inputs[k])} i${k} = b_i${k}[at_i${k}];
% endfor
        ${ctype(output)} o0;
        {
            ${statements}
        }
        b_o0[offset.o + n] = o0;
    }
}
