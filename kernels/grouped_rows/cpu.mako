## Algorithm   A function of rows whose elements belong to groups, for CPUs: the lanes of a vector are different rows.
##             Values of the groups are turned once for each block of rows, so that a gather is the load of a vector,
##             and a scatter-add is a load, an addition and a store. Element functions and sums are those of the row
##             kernels, in as many passes as reductions depend on one another.
## Operands    Arrays x<k>, b<k>, y<k>: "full" ones have every element, "row" ones an element for each row, "table" ones
##             a column for each group; b<k> is what is added to; t<g>x<k> are other operands of a function of a table.
##             Indices i<k> are the same for all rows.
## Tiling      Blocks of `lanes` rows. Other full arrays are turned in chunks of `chunk` elements of a row.
## NDRange     (work-items): each takes a contiguous range of the blocks.
## Workspace   scratch, of each work-item: a tile for each table and each sum of groups, one vector for each group, and
##             for each other full array; then values that a later pass reloads.
## Invariants  Lanes past the last row repeat it and are not stored. An index that is out of range is reported, and
##             taken for another. Sums of groups are added up in the order of the elements, as NumPy does.
<%page args="name, geometry, lanes, arrays, values, indices, tables, sums, others, made, full, chunk, passes,
             row_values, spills, totals"/>
<%include file="/common/partition.mako"/>\
<%namespace name="parts" file="/rowwise/common.mako"/>
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import access_name, ctype, to_long, vector_type
%>
<%
    numbers = {array.name: a for a, array in enumerate(arrays)}
    table_of = {table.array: table for table in tables}
    sum_of = {item.output: item for item in sums}
    tile_of = {item.array: item.tile for item in full}
    tile_dtypes = dict.fromkeys(arrays[item.array].dtype for item in (*tables, *sums, *others, *full))
    tile_dtypes.update((dtype, None) for _, dtype in spills)
%>
${geometry.c_typedef(f"{name}_geometry")}
typedef struct { long at[${len(arrays)}], index_at[${len(indices)}]; } ${name}_offsets;
% for dtype in tile_dtypes:
typedef ${vector_type(dtype, lanes)} ${name}_${ctype(dtype)} __attribute__((aligned(${np.dtype(dtype).itemsize})));
% endfor

<%def name="place(a)" buffered="True" filter="trim">
${arrays[a].name} + offset.at[${a}] + row * g.row_step[${a}]
</%def>

## Lanes of the element, or of the row value, at an address.
<%def name="load(a, at)" buffered="True" filter="trim">
load_${access_name(arrays[a].dtype, lanes)}(${at}, g.row_step[${a}], last_lane)
</%def>

## Columns of a block of rows to a tile; in registers, if the elements of a row follow one another.
<%def name="turned(tile, a, at, count)">
<% block = f"{access_name(arrays[a].dtype, lanes)}_{lanes}__global" %>\
        if (g.step[${a}] == 1 && ${count} >= ${lanes}) {
            long place[${lanes}];
            for (int l = 0; l < ${lanes}; ++l)
                place[l] = min(l, last_lane) * g.row_step[${a}];
            transpose_gather_${block}((__global dense_${block} *)${tile}, ${at}, place, ${count}, 1, 0);
        } else
            for (long k = 0; k < ${count}; ++k)
                ${tile}[k] = ${load(a, f"{at} + k * g.step[{a}]")};
</%def>

## A tile to columns of a block of rows.
<%def name="turned_back(tile, a, at, count)">
<% T = ctype(arrays[a].dtype); block = f"{access_name(arrays[a].dtype, lanes)}_{lanes}__global" %>\
        if (last_lane == ${lanes - 1} && g.step[${a}] == 1 && ${count} >= ${lanes})
            transpose_store_${block}((__global dense_${block} *)${tile}, ${at}, g.row_step[${a}], ${count});
        else
            for (int l = 0; l <= last_lane; ++l)
                for (long k = 0; k < ${count}; ++k)
                    (${at})[l * g.row_step[${a}] + k * g.step[${a}]] =
                        ((__global const ${T} *)${tile})[k * ${lanes} + l];
</%def>

## A function of the groups, in place of its source.
<%def name="table_function(item)">
        {
            % for v, a in item.rows:
            const ${vector_type(item.dtypes[v], lanes)} r${v} = ${load(a, place(a))};
            % endfor
            % for v in item.row_values:
            ${vector_type(item.dtypes[v], lanes)} r${v};
            % endfor
            ${item.loop.row_code}
            #pragma clang loop unroll(disable) vectorize(disable)
            for (long k = 0; k < g.length[${item.table.index_number}]; ++k) {
                % for v, tile in item.tiles:
                const ${vector_type(item.dtypes[v], lanes)} v${v} = tile${tile}[k];
                % endfor
                ${item.loop.code}
                tile${item.table.tile}[k] = ${item.loop.writes[0][1]};
            }
        }
</%def>

## The work on the elements of a block of rows.
<%def name="elements(row_pass)">
<%
    read = [numbers[f"x{v}"] for v in row_pass.reads]
    written = [numbers[f"y{o}"] for o, _ in row_pass.writes]
    used = sorted({item.index_number for item in (*tables, *sums) if item.array in (*read, *written)})
    inputs, outputs = ([item for item in full if item.array in arrays_of] for arrays_of in (read, written))
    step = chunk if inputs or outputs else "g.count"
