## Algorithm   Fused element functions and reductions along the same axes, for CPUs. A row takes one pass for each
##             reduction that others wait for. Without `stage` one kernel does all passes of a task: from the second
##             pass on the row is in the cache. With `stage` it does that pass, and leaves its partial results to the
##             next.
## Operands    Arrays x<k>, y<k>. A "full" array has every element, a "row" array one element for each row, a value is a
##             kernel argument. outer_step and reduced_step are the steps of each array, in elements, across and along
##             rows; dimensions from the innermost outwards.
## Tiling      Pattern "rows": vectors along a row. Pattern "columns": vectors across rows, tile_vectors of them in a
##             column tile, or blocks of short rows that are transposed in registers (`tile` columns).
## NDRange     (work-items): each takes a contiguous range of the tasks; a task is a row, a column tile or a chunk of
##             one.
## Workspace   scratch: `spills`, values that a later pass reloads; partials: of `parts` chunks, for each reduction.
## Invariants  No address outside an array is read. Results depend on the layout and the device only.
## Reference   Values are spilled or recomputed by cost, as in P. Briggs, K. D. Cooper, L. Torczon, Rematerialization,
##             PLDI 1992.
<%page args="name, geometry, pattern, lanes, tile_vectors, is_narrow, tile, gathers, gathers_struct, arrays, values,
             passes, stage, row_values, spills, totals, tables, tables_struct, index, outer_dims, reduced_dims"/>
<%include file="/common/partition.mako"/>\
<%namespace name="parts" file="/rowwise/common.mako"/>
<%namespace name="partials" file="/common/partials.mako"/>
<%namespace name="access" file="/rowwise/access.mako"/>
<%namespace name="along" file="/rowwise/vector_access.mako"/>
<%namespace name="block" file="/rowwise/block.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type
%>
<%
    across = pattern == "columns"
    row_lanes = lanes if across else 1
    every, at_k, size = (
        access.each_vector(),
        access.subscript(),
        f"[{tile_vectors}]" if across and tile_vectors > 1 else "",
    )
%>
${parts.declarations()}${block.declarations(name, gathers, gathers_struct)}
${access.vector_types()}

## The work on a vector of elements.
<%def name="vector(row_pass, numbers)">
                % for v in row_pass.reads:
                const ${vector_type(arrays[numbers[f"x{v}"]].dtype, lanes)} v${v} = ${access.load(numbers[f"x{v}"])};
                % endfor
                % for v, dtype in (spill for spill in spills if spill[0] in row_pass.reloads):
                const ${vector_type(dtype, lanes)} v${v} =
                    *(__global const ${name}_${ctype(dtype)} *)(z${v} + spill_index);
                % endfor
                ${row_pass.code}
                % for v, dtype in (spill for spill in spills if spill[0] in row_pass.spills):
                *(__global ${name}_${ctype(dtype)} *)(z${v} + spill_index) = v${v};
                % endfor
                % for total in row_pass.totals:
                ${access.accumulate(total)}
                % endfor
                % for o, value in row_pass.writes:
                ${access.store(numbers[f"y{o}"], value)}
                % endfor
</%def>

<%def name="elements(row_pass)">
<% numbers = {array.name: a for a, array in enumerate(arrays)} %>
<% used = [numbers[f"x{v}"] for v in row_pass.reads] + [numbers[f"y{o}"] for o, _ in row_pass.writes] %>
        {
        ${along.before_elements(row_pass, used)}
        for (long at = first; at < last;) {
            ${along.next_run(used, used if pattern == "rows" else [])}
            const long n = min(g.reduced[0] - inner, last - at);
            % if pattern == "columns":
            for (long i = 0; i < n; ++i)
            ${access.each_vector()} {
                ${access.lanes_of_vector(is_narrow)}
                const long spill_index = (at + i) * g.width + c;
                ${vector(row_pass, numbers)}
            }
            % else:
            <%along:vectors row_pass="${row_pass}">${vector(row_pass, numbers)}</%along:vectors>
            % endif
            at += n;
        }
        ${along.after_elements(row_pass)}
        }
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(${parts.parameters()}${block.parameters(name, gathers)}${parts.error_parameters(tables or gathers)})
{
    scratch += get_global_id(0) * g.scratch;
    % for number, (v, dtype) in enumerate(spills):
    __global ${ctype(dtype)} *z${v} = (__global ${ctype(dtype)} *)(scratch + g.spill_at[${number}]);
    % endfor
    const long tasks = g.blocks * g.chunks;
    const long end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    long column = g.outer[0];
    ${parts.declare_offsets()}
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < end; ++task) {
        % if stage is None:
        const long chunk = 0;
        const long block = task;
        % else:
        const long chunk = task / g.blocks;
        const long block = task % g.blocks;
        % endif
        const long first = chunk * g.chunk;
        const long last = min(g.total, first + g.chunk);
        ${along.next_row()}
        % if across:
        const int width = min(g.width, g.outer[0] - column);
        const int vectors = (width + ${lanes - 1}) / ${lanes};
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
        ${block.transpose_load(arrays, gathers, pattern, lanes, tile)}
        % for s, row_pass in enumerate(passes[:len(passes) if stage is None else stage + 1]):
        // Loop ${s}
        ${every} {
            % for total in row_pass.results:
            r${total.value}${at_k} =
                ${parts.result(total, f"sum{total.value}{at_k}" if across else f"all{total.value}", row_lanes)};
            % endfor
            ${row_pass.row_code}
            % for total in row_pass.totals:
            sum${total.value}${at_k} = ${total.accumulator}_identity${lanes}();
            % endfor
        }
        % if stage in (None, s):
        % if not row_pass.is_empty:
        ${elements(row_pass)}
        % endif
        % for total in [] if across else row_pass.totals:
        all${total.value} = ${total.accumulator}_horizontal_reduce${lanes}(sum${total.value});
        % endfor
        % endif
        % if stage is not None:
        ${every} {
            ${access.lanes_of_vector()}
            const long row_slot = block * g.width + c;
            const long error_stride = g.parts * g.partial_slots;
            % for total in row_pass.totals:
            <% sum = f"sum{total.value}{at_k}" if across else f"all{total.value}" %>
            % if s == stage:
            ${total.accumulator}_store${row_lanes}(${sum},
                ${parts.partial(total)} + chunk * g.partial_slots + row_slot, 1, error_stride);
            % else:
            ${sum} = ${total.accumulator}_identity${row_lanes}();
            <%
                place = f"{parts.partial(total)} + part * g.partial_slots + row_slot"
                load = f"{total.accumulator}_load{row_lanes}({place}, 1, error_stride)"
                combine = f"{total.accumulator}_combine{row_lanes}"
            %>
            ${partials.combine(sum, "g.parts", load, combine + "({total}, {partial})")}
            % endif
            % endfor
        }
        % endif
        % endfor
        % if stage in (None, len(passes) - 1):
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
        ${block.transpose_store(arrays, lanes, tile)}
    }
}
