## Algorithm   Evenly spaced values: first, second, and from there on as NumPy fills an array, number times difference.
## Operands    output: `size` elements, `step` apart.
## NDRange     cpu: (work-items), each with a contiguous range of vectors; simt: any size, a loop with it as stride.
<%page args="name, dtype, lanes, index, schedule"/>
<%include file="/common/partition.mako"/>\
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, vector_type

    def as_dtype(dtype, lanes):
        """Return the function that converts a vector of indices."""
        return f"convert_{vector_type(dtype, lanes)}"
%>
<%
    T, V = ctype(dtype), vector_type(dtype, lanes)
    I = vector_type("int32" if index == "int" else "int64", lanes)
    places = ", ".join(map(str, range(lanes)))
%>
% if schedule == "cpu":
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
% else:
__kernel
% endif
void ${name}(__global ${T} *output, const long output_at, const long step, const long size, const ${T} first,
    const ${T} second, const ${T} difference)
{
    #pragma OPENCL FP_CONTRACT OFF
    output += output_at;
    % if schedule == "cpu":
    const long vectors = (size + ${lanes - 1}) / ${lanes};
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    for (long k = partition_begin(vectors, 1, part, parts); k < partition_begin(vectors, 1, part + 1, parts); ++k) {
        const ${index} i = k * ${lanes};
        const ${V} values = (${V})(first) + ${as_dtype(dtype, lanes)}(i + (${I})(${places})) * (${V})(difference);
        store_${V}(values, output + i * step, step, min(${lanes}L, size - i) - 1);
    }
    if (part == 0) {
        output[0] = first;  /* which is no number above where the difference is infinite */
        if (size > 1)
            output[step] = second;
    }
    % else:
    for (${index} i = get_global_id(0); i < size; i += get_global_size(0))
        output[i * step] = i == 0 ? first : i == 1 ? second : (${T})(first + (${T})i * difference);
    % endif
}
