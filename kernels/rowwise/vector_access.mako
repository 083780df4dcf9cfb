## Loops along rows, and from row to row, in kernels/rowwise/cpu.mako; the defs use its arguments.
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import vector_type

    BLOCK = 4  # vectors that are added up in float32
    # Bytes of a row. In shorter rows, too many cache lines are incomplete for non-temporal stores, and the hardware
    # prefetcher does not see the loads in advance.
    SHORT = 1024
%>
<%namespace name="parts" file="/rowwise/common.mako"/>

<%def name="is_gathered()" buffered="True" filter="trim">
${"1" if any(array.kind == "full" and array.access == "gather" for array in arrays) else ""}
</%def>

## The places where the task begins in each array; most begin beside the one before. (Of gathered lanes compilers would
## make a pointer each.)
<%def name="next_row()">
<% across = pattern == "columns" %>
        ${"{" if is_gathered() else ""}
% if not is_gathered():
        if (column + ${"g.width" if across else 1} < g.outer[0]) {
            const long next = ${f"min(column + g.width, g.outer[0] - {lanes})" if across else "column + 1"};
            % for a, array in enumerate(arrays):
            at_${array.name} += (next - column) * g.outer_step[${a}][0];
            % endfor
            column = next;
        } else {
% endif
            long ${"tile_row" if across else "rest"} = block;
            % if across:
            ${parts.divmod_index("tile_row", "tile", "g.tiles")}
            column = min(tile * g.width, max(g.outer[0] - ${lanes}, 0L));
            long rest = tile_row * g.outer[0] + column;
            % else:
            column = rest % g.outer[0];
            % endif
            ${parts.row_offsets()}
        }
</%def>

## Pointers to the first element of a run; the next one is a step away. Processors see long runs coming, but not short
## ones, and the next row begins where this one's runs end.
<%def name="next_run(used, ahead)">
% if reduced_dims == 1:
            ${parts.run_pointers(used, "at")}
% else:
            long inner = 0;
            if (at > first && ++number < g.reduced[1]) {
                % for a in used:
                p_${arrays[a].name} += g.reduced_step[${a}][1] - inner_before * g.reduced_step[${a}][0];
                % endfor
            } else {
                long run = at;
                ${parts.divmod_index("run", "begin", "g.reduced[0]")}
                inner = begin;
                number = run;
                if (number >= g.reduced[1])
                    number %= g.reduced[1];
                % for a in used:
                p_${arrays[a].name} = at_${arrays[a].name} + inner * g.reduced_step[${a}][0];
                % endfor
                ${parts.outer_runs(used)}
            }
            inner_before = inner;
            % for a in ahead:
<% incomplete = f" && (!offset.non_temporal || g.reduced[0] % {lanes})" if arrays[a].is_output else "" %>\
            if (g.reduced[0] * sizeof(*${arrays[a].name}) <= ${SHORT}${incomplete})
                for (long i = 0; i < g.reduced[0]; i += 64 / sizeof(*${arrays[a].name}))
                    prefetch_line(${arrays[a].name} + p_${arrays[a].name} + g.outer_step[${a}][0] + i);
            % endfor
% endif
</%def>

## The passes over the vectors of a run: whole ones, then what is left at its ends, where some lanes are a neighbour's
## (`first_lane`), or do not exist. A line of the cache that is stored in part must not go past it, and no line both
## ways: `before` elements precede the first whole line.
<%def name="vectors(row_pass)">
<% blocked, start = [total for total in row_pass.totals if total.is_blocked], "0" %>
% if row_pass.streamed is not None:
<% array, start = arrays[row_pass.streamed], "before" %>
<% size = np.dtype(array.dtype).itemsize %>
            const ulong place = (ulong)(${array.name} + p_${array.name});
            const int non_temporal = offset.non_temporal
                && (n >= ${SHORT // size} || (place | n * ${size}) % ${lanes * size} == 0);
            const long before = non_temporal ? -place % ${lanes * size} / ${size} : 0;
% endif
            long i = ${start};
% if blocked:
            #pragma clang loop unroll(disable) vectorize(disable)
            while (n - i >= ${lanes}) {
                ${blocks(blocked)}
                #pragma clang loop unroll(disable) vectorize(disable)
                for (const long stop = min(i + ${BLOCK * lanes}, n - ${lanes - 1}); i < stop; i += ${lanes}) {
% else:
            {
                #pragma clang loop unroll(disable) vectorize(disable)
                for (; n - i >= ${lanes}; i += ${lanes}) {
% endif
                    const long j = ${f"min(i, n - {lanes})" if is_gathered() else "i"};
                    const long spill_index = at + j;
                    const int first_lane = 0;
                    const int whole = 1;
                    const int last_lane = ${lanes - 1};
                    ${caller.body()}
                }
                ${blocks(blocked, "end")}
            }
            ${blocks(blocked)}
            #pragma clang loop unroll(disable) vectorize(disable)
            for (int end = ${"!before" if row_pass.streamed is not None else 1}; end < 1 + (i < n); ++end) {
                const int whole = n >= ${lanes};
                const int last_lane = whole ? ${lanes - 1} : (int)n - 1;
                const long at_first = ${f"end ? i : before - {lanes}" if row_pass.streamed is not None else "i"};
                const long j = whole ? max(0L, min(at_first, n - ${lanes})) : 0;
                const long spill_index = at + j;
                // lanes that belong to the vector before; negative: to the one after
                const int first_lane = at_first - j;
                ${caller.body()}
            }
            ${blocks(blocked, "end")}
</%def>

## A few vectors are added up in float32.
<%def name="blocks(blocked, at='start')">
% for total in blocked:
% if at == "start":
                ${vector_type(total.source_dtype, lanes)} part${total.value} = 0;
% else:
                sum${total.value} =
                    ${total.accumulator}_combine${lanes}(sum${total.value},
                        ${parts.lift(total, f"part{total.value}", lanes)});
% endif
% endfor
</%def>

## Whether NaN is looked for apart: the larger of two numbers is one instruction.
<%def name="is_extreme(total)" buffered="True" filter="trim">
${"1" if pattern == "rows" and total.operation in ("maximum", "minimum") and total.acc_dtype in ("float32",
    "float64") else ""}
</%def>

<%def name="before_elements(row_pass, used)">
% if reduced_dims > 1:
        long inner_before = 0;
        long number = 0${"".join(f", p_{arrays[a].name} = 0" for a in used)};
% endif
% for a, array in enumerate(arrays):
% if pattern == "columns" and array.access == "unit" and array.name in [f"y{o}" for o, _ in row_pass.writes]:
<% size = np.dtype(array.dtype).itemsize %>
        const int non_temporal_${array.name} = offset.non_temporal
            && (width >= ${SHORT // size} || (width | g.reduced_step[${a}][0]) * ${size} % ${lanes * size} == 0);
% endif
% endfor
% for total in row_pass.totals:
% if is_extreme(total):
        ${total.accumulator}_a${lanes} nan${total.value} = 0;
% endif
% endfor
</%def>

<%def name="after_elements(row_pass)">
% for total in row_pass.totals:
% if is_extreme(total):
        sum${total.value} = nan${total.value} != nan${total.value} ? nan${total.value} : sum${total.value};
% endif
% endfor
</%def>
