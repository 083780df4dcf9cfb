## Loads, stores and accumulation of kernels/rowwise.mako. The defs see its arguments.
<%!
    import numpy as np
    from pytensor_cl.dtypes import ctype, vector_type
    MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
%>
<%namespace name="parts" file="rowwise_parts.mako"/>

<%def name="vector_types()">
% for dtype in dict.fromkeys([array.dtype for array in arrays] + [dtype for _, dtype in keeps]):
typedef ${vector_type(dtype, lanes)} ${name}_${ctype(dtype)} __attribute__((aligned(${np.dtype(dtype).itemsize})));
% endfor
</%def>

## For each vector of a strip; one after another: what compilers would make of the loop is larger, and no faster.
<%def name="each_vector()" buffered="True" filter="trim">
% if pattern == "columns" and strip > 1:
#pragma clang loop unroll(disable) vectorize(disable)
for (int k = 0; k < vectors; ++k)
% endif
</%def>

## Variable of a row value; in a strip there is one for each vector.
<%def name="subscript()" buffered="True" filter="trim">
${"[k]" if pattern == "columns" and strip > 1 else ""}
</%def>

<%def name="lane_step(a)" buffered="True" filter="trim">
% if arrays[a].access == "unit":
1
% else:
g.${"kept" if pattern == "columns" else "reduced"}_step[${a}][0]
% endif
</%def>

## Address of the first lane, in a loop over elements, or over rows.
<%def name="place(a)" buffered="True" filter="trim">
% if arrays[a].kind == "row":
${arrays[a].name} + at_${arrays[a].name} + k * ${lanes} * ${lane_step(a)}
% elif pattern == "columns":
${arrays[a].name} + p_${arrays[a].name} + i * g.reduced_step[${a}][0] + k * ${lanes} * ${lane_step(a)}
% else:
${arrays[a].name} + p_${arrays[a].name} + j * ${lane_step(a)}
% endif
</%def>

<%def name="load(a)" buffered="True" filter="trim">
<% array = arrays[a]; vector = vector_type(array.dtype, lanes) %>
% if array.access == "splat":
(${vector})(*(${place(a)}))
% elif array.access == "unit":
whole ? *(__global const ${name}_${ctype(array.dtype)} *)(${place(a)}) : load_${vector}(${place(a)}, 1, top)
% else:
load_${vector}(${place(a)}, ${lane_step(a)}, top)
% endif
</%def>

<%def name="store(a, value)">
% if arrays[a].access == "unit" and arrays[a].kind == "full":
<% half = vector_type(arrays[a].dtype, lanes // 2) %>
                if (whole && offset.past_cache && (ulong)(${place(a)}) % sizeof(${half}) == 0) {
                    put_past_cache(${value}.lo, (__global ${half} *)(${place(a)}));
                    put_past_cache(${value}.hi, (__global ${half} *)(${place(a)}) + 1);
                } else
% endif
% if arrays[a].access == "unit":
                if (whole) *(__global ${name}_${ctype(arrays[a].dtype)} *)(${place(a)}) = ${value}; else
% endif
                store_${vector_type(arrays[a].dtype, lanes)}(${value}, ${place(a)}, ${lane_step(a)}, top);
</%def>

<%def name="accumulate(total)">
<% vector, mask = vector_type(total.source_dtype, lanes), MASK[np.dtype(total.source_dtype).itemsize] %>
<% sum, combine = f"sum{total.value}{subscript()}", f"{total.accumulator}_combine{lanes}" %>
% if pattern == "columns":
                ${sum} = ${combine}(${sum}, ${parts.lift(total, total.source, lanes)});
% else:
                {
                    ${vector} m = ${total.source};
                    if (skip || !whole) {  // some lanes were seen before, or do not exist
                        const ${mask}${lanes} lane = (${mask}${lanes})(${", ".join(map(str, range(lanes)))});
                        m = (lane >= (${mask})skip) & (lane <= (${mask})top) ? m : (${vector})(${total.identity});
                    }
                    ${sum} = ${combine}(${sum}, ${parts.lift(total, "m", lanes)});
                }
% endif
</%def>
