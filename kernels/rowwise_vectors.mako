## The loop over the vectors of a row in kernels/rowwise.mako (pattern rows). The defs see its arguments.
<%!
    import numpy as np
    from pytensor_cl.dtypes import vector_type
    BLOCK = 4  # vectors that are added up in float32
    SHORT = 1024  # bytes of a row below which stores of incomplete cache lines are too many to go past the cache
%>
<%namespace name="parts" file="rowwise_parts.mako"/>

## Opens the loop over the vectors of a run. A line of the cache that is stored in part must not go past it, and no line both ways:
## `before` elements lie before the first whole line.
<%def name="vectors(walk)">
<% blocked, start = [total for total in walk.totals if total.is_blocked], "0" %>
% if walk.streamed is not None:
<% array, start = arrays[walk.streamed], f"before ? before - {lanes} : 0" %>
<% size = np.dtype(array.dtype).itemsize %>
            const ulong place = (ulong)(${array.name} + p_${array.name});
            const int past_cache = offset.past_cache && (n >= ${SHORT // size} || (place | n * ${size}) % ${lanes * size} == 0);
            const long before = past_cache ? -place % ${lanes * size} / ${size} : 0;
% endif
% if blocked:
            for (long i = ${start}; i < n;) {
                % for total in blocked:
                ${vector_type(total.source_dtype, lanes)} part${total.value} = 0;
                % endfor
                for (const long stop = min(n, i + ${BLOCK * lanes}); i < stop; i += ${lanes}) {
% else:
            for (long i = ${start}; i < n; i += ${lanes}) {
% endif
</%def>

<%def name="after_vectors(walk)">
% for total in walk.totals:
% if total.is_blocked and pattern == "rows":
            sum${total.value} = ${total.accumulator}_combine${lanes}(sum${total.value}, ${parts.lift(total, f"part{total.value}", lanes)});
% endif
% endfor
% if pattern == "rows" and any(total.is_blocked for total in walk.totals):
            }
% endif
</%def>

## Whether NaN is looked for apart: the larger of two numbers is one instruction.
<%def name="is_extreme(total)" buffered="True" filter="trim">
${"1" if pattern == "rows" and total.operation in ("maximum", "minimum") and total.acc_dtype in ("float32", "float64") else ""}
</%def>

<%def name="before_elements(walk)">
% for a, array in enumerate(arrays):
% if pattern == "columns" and array.access == "unit" and array.name in [f"y{o}" for o, _ in walk.writes]:
<% size = np.dtype(array.dtype).itemsize %>
        const int past_${array.name} = offset.past_cache && (width >= ${SHORT // size} || (width | g.reduced_step[${a}][0]) * ${size} % ${lanes * size} == 0);
% endif
% endfor
% for total in walk.totals:
% if is_extreme(total):
        ${total.accumulator}_a${lanes} nan${total.value} = 0;
% endif
% endfor
</%def>

<%def name="after_elements(walk)">
% for total in walk.totals:
% if is_extreme(total):
        sum${total.value} = nan${total.value} != nan${total.value} ? nan${total.value} : sum${total.value};
% endif
% endfor
</%def>
