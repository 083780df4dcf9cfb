## Algorithm   x[i, j, ...] for index arrays i, j, ... (gather), for GPUs: one result, any strides. A work-item computes
##             `lanes` elements of each of `rows_each` rows at a time; all indices are loaded first, then all elements,
##             so that several loads are in flight. `rows`: an index means as many elements as the last dimension has,
##             is read once for them, and rows that are contiguous and aligned are moved as vectors.
## Operands    All strides are over the dimensions of the result: those of x are 0 where index arrays step, those of an
##             index array are 0 where x steps. length, step and axis belong to each index. Without x (`ctype` is None)
##             the result is the positions that the indices mean, in elements of x.
## NDRange     Any size; a loop over units (kernels/common/units.mako) with the NDRange as stride.
## Invariants  An index that is out of range is reported, and taken for 0; its position is -1. Past the end
##             the last element is read again.
<%page args="name, plan, offsets, ctype, index_types, checked, ndim, index, rows, lanes, rows_each, plan_in_buffer"/>\
<%namespace name="bounds" file="/common/bounds.mako"/>\
<%namespace name="units" file="/common/units.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long, widened
%>\
<%
marks = ctype is None and any(checked)
arrays = ["o", *(["x"] if ctype else []), *(f"i{k}" for k in range(len(index_types)))]
last, parts, each = ndim - 1, range(lanes), range(rows_each)
vectors = rows and ctype and lanes > 1
mask = f"(sizeof({ctype}) * {lanes} - 1)"
is_vector = f"p.vectors && !((size_t)x & {mask} | (size_t)o & {mask})" if vectors else "0"
step = lambda array: f"p.i[{array[1:]}]" if array[0] == "i" else f"p.{array}"
# Each row has an index of its own, or each element of it.
indexed = [(r, q) for r in each for q in (parts[:1] if rows else parts)]
at = lambda array, r, q: f"at_{array}_{r} + ({index})at_{q} * {step(array)}[{last}]"
given = lambda k, r, q: f"at_i{k}_{r}" if rows else at(f"i{k}", r, q)
found = lambda r, q: f"found_{r}_{0 if rows else q}"
%>\
% if vectors:
typedef ${widened(ctype, lanes)} ${name}_vector;
% endif
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__kernel void ${name}(
% for k, kind in enumerate(index_types):
    __global const ${kind} *restrict i${k},
% endfor
% if ctype:
    __global const ${ctype} *restrict x,
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
    ${units.loop(index, lanes, last, is_vector)}
        % if rows_each > 1:
        const u${index} first = rest * ${rows_each};
        % endif
        % for r in each:
        % for array in arrays:
        ${index} at_${array}_${r} = 0;
        % endfor
        {
            % if rows_each > 1:
            u${index} rest = min(first + ${r}, (u${index})p.row_count - 1);
            % endif
            ${units.rows(index, last, [(f"at_{array}_{r}", step(array) + "[{}]") for array in arrays])}
        }
        % endfor
        % for q in parts:
        const u${index} at_${q} = ${units.place(q)};
        % endfor
        % for k, kind in enumerate(index_types):
        % for r, q in indexed:
        const ${kind} i${k}_${r}_${q} = i${k}[${given(k, r, q)}];
        % endfor
        % endfor
        % if marks:
        int is_wrong = 0;
        % endif
        % for r, q in indexed:
        ${index} found_${r}_${q} = 0;
        % for k, kind in enumerate(index_types):
        {
            ${bounds.decode("i", kind, f"i{k}_{r}_{q}", f"p.length[{k}]", checked[k], f"(int)p.axis[{k}]",
                "-1" if marks else "0")}
            ${f"is_wrong |= i < 0;" if marks else ""}
            found_${r}_${q} += (${index})i * p.step[${k}];
        }
        % endfor
        % if marks:
        found_${r}_${q} = is_wrong ? -1 : found_${r}_${q};
        is_wrong = 0;
        % endif
        % endfor
        % if vectors:
        if (is_vector && column + ${lanes} <= end) {
            % for r in each:
            const ${name}_vector moved_${r} = *(__global const ${name}_vector *)(x + at_x_${r} + found_${r}_0 + column);
            % endfor
            % for r in each:
            ${f"if (first + {r} < p.row_count)" if r else ""}
            *(__global ${name}_vector *)(o + at_o_${r} + column) = moved_${r};
            % endfor
            continue;
        }
        % endif
        % for r in each:
        % for q in parts:
        const ${ctype or index} moved_${r}_${q} = ${f"x[{at('x', r, q)} + {found(r, q)}]" if ctype else found(r, q)};
        % endfor
        % endfor
        % for r in each:
        ${f"if (first + {r} < p.row_count)" if r else ""} {
            % for q in parts:
            ${f"if (column + {q} * spread < end)" if lanes > 1 else ""}
            o[${at("o", r, q)}] = moved_${r}_${q};
            % endfor
        }
        % endfor
    }
}
