## Loads, stores and accumulation of kernels/rowwise/cpu.mako; the defs use its arguments. Access kinds of an array:
## "unit" (neighbouring elements), "splat" (one element for all lanes), "gather" (any step), "tile" (a block that was
## transposed in registers). `first_lane` and `last_lane` bound the lanes of a vector that count.
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import ctype, vector_type
    MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
%>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%namespace name="along" file="/rowwise/vector_access.mako"/>

<%def name="vector_types()">
% for dtype in dict.fromkeys([array.dtype for array in arrays] + [dtype for _, dtype in spills]):
typedef ${vector_type(dtype, lanes)} ${name}_${ctype(dtype)} __attribute__((aligned(${np.dtype(dtype).itemsize})));
% endfor
% for dtype in dict.fromkeys(array.dtype for array in arrays if array.is_output and array.access == "unit" \
      and pattern == "rows"):
static void ${name}_put_${ctype(dtype)}(const ${vector_type(dtype, lanes)} value, __global ${ctype(dtype)} *p,
    const int first, const int end)
{
    ${ctype(dtype)} lane[${lanes}];
    *(${name}_${ctype(dtype)} *)lane = value;
    for (int k = first; k < end; ++k)
        p[k] = lane[k];
}
% endfor
</%def>

## A loop over the vectors of a column tile. It is neither unrolled nor vectorized: the code would be larger, and no
## faster.
<%def name="each_vector()" buffered="True" filter="trim">
% if pattern == "columns" and tile_vectors > 1:
#pragma clang loop unroll(disable) vectorize(disable)
for (int k = 0; k < vectors; ++k)
% endif
</%def>

## The place where a vector begins (c), and its lanes that exist. The last vector of a column tile begins earlier. The
## vector of a narrow row reaches into the next row, whose own vector is stored later and corrects that.
<%def name="lanes_of_vector(is_narrow=False)" buffered="True" filter="trim">
% if is_narrow:
const int whole = n - i > ${lanes} / width + 1;
const int last_lane = width - 1;
const int c = 0;
% elif pattern == "columns":
const int last_lane = min(${lanes}, width) - 1;
const int whole = last_lane == ${lanes - 1};
const int c = ${f"min(k * {lanes}, max(width - {lanes}, 0))" if tile_vectors > 1 else 0};
% else:
const int whole = 0;
const int last_lane = 0;
const int c = 0;
% endif
</%def>

## Subscript of the variable of a row value: a column tile has one for each vector.
<%def name="subscript()" buffered="True" filter="trim">
${"[k]" if pattern == "columns" and tile_vectors > 1 else ""}
</%def>

<%def name="lane_step(a)" buffered="True" filter="trim">
% if arrays[a].access == "unit":
1
% else:
g.${"outer" if pattern == "columns" else "reduced"}_step[${a}][0]
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
whole ? *(__global const ${name}_${ctype(array.dtype)} *)(${place(a)}) : load_${vector}(${place(a)}, 1, last_lane)
% else:
load_${vector}(${place(a)}, ${lane_step(a)}, last_lane)
% endif
</%def>

<%def name="store(a, value)">
<% array = arrays[a] %>
% if array.access == "tile":
                t_${array.name}[i] = ${value};
% elif array.access == "unit":
                ${store_unit(a, value)}
% else:
                store_${vector_type(array.dtype, lanes)}(${value}, ${place(a)}, ${lane_step(a)}, last_lane);
% endif
</%def>

## Stores neighbouring elements: past the cache where the array is large and the address is aligned; else a whole
## vector, or the lanes that count. Along a row, the first elements of a line of the cache may be another vector's.
<%def name="store_unit(a, value)">
<% array = arrays[a]; vector, half = vector_type(array.dtype, lanes), vector_type(array.dtype, lanes // 2) %>
<% is_large = f"non_temporal_{array.name}" if array.kind == "full" else "offset.non_temporal" %>
% if pattern == "rows":
                if (non_temporal && !first_lane && (ulong)(${place(a)}) % sizeof(${vector}) == 0)
                    store_non_temporal(${value}, (__global ${vector} *)(${place(a)}));
                else if (non_temporal && first_lane)
                    ${name}_put_${ctype(array.dtype)}(${value}, ${place(a)}, max(first_lane, 0),
                        min(${lanes}, first_lane + ${lanes}));
% else:
                if (whole && ${is_large} && (ulong)(${place(a)}) % sizeof(${half}) == 0) {
                    store_non_temporal(${value}.lo, (__global ${half} *)(${place(a)}));
                    store_non_temporal(${value}.hi, (__global ${half} *)(${place(a)}) + 1);
                }
% endif
                else if (whole)
                    *(__global ${name}_${ctype(array.dtype)} *)(${place(a)}) = ${value};
                else
                    store_${vector}(${value}, ${place(a)}, ${lane_step(a)}, last_lane);
</%def>

<%def name="accumulate(total)">
<% vector, mask = vector_type(total.source_dtype, lanes), MASK[np.dtype(total.source_dtype).itemsize] %>
<% sum, combine = f"sum{total.value}{subscript()}", f"{total.accumulator}_combine{lanes}" %>
% if pattern == "columns":
                ${sum} = ${combine}(${sum}, ${parts.lift(total, total.source, lanes)});
% else:
                {
                    ${vector} m = ${total.source};
                    if (first_lane || !whole) {  // some lanes are another vector's, or do not exist
                        const ${mask}${lanes} lane = (${mask}${lanes})(${", ".join(map(str, range(lanes)))});
                        m = (lane >= (${mask})first_lane) & (lane < (${mask})(first_lane + ${lanes}))
                            & (lane <= (${mask})last_lane) ? m
                            : (${vector})(${total.identity});
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
