## Loads, stores and accumulation of kernels/rowwise/cpu.mako. The defs see its arguments.
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import ctype, vector_type
    MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
%>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%namespace name="along" file="/rowwise/vector_access.mako"/>

<%def name="vector_types()">
% for dtype in dict.fromkeys([array.dtype for array in arrays] + [dtype for _, dtype in keeps]):
typedef ${vector_type(dtype, lanes)} ${name}_${ctype(dtype)} __attribute__((aligned(${np.dtype(dtype).itemsize})));
% endfor
% for dtype in dict.fromkeys(array.dtype for array in arrays if array.is_output and array.access == "unit" and pattern == "rows"):
static void ${name}_put_${ctype(dtype)}(const ${vector_type(dtype, lanes)} value, __global ${ctype(dtype)} *p, const int first, const int end)
{
    ${ctype(dtype)} lane[${lanes}];
    *(${name}_${ctype(dtype)} *)lane = value;
    for (int k = first; k < end; ++k) p[k] = lane[k];
}
% endfor
</%def>

## For each vector of a strip; one after another: what compilers would make of the loop is larger, and no faster.
<%def name="each_vector()" buffered="True" filter="trim">
% if pattern == "columns" and strip > 1:
#pragma clang loop unroll(disable) vectorize(disable)
for (int k = 0; k < vectors; ++k)
% endif
</%def>

## Where a vector begins: the last of a strip reaches back. That of a narrow row reaches into the next one, which makes that good
## when its turn comes.
<%def name="lanes_of_vector(is_narrow=False)" buffered="True" filter="trim">
% if is_narrow:
const int whole = n - i > ${lanes} / width + 1, top = width - 1, c = 0;
% elif pattern == "columns":
const int top = min(${lanes}, width) - 1, whole = top == ${lanes - 1}, c = ${f"min(k * {lanes}, max(width - {lanes}, 0))" if strip > 1 else 0};
% else:
const int whole = 0, top = 0, c = 0;
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
${arrays[a].name} + at_${arrays[a].name} + c * ${lane_step(a)}
% elif pattern == "columns":
${arrays[a].name} + p_${arrays[a].name} + i * g.reduced_step[${a}][0] + c * ${lane_step(a)}
% else:
${arrays[a].name} + p_${arrays[a].name} + j * ${lane_step(a)}
% endif
</%def>

<%def name="load(a)" buffered="True" filter="trim">
<% array = arrays[a]; vector = vector_type(array.dtype, lanes) %>
% if array.access == "tile":
t_${array.name}[i]
% elif array.access == "splat":
(${vector})(*(${place(a)}))
% elif array.access == "unit":
whole ? *(__global const ${name}_${ctype(array.dtype)} *)(${place(a)}) : load_${vector}(${place(a)}, 1, top)
% else:
load_${vector}(${place(a)}, ${lane_step(a)}, top)
% endif
</%def>

<%def name="store(a, value)">
<% array = arrays[a]; vector, half = vector_type(array.dtype, lanes), vector_type(array.dtype, lanes // 2) %>
% if array.access == "tile":
                t_${array.name}[i] = ${value};
<% return "" %>
% endif
% if pattern == "rows" and array.access == "unit":
                if (past_cache && !skip && (ulong)(${place(a)}) % sizeof(${vector}) == 0)
                    put_past_cache(${value}, (__global ${vector} *)(${place(a)}));
                else if (past_cache && skip)
                    ${name}_put_${ctype(array.dtype)}(${value}, ${place(a)}, max(skip, 0), min(${lanes}, skip + ${lanes}));
                else
% elif array.access == "unit":
                if (whole && ${f"past_{array.name}" if array.kind == "full" else "offset.past_cache"} && (ulong)(${place(a)}) % sizeof(${half}) == 0) {
                    put_past_cache(${value}.lo, (__global ${half} *)(${place(a)}));
                    put_past_cache(${value}.hi, (__global ${half} *)(${place(a)}) + 1);
                } else
% endif
% if array.access == "unit":
                if (whole) *(__global ${name}_${ctype(array.dtype)} *)(${place(a)}) = ${value}; else
% endif
                store_${vector}(${value}, ${place(a)}, ${lane_step(a)}, top);
</%def>

<%def name="accumulate(total)">
<% vector, mask = vector_type(total.source_dtype, lanes), MASK[np.dtype(total.source_dtype).itemsize] %>
<% sum, combine = f"sum{total.value}{subscript()}", f"{total.accumulator}_combine{lanes}" %>
% if pattern == "columns":
                ${sum} = ${combine}(${sum}, ${parts.lift(total, total.source, lanes)});
% else:
                {
                    ${vector} m = ${total.source};
                    if (skip || !whole) {  // some lanes are another vector's, or do not exist
                        const ${mask}${lanes} lane = (${mask}${lanes})(${", ".join(map(str, range(lanes)))});
                        m = (lane >= (${mask})skip) & (lane < (${mask})(skip + ${lanes})) & (lane <= (${mask})top) ? m : (${vector})(${total.identity});
                    }
                    % if total.is_blocked:
                    part${total.value} += m;
                    % elif along.is_extreme(total):
                    const ${total.accumulator}_a${lanes} b = ${parts.lift(total, "m", lanes)};
                    nan${total.value} = b != b ? b : nan${total.value};
                    ${sum} = b ${">" if total.operation == "maximum" else "<"} ${sum} ? b : ${sum};
                    % else:
                    ${sum} = ${combine}(${sum}, ${parts.lift(total, "m", lanes)});
                    % endif
                }
% endif
</%def>
