## Arrays that kernels/rowwise.mako reads and writes by blocks of rows, turned in registers. The defs see its arguments.
<%!
    from pytensor_cl.dtypes import access_name, vector_type
%>
<%def name="turn()">
% for a, array in enumerate(arrays):
% if array.access == "tile":
        ${vector_type(array.dtype, lanes)} t_${array.name}[${2 * lanes if tile == lanes else tile}];
% if not array.is_output:
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
