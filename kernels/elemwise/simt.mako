## Algorithm   A function of each element, for GPUs. `<name>_flat` is for operands that all step through one dimension;
##             it loads `unroll` elements before it computes, so that several loads are in flight.
## Operands    As in kernels/elemwise/cpu.mako.
## NDRange     Any size; a loop with the NDRange as stride. Neighbouring work-items take neighbouring elements.
## Invariants  Counters are unsigned: the last step may pass the size by less than one NDRange.
<%page args="name, plan, offsets, inputs, by_value, outputs, statements, ndim, index, plan_in_buffer, unroll"/>\
<%namespace name="common" file="/elemwise/simt_common.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype
%>\
<%
arrays = [f"i{k}" for k, value in enumerate(by_value) if not value] + [f"o{k}" for k in range(len(outputs))]
unsigned = "u" + index
%>\
## Computes elements n, n + step.. of one dimension.
<%def name="flat_elements(numbers)">
    % for q in numbers:
        % for a, array in enumerate(arrays):
        const ${index} at_${array}_${q} = (${index})(n + ${q} * step) * p.stride[${a}][${ndim - 1}];
        % endfor
        % for k, dtype in enumerate(inputs):
        % if not by_value[k]:
        const ${ctype(dtype)} i${k}_${q} = b_i${k}[at_i${k}_${q}];
        % endif
        % endfor
    % endfor
    % for q in numbers:
        ${" ".join(f"{ctype(dtype)} o{k}_{q};" for k, dtype in enumerate(outputs))}
        {
            ${" ".join(f"const {ctype(dtype)} i{k} = i{k}_{q};" for k, dtype in enumerate(inputs) if not by_value[k])}
            ${" ".join(f"{ctype(dtype)} o{k};" for k, dtype in enumerate(outputs))}
            { ${statements} }
            ${" ".join(f"o{k}_{q} = o{k};" for k in range(len(outputs)))}
        }
    % endfor
    % for q in numbers:
        ${" ".join(f"b_o{k}[at_o{k}_{q}] = o{k}_{q};" for k in range(len(outputs)))}
    % endfor
</%def>
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

% for flat in (True, False):
__kernel void ${name}${"_flat" if flat else ""}(
    ${common.parameters()})
{
    ${common.begin(arrays)}
    const ${unsigned} size = p.size;
    const ${unsigned} step = get_global_size(0);
    ${unsigned} n = get_global_id(0);
    % if flat:
    % if unroll > 1:
    for (; n < size && size - n > ${unroll - 1} * step; n += ${unroll} * step) {
        ${flat_elements(range(unroll))}
    }
    % endif
    for (; n < size; n += step) {
        ${flat_elements(range(1))}
    }
    % else:
    for (; n < size; n += step) {
        ${unsigned} rest = n;
        ${common.outer_offsets(arrays, ndim)}
        % for k, dtype in enumerate(inputs):
        % if not by_value[k]:
        const ${ctype(dtype)} i${k} = b_i${k}[at_i${k}];
        % endif
        % endfor
        % for k, dtype in enumerate(outputs):
        ${ctype(dtype)} o${k};
        % endfor
        {
            ${statements}
        }
        % for k in range(len(outputs)):
        b_o${k}[at_o${k}] = o${k};
        % endfor
    }
    % endif
}

% endfor
