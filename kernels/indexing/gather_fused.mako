## f(x[i, j], y[i, j], ...): a function of the elements that index arrays, one for each axis, pick from several arrays.
## The strides `i` are over the dimensions of the result, `step` those of the arrays along the axes that are indexed.
<%page args="name, inputs, by_value, output, statements, index_types, checked, ndim, index, in_parts, plan_in_buffer"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype, to_long
%>\
<%
arrays, count = [k for k, value in enumerate(by_value) if not value], len(index_types)
%>\
typedef struct {
    ${index} size, shape[${ndim}], i[${count}][${ndim}], length[${count}], axis[${count}], step[${len(arrays)}][${count}];
} ${name}_plan;
typedef struct { long o, i[${count}], x[${len(arrays)}]; } ${name}_offsets;

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
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*plan" if plan_in_buffer else "p"}, volatile __global int *alarm,
    const int number)
{
% if plan_in_buffer:
    const ${name}_plan p = *plan;
% endif
    const long item = get_global_id(0), items = get_global_size(0);
% if in_parts:
    const ${index} end = p.size * (item + 1) / items;
    for (${index} n = p.size * item / items; n < end; ++n) {
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
% for d in reversed(range(ndim)):
        {
            const ${index} i = ${f"rest % p.shape[{d}]" if d else "rest"};
    % if d:
            rest /= p.shape[${d}];
    % endif
    % for k in range(count):
            at_index${k} += i * p.i[${k}][${d}];
    % endfor
        }
% endfor
% for c, is_checked in enumerate(checked):
        {
            const long given = ${to_long(index_types[c], f"index{c}[at_index{c}]")};
            long i = given < 0 ? given + p.length[${c}] : given;
    % if is_checked:
            if (i < 0 || i >= p.length[${c}]) {
                raise_alarm(alarm, number, (int)p.axis[${c}], given, p.length[${c}]);
                i = 0;
            }
    % endif
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
