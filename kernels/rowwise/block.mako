## Blocks of rows in kernels/rowwise/cpu.mako: arrays of access "tile", which are read and written transposed in
## registers, and rows that an index gathers from tables.
##
## arrays    what the kernel reads and writes, with name, dtype, access and is_output
## gathers   the number of each gathered array in `arrays`, and that of the value x<index> which is its index
## lanes     elements of a vector; tile: columns of a block; pattern: as in cpu.mako
##
## For gather number p the loads define place<p>, the row of the table, one or one for each lane.
<%!
    from pytensor_cl.codegen.dtypes import access_name, ctype, to_long, vector_type

    AHEAD = 12  # prefetch distance in rows
%>
<%def name="declarations(name, gathers, gathers_struct)">
% if gathers:
${gathers_struct.c_typedef(f"{name}_gathers")}
% endif
</%def>

<%def name="parameters(name, gathers)">
% if gathers:
    , const ${name}_gathers gathers
% endif
</%def>

## Combines the lanes of a vector by |: <name>1 is negative if the value is negative in one of n lanes.
<%def name="combine_lanes(name, value, n)">
            const ${vector_type("int64", n)} ${name}${n} = ${value};
            % for half in (1 << k for k in reversed(range(n.bit_length() - 1))):
            const ${vector_type("int64", half)} ${name}${half} = ${name}${2 * half}.lo | ${name}${2 * half}.hi;
            % endfor
</%def>

## The rows of a table for n indices, place<p>; an index that is out of range is reported, and taken for another.
<%def name="places(p, index, index_dtype, n)">
<% whole = vector_type("int64", n) %>
        const ${whole} given${p} = ${to_long(ctype(index_dtype), f"r{index}", n)};
        const ${whole} length${p} = gathers.length[${p}];
        ${whole} place${p} = given${p} + ((given${p} >> 63) & length${p});
        {
            ${combine_lanes("outside", f"place{p} | (length{p} - 1 - place{p})", n)}
            if (outside1 < 0) {
                long lane[${n}] __attribute__((aligned(sizeof(${whole}))));
                *(${whole} *)lane = given${p};
                for (int l = 0; l < ${n}; ++l)
                    if (lane[l] < -gathers.length[${p}] || lane[l] >= gathers.length[${p}])
                        report_error(error_flag, error_code, 0, lane[l], gathers.length[${p}]);
                place${p} = clamp(place${p}, (${whole})0, length${p} - 1);
            }
        }
</%def>

## Pattern "columns": where the rows of table x begin, and all_<x>: whether a row follows each of them, so that reading
## on past its end is allowed.
<%def name="rows_of_lanes(p, x, lanes)">
        long row_${x}[${lanes}] __attribute__((aligned(sizeof(${vector_type("int64", lanes)}))));
        *(${vector_type("int64", lanes)} *)row_${x} = place${p} * gathers.step[${p}];
        int all_${x};
        {
            ${combine_lanes("after", f"length{p} - 2 - place{p}", lanes)}
            all_${x} = after1 >= 0;
        }
</%def>

## Pattern "rows": where the row of table x, array number a, begins. The row AHEAD of it is fetched if rows of the table
## are far apart.
<%def name="row_of_task(p, a, x, dtype, index, index_array)">
        at_${x} = offset.at[${a}] + place${p} * gathers.step[${p}];
        if (gathers.is_far[${p}] && column + ${AHEAD} < g.outer[0])
            fetch_ahead(${x} + offset.at[${a}]
                + (long)x${index}[at_x${index} + ${AHEAD}
                    * g.outer_step[${index_array}][0]] * gathers.step[${p}],
                        g.total * sizeof(${ctype(dtype)}));
</%def>

## Reads blocks into t_<array>, and finds gathered rows.
<%def name="transpose_load(arrays, gathers, pattern, lanes, tile)">
<%
    number_of = {array.name: a for a, array in enumerate(arrays)}
    gather_of = {a: p for p, (a, index) in enumerate(gathers)}
%>
% for p, (a, index) in enumerate(gathers):
<% index_array = number_of[f"x{index}"] %>
        ${places(p, index, arrays[index_array].dtype, lanes if pattern == "columns" else 1)}
% if pattern == "columns":
        ${rows_of_lanes(p, arrays[a].name, lanes)}
% else:
        ${row_of_task(p, a, arrays[a].name, arrays[a].dtype, index, index_array)}
% endif
% endfor
% for a, array in enumerate(arrays):
% if array.access == "tile":
        ${vector_type(array.dtype, lanes)} t_${array.name}[${2 * lanes if tile == lanes else tile}];
% if a in gather_of:
        transpose_gather_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + offset.at[${a}],
            row_${array.name}, g.total, all_${array.name},
                (length${gather_of[a]}.s0 - 1) * gathers.step[${gather_of[a]}]);
% elif not array.is_output:
        transpose_load_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + at_${array.name},
            g.outer_step[${a}][0], g.total, column + ${lanes} < g.outer[0]);
% endif
% endif
% endfor
</%def>

## Writes blocks.
<%def name="transpose_store(arrays, lanes, tile)">
% for a, array in enumerate(arrays):
% if array.access == "tile" and array.is_output:
        transpose_store_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + at_${array.name},
            g.outer_step[${a}][0], g.total);
% endif
% endfor
</%def>
