## Algorithm   x[i, j, ...] for index arrays i, j, ... (gather), for CPUs: one result, any strides.
## Operands    All strides are over the dimensions of the result: those of x are 0 where index arrays step, those of an
##             index array are 0 where x steps. length, step and axis belong to each index. Without x (`ctype` is None)
##             the result is the positions that the indices mean, in elements of x.
## NDRange     (work-items), each with a contiguous range of the units, which are segments of rows.
## Invariants  An index that is out of range is reported, and taken for 0; its position is -1.
<%page args="name, plan, offsets, ctype, index_types, checked, ndim, index, lanes, plan_in_buffer"/>\
<%namespace name="bounds" file="/common/bounds.mako"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long, widened

def step(array):
    return f"p.i[{array[1:]}]" if array[0] == "i" else f"p.{array}"
%>\
<%
arrays = [f"i{k}" for k in range(len(index_types))] + (["x"] if ctype else [])
last, count = ndim - 1, max(1, len(index_types))
%>\
% if ctype:
typedef ${widened(ctype, lanes)} ${name}_vector __attribute__((aligned(sizeof(${ctype}))));
% endif
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(
% for k, kind in enumerate(index_types):
    __global const ${kind} *i${k},
% endfor
% if ctype:
    __global const ${ctype} *x,
% endif
    __global ${ctype or index} *o, const ${name}_offsets offset,
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*given_plan" if plan_in_buffer else "p"},
        volatile __global int *error_flag,
    const int error_code)
{
% if plan_in_buffer:
    const ${name}_plan p = *given_plan;
% endif
    o += offset.o;
% if ctype:
    x += offset.x;
% endif
% for k in range(len(index_types)):
    i${k} += offset.i[${k}];
% endfor
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const ${index} end = partition_begin(p.units, 1, part + 1, parts);
    for (${index} unit = partition_begin(p.units, 1, part, parts); unit < end; ++unit) {
        ${index} rest = unit / p.segments;
        const ${index} first = (unit - rest * p.segments) * p.segment;
        const ${index} count = min(p.segment, p.shape[${last}] - first);
        ${place(range(last), arrays, index, "first")}
        if (p.rows) {
            ${row(checked, index)}
    % if ctype:
            __global const ${ctype} *from = x + at_x + row;
            __global ${ctype} *to = o + at_o;
            ${index} c = 0;
            if (p.x[${last}] == 1 && p.o[${last}] == 1)
                for (; c + ${lanes} <= count; c += ${lanes})
                    *(__global ${name}_vector *)(to + c) = *(__global const ${name}_vector *)(from + c);
            for (; c < count; ++c)
                to[c * p.o[${last}]] = from[c * p.x[${last}]];
    % else:
            for (${index} c = 0; c < count; ++c)
                o[at_o + c * p.o[${last}]] = row;
    % endif
        } else {
            for (${index} c = 0; c < count; ++c) {
                ${row(checked, index)}
                o[at_o] = ${"x[at_x + row]" if ctype else "row"};
    % for array in ["o", *arrays]:
                at_${array} += ${step(array)}[${last}];
    % endfor
            }
        }
    }
}
## Declare the offset of each array: dimensions `dims` from `rest`, the last one at `first` where the caller loops
## over it.
<%def name="place(dims, arrays, index, first)">
    % for array in ["o", *arrays]:
        ${index} at_${array} = ${first} * ${step(array)}[${len(dims)}];
    % endfor
    <% offsets = [(f"at_{array}", step(array) + "[{}]") for array in ["o", *arrays]] %>
        ${unravel.unravel(dims, index, "rest", "p.shape[{}]", offsets)}
</%def>\
## Declare `row`: where the indices point to. One that is out of range is reported and taken for 0; its position is -1.
<%def name="row(checked, index)">
        ${index} row = 0;
    <% marks = ctype is None and any(checked) %>\
    % if marks:
        int is_wrong = 0;
    % endif
    % for k, is_checked in enumerate(checked):
        {
            ${bounds.decode("i", index_types[k], f"i{k}[at_i{k}]", f"p.length[{k}]", is_checked, f"(int)p.axis[{k}]",
                "0" if ctype else "-1")}
            ${"" if ctype or not is_checked else "is_wrong |= i < 0;"}
            row += (${index})i * p.step[${k}];
        }
    % endfor
    % if marks:
        row = is_wrong ? -1 : row;
    % endif
</%def>\
