## Arrays that kernels/rowwise/cpu.mako reads and writes by blocks of rows, transposed in registers, and rows that an
## index gathers from tables: `gathers` has the number of each such array with that of its index. The defs use the
## arguments of the kernel.
<%!
    from pytensor_cl.codegen.dtypes import access_name, ctype, to_long, vector_type

    AHEAD = 12  # prefetch distance in rows
%>
<%def name="declarations()">
% if gathers:
${gathers_struct.c_typedef(f"{name}_gathers")}
% endif
</%def>

<%def name="parameters()">
% if gathers:
    , const ${name}_gathers gathers, volatile __global int *error_flag, const int error_code
% endif
</%def>

## Where the rows of a table begin: one, or those of all lanes. An index that is out of range is reported, and taken
## for another.
<%def name="gather_rows(p, a, index)">
<%
n = lanes if pattern == "columns" else 1
kinds = {array.name: array.dtype for array in arrays}
whole, x, halves = vector_type("int64", n), arrays[a].name, [1 << k for k in reversed(range(n.bit_length() - 1))]
%>
        const ${whole} given${p} = ${to_long(ctype(kinds[f"x{index}"]), f"r{index}", n)};
        const ${whole} length${p} = gathers.length[${p}];
        ${whole} place${p} = given${p} + ((given${p} >> 63) & length${p});
        {
            const ${whole} outside${n} = place${p} | (length${p} - 1 - place${p});
            % for half in halves:
            const ${vector_type("int64", half)} outside${half} = outside${2 * half}.lo | outside${2 * half}.hi;
            % endfor
            if (outside1 < 0) {
                long lane[${n}] __attribute__((aligned(sizeof(${whole}))));
                *(${whole} *)lane = given${p};
                for (int l = 0; l < ${n}; ++l)
                    if (lane[l] < -gathers.length[${p}] || lane[l] >= gathers.length[${p}])
                        report_error(error_flag, error_code, 0, lane[l], gathers.length[${p}]);
                place${p} = clamp(place${p}, (${whole})0, length${p} - 1);
            }
        }
% if pattern == "columns":
        long row_${x}[${n}] __attribute__((aligned(sizeof(${whole}))));
        *(${whole} *)row_${x} = place${p} * gathers.step[${p}];
        int all_${x};
        {
            const ${whole} after${n} = length${p} - 2 - place${p};
            % for half in halves:
            const ${vector_type("int64", half)} after${half} = after${2 * half}.lo | after${2 * half}.hi;
            % endfor
            all_${x} = after1 >= 0;
        }
% else:
        at_${x} = offset.at[${a}] + place${p} * gathers.step[${p}];
        if (gathers.is_far[${p}] && column + ${AHEAD} < g.outer[0])
            fetch_ahead(${x} + offset.at[${a}]
                + (long)x${index}[at_x${index} + ${AHEAD}
                    * g.outer_step[${[array.name for array in arrays].index(f"x{index}")}][0]] * gathers.step[${p}],
                        g.total * sizeof(${ctype(arrays[a].dtype)}));
% endif
</%def>

<%def name="transpose_load()">
<% gathered = {a: p for p, (a, index) in enumerate(gathers)} %>
% for p, (a, index) in enumerate(gathers):
        ${gather_rows(p, a, index)}
% endfor
% for a, array in enumerate(arrays):
% if array.access == "tile":
        ${vector_type(array.dtype, lanes)} t_${array.name}[${2 * lanes if tile == lanes else tile}];
% if a in gathered:
        transpose_gather_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + offset.at[${a}],
            row_${array.name}, g.total, all_${array.name},
                (length${gathered[a]}.s0 - 1) * gathers.step[${gathered[a]}]);
% elif not array.is_output:
        transpose_load_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + at_${array.name},
            g.outer_step[${a}][0], g.total, column + ${lanes} < g.outer[0]);
% endif
% endif
% endfor
</%def>

<%def name="transpose_store()">
% for a, array in enumerate(arrays):
% if array.access == "tile" and array.is_output:
        transpose_store_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + at_${array.name},
            g.outer_step[${a}][0], g.total);
% endif
% endfor
</%def>
