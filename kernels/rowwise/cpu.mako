## Functions of rows on schedule cpu: each work-item takes a run of tasks. A task is a row (pattern rows: vectors along it) or a
## strip of rows (pattern columns: vectors across them), or a chunk of either. Without `stage`, a kernel does all loops of a
## task, so that the row is in the cache from the second on. With it, it does that loop, and leaves its reductions to the next.
<%page args="name, pattern, lanes, strip, is_narrow, tile, picks, arrays, values, loops, stage, row_values, keeps, totals, tables, index, kept_dims, reduced_dims"/>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%namespace name="access" file="/rowwise/access.mako"/>
<%namespace name="along" file="/rowwise/vector_access.mako"/>
<%namespace name="block" file="/rowwise/block.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type
%>
<%
    across = pattern == "columns"
    row_lanes = lanes if across else 1
    every, at_k, size = access.each_vector(), access.subscript(), f"[{strip}]" if across and strip > 1 else ""
%>
${parts.declarations()}${block.declarations()}
${access.vector_types()}

## What is done with a vector of elements.
<%def name="vector(walk, numbers)">
                % for v in walk.reads:
                const ${vector_type(arrays[numbers[f"x{v}"]].dtype, lanes)} v${v} = ${access.load(numbers[f"x{v}"])};
                % endfor
                % for v, dtype in (keep for keep in keeps if keep[0] in walk.recalls):
                const ${vector_type(dtype, lanes)} v${v} = *(__global const ${name}_${ctype(dtype)} *)(z${v} + kept);
                % endfor
                ${walk.code}
                % for v, dtype in (keep for keep in keeps if keep[0] in walk.keeps):
                *(__global ${name}_${ctype(dtype)} *)(z${v} + kept) = v${v};
                % endfor
                % for total in walk.totals:
                ${access.accumulate(total)}
                % endfor
                % for o, value in walk.writes:
                ${access.store(numbers[f"y{o}"], value)}
                % endfor
</%def>

<%def name="elements(walk)">
<% numbers = {array.name: a for a, array in enumerate(arrays)} %>
<% used = [numbers[f"x{v}"] for v in walk.reads] + [numbers[f"y{o}"] for o, _ in walk.writes] %>
        {
        ${along.before_elements(walk, used)}
        for (long at = first; at < last;) {
            ${along.next_run(used, used if pattern == "rows" else [])}
            const long n = min(g.reduced[0] - inner, last - at);
            % if pattern == "columns":
            for (long i = 0; i < n; ++i)
            ${access.each_vector()} {
                ${access.lanes_of_vector(is_narrow)}
                const long kept = (at + i) * g.width + c;
                ${vector(walk, numbers)}
            }
            % else:
            <%along:vectors walk="${walk}">${vector(walk, numbers)}</%along:vectors>
            % endif
            at += n;
        }
        ${along.after_elements(walk)}
        }
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(${parts.parameters()}${block.parameters()})
{
    scratch += get_global_id(0) * g.scratch;
    % for number, (v, dtype) in enumerate(keeps):
    __global ${ctype(dtype)} *z${v} = (__global ${ctype(dtype)} *)(scratch + g.keep_at[${number}]);
    % endfor
    const long tasks = g.blocks * g.chunks, end = tasks * (get_global_id(0) + 1) / get_global_size(0);
    long column = g.kept[0];
    ${parts.declare_offsets()}
    for (long task = tasks * get_global_id(0) / get_global_size(0); task < end; ++task) {
        % if stage is None:
        const long chunk = 0, block = task;
        % else:
        const long chunk = task / g.blocks, block = task % g.blocks;
        % endif
        const long first = chunk * g.chunk, last = min(g.total, first + g.chunk);
        ${along.next_row()}
        % if across:
        const int width = min(g.width, g.kept[0] - column), vectors = (width + ${lanes - 1}) / ${lanes};
        % endif
        % for v, dtype in row_values:
        ${vector_type(dtype, row_lanes)} r${v}${size};
        % endfor
        % for total in totals:
        ${total.accumulator}_a${lanes} sum${total.value}${size};
        ${"" if across else f"{total.accumulator}_a1 all{total.value};"}
        % endfor
        ${every} {
            ${access.lanes_of_vector()}
            % for a, array in enumerate(arrays):
            % if array.kind == "row" and not array.is_output:
            r${array.value}${at_k} = ${access.load(a) if across else f"*({access.place(a)})"};
            % endif
            % endfor
        }
        ${block.turn()}
        % for s, walk in enumerate(loops[:len(loops) if stage is None else stage + 1]):
        // Loop ${s}
        ${every} {
            % for total in walk.results:
            r${total.value}${at_k} = ${parts.result(total, f"sum{total.value}{at_k}" if across else f"all{total.value}", row_lanes)};
            % endfor
            ${walk.row_code}
            % for total in walk.totals:
            sum${total.value}${at_k} = ${total.accumulator}_identity${lanes}();
            % endfor
        }
        % if stage in (None, s):
        % if not walk.is_empty:
        ${elements(walk)}
        % endif
        % for total in [] if across else walk.totals:
        all${total.value} = ${total.accumulator}_fold${lanes}(sum${total.value});
        % endfor
        % endif
        % if stage is not None:
        ${every} {
            ${access.lanes_of_vector()}
            const long slot = block * g.width + c, plane = g.parts * g.slots;
            % for total in walk.totals:
            <% sum = f"sum{total.value}{at_k}" if across else f"all{total.value}" %>
            % if s == stage:
            ${total.accumulator}_store${row_lanes}(${sum}, ${parts.partial(total)} + chunk * g.slots + slot, 1, plane);
            % else:
            ${sum} = ${total.accumulator}_identity${row_lanes}();
            for (long part = 0; part < g.parts; ++part)
                ${sum} = ${total.accumulator}_combine${row_lanes}(${sum}, ${total.accumulator}_load${row_lanes}(${parts.partial(total)} + part * g.slots + slot, 1, plane));
            % endif
            % endfor
        }
        % endif
        % endfor
        % if stage in (None, len(loops) - 1):
        if (chunk == 0)
        ${every} {
            ${access.lanes_of_vector()}
            % for a, array in enumerate(arrays):
            % if array.kind == "row" and array.is_output:
            ${access.store(a, f"r{array.value}{at_k}") if across else f"*({access.place(a)}) = r{array.value};"}
            % endif
            % endfor
        }
        % endif
        ${block.turn_back()}
    }
}