%>
        for (long first = 0; first < g.count; first += ${step}) {
        const long count = min(g.count - first, (long)${step});
        % for item in inputs:
        ${turned(f"tile{item.tile}", item.array, f"{place(item.array)} + first * g.step[{item.array}]", "count")}
        % endfor
        #pragma clang loop unroll(disable) vectorize(disable)
        for (long n = first; n < first + count; ++n) {
            % for i in used:
<% element = f"i{i}[offset.index_at[{i}] + n * g.index_step[{i}]]" %>\
            const long given${i} = ${to_long(ctype(indices[i].dtype), element)};
            long at${i} = given${i} + ((given${i} >> 63) & g.length[${i}]);
            % if indices[i].is_checked:
            if (at${i} < 0 || at${i} >= g.length[${i}]) {
                report_error(error_flag, error_code, 1, given${i}, g.length[${i}]);
                at${i} = 0;
            }
            % endif
            % endfor
            % for v in row_pass.reads:
<% a = numbers[f"x{v}"]; vector = vector_type(arrays[a].dtype, lanes) %>\
            % if a in table_of:
            const ${vector} v${v} = tile${table_of[a].tile}[at${table_of[a].index_number}];
            % elif arrays[a].access == "splat":
            const ${vector} v${v} = (${vector})(${arrays[a].name}[offset.at[${a}] + n * g.step[${a}]]);
            % else:
            const ${vector} v${v} = tile${tile_of[a]}[n - first];
            % endif
            % endfor
            % for number, (v, dtype) in enumerate(spills):
            % if v in row_pass.reloads:
            const ${vector_type(dtype, lanes)} v${v} = spill${number}[n];
            % endif
            % endfor
            ${row_pass.code}
            % for number, (v, dtype) in enumerate(spills):
            % if v in row_pass.spills:
            spill${number}[n] = v${v};
            % endif
            % endfor
            % for total in row_pass.totals:
            sum${total.value} =
                ${total.accumulator}_combine${lanes}(sum${total.value}, ${parts.lift(total, total.source, lanes)});
            % endfor
            % for o, value in row_pass.writes:
<% a = numbers[f"y{o}"] %>\
            % if o in sum_of:
            tile${sum_of[o].tile}[at${sum_of[o].index_number}] += ${value};
            % else:
            tile${tile_of[a]}[n - first] = ${value};
            % endif
            % endfor
        }
        % for item in outputs:
        ${turned_back(f"tile{item.tile}", item.array, f"{place(item.array)} + first * g.step[{item.array}]", "count")}
        % endfor
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(
    % for value in values:
    const ${ctype(value.dtype)} ${value.name},
    % endfor
    % for array in arrays:
    __global ${"" if array.is_output else "const "}${ctype(array.dtype)} *${array.name},
    % endfor
    % for i, index in enumerate(indices):
    __global const ${ctype(index.dtype)} *i${i},
    % endfor
    __global uchar *scratch, const ${name}_offsets offset, const ${name}_geometry g,
    volatile __global int *error_flag, const int error_code)
{
    scratch += get_global_id(0) * g.scratch;
    % for item in (*tables, *sums, *others, *full):
    __global ${name}_${ctype(arrays[item.array].dtype)} *tile${item.tile} =
        (__global ${name}_${ctype(arrays[item.array].dtype)} *)(scratch + g.tile_at[${item.tile}]);
    % endfor
    % for number, (v, dtype) in enumerate(spills):
    __global ${name}_${ctype(dtype)} *spill${number} =
        (__global ${name}_${ctype(dtype)} *)(scratch + g.spill_at[${number}]);
    % endfor
    const long blocks = (g.rows + ${lanes - 1}) / ${lanes};
    const long end = partition_begin(blocks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long block = partition_begin(blocks, 1, get_global_id(0), get_global_size(0)); block < end; ++block) {
        const long row = block * ${lanes};
        const int last_lane = min((long)${lanes}, g.rows - row) - 1;
        % for item in tables:
        ${turned(f"tile{item.tile}", item.array, place(item.array), f"g.length[{item.index_number}]")}
        % endfor
        % for item in others:
        ${turned(f"tile{item.tile}", item.array, place(item.array), f"g.length[{item.index_number}]")}
        % endfor
        % for item in made:
        ${table_function(item)}
        % endfor
        % for item in sums:
        ${turned(f"tile{item.tile}", item.base, place(item.base), f"g.length[{item.index_number}]")}
        % endfor
        % for v, dtype in row_values:
        ${vector_type(dtype, lanes)} r${v};
        % endfor
        % for a, array in enumerate(arrays):
        % if array.kind == "row" and not array.is_output:
        r${array.value} = ${load(a, place(a))};
        % endif
        % endfor
        % for total in totals:
        ${total.accumulator}_a${lanes} sum${total.value};
        % endfor
        % for s, row_pass in enumerate(passes):
        // Loop ${s}
        % for total in row_pass.results:
        r${total.value} = ${parts.result(total, f"sum{total.value}", lanes)};
        % endfor
        ${row_pass.row_code}
        % for total in row_pass.totals:
        sum${total.value} = ${total.accumulator}_identity${lanes}();
        % endfor
        % if not row_pass.is_empty:
        ${elements(row_pass)}
        % endif
        % endfor
        % for a, array in enumerate(arrays):
        % if array.kind == "row" and array.is_output:
        store_${access_name(array.dtype, lanes)}(r${array.value}, ${place(a)}, g.row_step[${a}], last_lane);
        % endif
        % endfor
        % for item in sums:
        ${turned_back(f"tile{item.tile}", item.array, place(item.array), f"g.length[{item.index_number}]")}
        % endfor
    }
}
