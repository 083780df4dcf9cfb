## Arrays that kernels/rowwise/cpu.mako reads and writes by blocks of rows, turned in registers, and rows that an index picks from
## tables: `picks` has the number of each such array with that of its index. The defs see the kernel's arguments.
<%!
    from pytensor_cl.codegen.dtypes import access_name, ctype, to_long, vector_type

    AHEAD = 12  # rows that are asked for before they are needed
%>
<%def name="declarations()">
% if picks:
typedef struct { long step[${len(picks)}], length[${len(picks)}], is_far[${len(picks)}]; } ${name}_picks;
% endif
</%def>

<%def name="parameters()">
% if picks:
    , const ${name}_picks picks, volatile __global int *pick_alarm, const int pick_alarm_number
% endif
</%def>

## Where the rows of a table begin: one, or those of all lanes. An index that is out of range is reported, and taken for another.
<%def name="pick(p, a, index)">
<%
n = lanes if pattern == "columns" else 1
kinds = {array.name: array.dtype for array in arrays}
whole, x, halves = vector_type("int64", n), arrays[a].name, [1 << k for k in reversed(range(n.bit_length() - 1))]
%>
        const ${whole} given${p} = ${to_long(ctype(kinds[f"x{index}"]), f"r{index}", n)}, length${p} = picks.length[${p}];
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
                    if (lane[l] < -picks.length[${p}] || lane[l] >= picks.length[${p}])
                        raise_alarm(pick_alarm, pick_alarm_number, 0, lane[l], picks.length[${p}]);
                place${p} = clamp(place${p}, (${whole})0, length${p} - 1);
            }
        }
% if pattern == "columns":
        long row_${x}[${n}] __attribute__((aligned(sizeof(${whole}))));
        *(${whole} *)row_${x} = place${p} * picks.step[${p}];
        int all_${x};
        {
            const ${whole} after${n} = length${p} - 2 - place${p};
            % for half in halves:
            const ${vector_type("int64", half)} after${half} = after${2 * half}.lo | after${2 * half}.hi;
            % endfor
            all_${x} = after1 >= 0;
        }
% else:
        at_${x} = offset.at[${a}] + place${p} * picks.step[${p}];
        if (picks.is_far[${p}] && column + ${AHEAD} < g.kept[0])
            fetch_ahead(${x} + offset.at[${a}] + (long)x${index}[at_x${index} + ${AHEAD} * g.kept_step[${[array.name for array in arrays].index(f"x{index}")}][0]] * picks.step[${p}], g.total * sizeof(${ctype(arrays[a].dtype)}));
% endif
</%def>

<%def name="turn()">
<% picked = {a: p for p, (a, index) in enumerate(picks)} %>
% for p, (a, index) in enumerate(picks):
        ${pick(p, a, index)}
% endfor
% for a, array in enumerate(arrays):
% if array.access == "tile":
        ${vector_type(array.dtype, lanes)} t_${array.name}[${2 * lanes if tile == lanes else tile}];
% if a in picked:
        turn_picked_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + offset.at[${a}], row_${array.name}, g.total, all_${array.name}, (length${picked[a]}.s0 - 1) * picks.step[${picked[a]}]);
% elif not array.is_output:
        turn_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + at_${array.name}, g.kept_step[${a}][0], g.total, column + ${lanes} < g.kept[0]);
% endif
% endif
% endfor
</%def>

<%def name="turn_back()">
% for a, array in enumerate(arrays):
% if array.access == "tile" and array.is_output:
        turn_back_${access_name(array.dtype, lanes)}_${tile}(t_${array.name}, ${array.name} + at_${array.name}, g.kept_step[${a}][0], g.total);
% endif
% endfor
</%def>
