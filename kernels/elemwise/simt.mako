## Algorithm   A function of each element, for GPUs. A work-item computes `lanes` elements of a row at a time: all are
##             loaded before the first is computed, so that several loads are in flight, by vectors where arrays are
##             contiguous and aligned. Elsewhere a long function (`one_by_one`) is computed for one after the other.
## Operands    As in kernels/elemwise/cpu.mako. The inputs `repeated` (by number) have one element for a row where
##             vectors are moved.
## NDRange     Any size; a loop over units (kernels/common/units.mako) with the NDRange as stride.
## Invariants  Counters are unsigned: the last step may pass the size by less than one NDRange.
<%page args="name, plan, offsets, inputs, by_value, outputs, statements, ndim, index, plan_in_buffer, lanes, vectors,
             repeated, one_by_one"/>\
<%namespace name="common" file="/elemwise/simt_common.mako"/>\
<%namespace name="units" file="/common/units.mako"/>\
<%!
import numpy as np

from pytensor_cl.codegen.dtypes import ctype, vector_type
%>\
<%
arrays = {f"i{k}": dtype for k, (dtype, value) in enumerate(zip(inputs, by_value, strict=True)) if not value}
arrays |= {f"o{k}": dtype for k, dtype in enumerate(outputs)}
loaded = [array for array in arrays if array[0] == "i"]
stored = [array for array in arrays if array[0] == "o"]
moved = {array: dtype for array, dtype in arrays.items() if array not in {f"i{k}" for k in repeated}}
masks = [f"(size_t)b_{array} & {lanes * np.dtype(dtype).itemsize - 1}" for array, dtype in moved.items()]
is_aligned = f"p.vectors && !({' | '.join(f'({mask})' for mask in masks)})" if vectors else "0"
places = list(arrays)
last, parts = ndim - 1, range(lanes)
at = lambda array, q: f"at_{array} + ({index})at_{q} * p.stride[{places.index(array)}][{last}]"
%>\
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__kernel void ${name}(
    ${common.parameters()})
{
    ${common.begin(places)}
    ${units.loop(index, lanes, last, is_aligned)}
        % for array in arrays:
        ${index} at_${array} = 0;
        % endfor
        ${units.rows(index, last, [(f"at_{array}", f"p.stride[{a}][{{}}]") for a, array in enumerate(arrays)])}
        % if vectors:
        if (is_vector && column + ${lanes} <= end) {
            ${vector_loads()}
            ${compute(parts)}
            ${vector_stores()}
            continue;
        }
        % endif
        % if one_by_one:
        #pragma unroll 1
        for (u${index} q = 0; q < ${lanes} && column + q * spread < end; ++q) {
            const u${index} at_0 = column + q * spread;
            ${elements(parts[:1])}
        }
        % else:
        % for q in parts:
        const u${index} at_${q} = ${units.place(q)};
        % endfor
        ${elements(parts)}
        % endif
    }
}
<%def name="vector_loads()">
            % for array in loaded:
            <% kind = vector_type(arrays[array], lanes) %>\
            % if array in moved:
            const ${kind} v_${array} = *(__global const ${kind} *)(b_${array} + at_${array} + column);
            % else:
            const ${ctype(arrays[array])} v_${array} = b_${array}[at_${array}];
            % endif
            % endfor
            % for array in loaded:
            % for q in parts:
            const ${ctype(arrays[array])} ${array}_${q} = v_${array}${f".s{q}" if array in moved else ""};
            % endfor
            % endfor
</%def>\
<%def name="vector_stores()">
            % for array in stored:
            <% kind = vector_type(arrays[array], lanes) %>\
            *(__global ${kind} *)(b_${array} + at_${array} + column) =
                (${kind})(${", ".join(f"{array}_{q}" for q in parts)});
            % endfor
</%def>\
<%def name="elements(parts)">
        % for array in loaded:
        % for q in parts:
        const ${ctype(arrays[array])} ${array}_${q} = b_${array}[${at(array, q)}];
        % endfor
        % endfor
        ${compute(parts)}
        % for q in parts:
        ${f"if (column + {q} * spread < end)" if len(parts) > 1 else ""} {
            % for array in stored:
            b_${array}[${at(array, q)}] = ${array}_${q};
            % endfor
        }
        % endfor
</%def>\
<%def name="compute(parts)">
        % for q in parts:
        ${" ".join(f"{ctype(arrays[array])} {array}_{q};" for array in stored)}
        {
            ${" ".join(f"const {ctype(arrays[array])} {array} = {array}_{q};" for array in loaded)}
            ${" ".join(f"{ctype(arrays[array])} {array};" for array in stored)}
            { ${statements} }
            ${" ".join(f"{array}_{q} = {array};" for array in stored)}
        }
        % endfor
</%def>\
