## Algorithm   A function of each element, for CPUs. Vectors of `lanes` elements run along the last dimension.
## Operands    Inputs i0.. and outputs o0.. of one shape[ndim]; strides in elements, 0 where an input is broadcast.
##             `by_value` inputs are kernel arguments. `broadcast_inputs` may be one element for all lanes: PoCL calls a
##             function for a vector that is loaded in any other way. Inputs with numbers `columns` have one element for
##             several lanes; a table has its index in a row (kernels/common/splat_index.mako). Arrays with numbers
##             `transposed` are read along the last dimension but one, and transposed in registers.
## Tiling      rows x columns elements of the last two dimensions: transposed inputs stay in the first-level cache.
##             Those that are transposed in registers pass through private memory of `tile` elements.
## NDRange     (work-items): each takes a contiguous range of the tiles.
## Invariants  No address outside an array is read: lanes past the end of a row repeat its last element. The hint on the
##             kernel keeps Intel's compiler from making a version for many work-items, which never runs.
<%page args="name, plan, offsets, inputs, by_value, outputs, statements, lanes, ndim, index, plan_in_buffer,
             broadcast_inputs, columns, transposed, tile"/>\
<%namespace name="registers" file="/common/register_transpose.mako"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import access_name, ctype, repeated, vector_type
%>\
<%
arrays = [f"i{k}" for k, value in enumerate(by_value) if not value] + [f"o{k}" for k in range(len(outputs))]
type_of = {f"i{k}": t for k, t in enumerate(inputs)} | {f"o{k}": t for k, t in enumerate(outputs)}
tile_of = {arrays[a]: a for a in transposed}
tile_vectors = tile[1] // lanes
table_of = {arrays[a]: number for number, a in enumerate(columns)}
direct = [a for a in arrays if a not in table_of and a not in tile_of]
splat = [a for a in broadcast_inputs if a in direct]
is_unit = [f"(ulong)s_{a} < 2" if a in splat else f"s_{a} == 1" for a in direct]
offsets_of = [(f"at_{array}", f"p.stride[{a}][{{}}]") for a, array in enumerate(arrays)]
%>\
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(
% for k, (dtype, value) in enumerate(zip(inputs, by_value, strict=True)):
    ${f"const {ctype(dtype)} v{k}" if value else f"__global const {ctype(dtype)} *b_i{k}"},
% endfor
% for k, dtype in enumerate(outputs):
    __global ${ctype(dtype)} *b_o${k},
% endfor
    const ${name}_offsets offset,
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*plan" if plan_in_buffer else "p"}
% for number in range(len(columns)):
    , __global const int *table${number}
% endfor
    )
{
% if plan_in_buffer:
    const ${name}_plan p = *plan;
% endif
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const ${index} end = partition_begin(p.tiles, 1, part + 1, parts);
% for k, dtype in enumerate(inputs):
    % if by_value[k]:
    const ${vector_type(dtype, lanes)} i${k} = ${repeated(dtype, lanes, f'v{k}')};
    % endif
% endfor
% for array in tile_of:
    ${vector_type(type_of[array], lanes)} tile_${array}[${tile[0] * tile_vectors}];
% endfor
    for (${index} tile = partition_begin(p.tiles, 1, part, parts); tile < end; ++tile) {
        ${index} rest = tile / p.column_tiles;
        const ${index} column = (tile - rest * p.column_tiles) * p.columns;
        const ${index} row = rest % p.row_tiles * p.rows;
        rest /= p.row_tiles;
        const ${index} columns = min(p.columns, p.shape[${ndim - 1}] - column);
        const ${index} rows = min(p.rows, p.shape[${ndim - 2}] - row);
% for a, array in enumerate(arrays):
        ${index} at_${array} = column * p.stride[${a}][${ndim - 1}] + row * p.stride[${a}][${ndim - 2}];
% endfor
        ${unravel.unravel(range(ndim - 2), index, "rest", "p.shape[{}]", offsets_of)}
% for array in tile_of:
        ${fill_tile(array)}
% endfor
        for (${index} r = 0; r < rows; ++r) {
% for a, array in enumerate(arrays):
            __global ${"const " if array[0] == "i" else ""}${ctype(type_of[array])} *p_${array} =
                b_${array} + offset.at[${a}] + at_${array};
            at_${array} += p.stride[${a}][${ndim - 2}];
            const ${index} s_${array} = p.stride[${a}][${ndim - 1}];
% endfor
            /* One test for all operands: separate ones halve the speed of PoCL's code in cache. */
            const int unit = ${" && ".join(is_unit)};
% for a in splat:
            const ${vector_type(type_of[a], lanes)} first_${a} = ${repeated(type_of[a], lanes, f"*p_{a}")};
% endfor
            const int non_temporal = offset.non_temporal
                && ${" && ".join(f"s_o{k} == 1 && !((ulong)p_o{k} % sizeof({vector_type(t, lanes)}))" for k,
                    t in enumerate(outputs))};
            for (${index} c = 0; c < columns; c += ${lanes}) {
                const int last = min(${lanes}, (int)(columns - c)) - 1;
% for array in arrays:
    % if array in tile_of:
                const ${vector_type(type_of[array], lanes)} ${array} =
                    tile_${array}[r * ${tile_vectors} + c / ${lanes}];
    % elif array in table_of:
                const ${vector_type(type_of[array], lanes)} ${array} =
                    spread_${access_name(type_of[array], lanes)}(p_${array}, table${table_of[array]} + c, last);
    % elif array[0] == "i":
                const ${vector_type(type_of[array], lanes)} ${array} = unit && last == ${lanes - 1}
                    ? ${f"!s_{array} ? first_{array} : " if array in splat else ""}unit_${access_name(type_of[array],
                        lanes)}(p_${array}) : load_${access_name(type_of[array], lanes)}(p_${array}, s_${array}, last);
                p_${array} += ${lanes} * s_${array};
    % endif
% endfor
% for k, dtype in enumerate(outputs):
                ${vector_type(dtype, lanes)} o${k};
% endfor
                {
                    ${statements}
                }
% for k, dtype in enumerate(outputs):
                if (non_temporal && last == ${lanes - 1})
                    store_non_temporal(o${k}, (__global ${vector_type(dtype, lanes)} *)p_o${k});
                else if (unit && last == ${lanes - 1})
                    put_${access_name(dtype, lanes)}(o${k}, p_o${k});
                else
                    store_${access_name(dtype, lanes)}(o${k}, p_o${k}, s_o${k}, last);
                p_o${k} += ${lanes} * s_o${k};
% endfor
            }
        }
    }
}
<%def name="fill_tile(array)">
<% vector, element, a = vector_type(type_of[array], lanes), ctype(type_of[array]), tile_of[array] %>
        {
            const ${index} across = p.stride[${a}][${ndim - 1}];
            const ${index} down = p.stride[${a}][${ndim - 2}];
            __global const ${element} *first = b_${array} + offset.at[${a}] + at_${array};
            const int has_next = column + 2 * p.columns <= p.shape[${ndim - 1}];
            for (${index} c = 0; c < columns; c += ${lanes}) {
                ${vector} *to = tile_${array} + c / ${lanes};
                __global const ${element} *from = first + c * across;
                ${index} r = 0;
                if (down == 1 && columns - c >= ${lanes})
                    for (; r + ${lanes} <= rows; r += ${lanes}, from += ${lanes}, to += ${lanes * tile_vectors}) {
                        if (has_next)
                            for (int l = 0; l < ${lanes}; ++l)
                                prefetch_line(from + (l + p.columns) * across);
                        ${registers.transpose(element, lanes, f"unit_{vector}(from + {{l}} * across)",
                            f"to[{{l}} * {tile_vectors}]")}
                    }
                for (; r < rows; ++r, from += down, to += ${tile_vectors})
                    *to = load_${vector}(from, across, min(${lanes}, (int)(columns - c)) - 1);
            }
        }
</%def>\
