## Algorithm   Fused element functions and reductions along the same axes, for GPUs: see kernels/rowwise/cpu.mako, also
##             for `stage`. The work-items of a row combine their accumulators in local memory after each pass.
## Operands    As in kernels/rowwise/cpu.mako.
## Tiling      A work-group has rows_per_group rows with threads_per_row work-items each. Neighbouring work-items take
##             neighbouring elements: along the row (lane_stride 1) or across rows (row_stride 1).
## NDRange     (groups * group, chunks): dimension 0 covers the rows, dimension 1 the chunks of a row.
## Workspace   `group` accumulators in local memory for each kind of reduction; partials as in kernels/rowwise/cpu.mako.
## Invariants  Barriers are uniform: work-items without a row execute them too.
<%page args="name, geometry, group, arrays, values, passes, stage, row_values, row_qualifier, spills, totals, tables,
             tables_struct, index, outer_dims, reduced_dims"/>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
${parts.declarations()}

## The work-items of a row put together what each has of a reduction.
<%def name="workgroup_reduce(total)">
<% sum, local, combine = f"sum{total.value}", f"local_{total.accumulator}", f"{total.accumulator}_combine1" %>
        barrier(CLK_LOCAL_MEM_FENCE);  // what was here before has been read
        ${local}[item] = ${sum};
        // the same for the whole group, so the barriers are uniform
        for (int distance = g.threads_per_row / 2; distance > 0; distance /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (lane < distance)
                ${local}[item] = ${combine}(${local}[item], ${local}[item + distance * g.lane_stride]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ${sum} = ${local}[item - lane * g.lane_stride];
</%def>

## Elements of a row; the loads of several are in flight at once, if there is not much else to do.
<%def name="elements(row_pass)">
        ${index} at = first + lane;
        % for count in dict.fromkeys((row_pass.unroll, 1)):
        for (; last - at > ${count - 1} * g.threads_per_row; at += ${count} * g.threads_per_row) {
            % for q in range(count):
            ${read(row_pass, q)}
            % endfor
            % for q in range(count):
            ${compute(row_pass, q)}
            % endfor
        }
        % endfor
</%def>

<%def name="read(row_pass, q)">
<% array_numbers = {array.name: a for a, array in enumerate(arrays)} %>
            % for v in row_pass.reads:
            ${ctype(arrays[array_numbers[f"x{v}"]].dtype)} v${v}_${q};
            % endfor
            {
                ${parts.run_pointers([array_numbers[f"x{v}"] for v in row_pass.reads], f"at + {q} * g.threads_per_row",
                    unrolled=True)}
                ${" ".join(f"v{v}_{q} = x{v}[p_x{v}];" for v in row_pass.reads)}
            }
</%def>

<%def name="compute(row_pass, q)">
<% array_numbers = {array.name: a for a, array in enumerate(arrays)} %>
            {
                % for v in row_pass.reads:
                const ${ctype(arrays[array_numbers[f"x{v}"]].dtype)} v${v} = v${v}_${q};
                % endfor
                ${row_pass.code}
                % for total in row_pass.totals:
                sum${total.value} =
                    ${total.accumulator}_combine1(sum${total.value}, ${parts.lift(total, total.source, 1)});
                % endfor
                % if row_pass.writes:
                ${parts.run_pointers([array_numbers[f"y{o}"] for o, _ in row_pass.writes],
                    f"at + {q} * g.threads_per_row",
                    unrolled=True)}
                if (exists) { ${" ".join(f"y{o}[p_y{o}] = {value};" for o, value in row_pass.writes)} }
                % endif
            }
</%def>

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(${parts.parameters()})
{
    % for accumulator in dict.fromkeys(total.accumulator for total in totals):
    __local ${accumulator}_a1 local_${accumulator}[${group}];
    % endfor
    % for total in totals:
    ${total.accumulator}_a1 sum${total.value};
    % endfor
    const ${index} item = get_local_id(0);
    const ${index} rows_per_group = ${group} / g.threads_per_row;
    const ${index} lane = item / g.lane_stride % g.threads_per_row;
    const ${index} row_slot = item / g.row_stride % rows_per_group;
    const ${index} row_index = (${index})get_group_id(0) * rows_per_group + row_slot;
    const ${index} chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk;
    const ${index} last = min(g.total, first + g.chunk);
    const int exists = row_index < g.blocks;
    ${index} rest = exists ? row_index : 0;
    ${parts.declare_offsets()}
    ${parts.row_offsets(unrolled=True)}
    % for v, dtype in row_values:
    ${row_qualifier}${ctype(dtype)} r${v};
    % endfor
    % for array in arrays:
    % if array.kind == "row" and not array.is_output:
    r${array.value} = ${array.name}[at_${array.name}];
    % endif
    % endfor
    % for s, row_pass in enumerate(passes[:len(passes) if stage is None else stage + 1]):
    {   // Loop ${s}
        % for total in row_pass.results:
        r${total.value} = ${parts.result(total, f"sum{total.value}", 1)};
        % endfor
        ${row_pass.row_code}
        % for total in row_pass.totals:
        sum${total.value} = ${total.accumulator}_identity1();
        % endfor
        % if stage is not None and s < stage:
        for (${index} part = lane; part < g.parts; part += g.threads_per_row) {
            % for total in row_pass.totals:
            sum${total.value} =
                ${total.accumulator}_combine1(sum${total.value},
                    ${total.accumulator}_load1(${parts.partial(total)} + part * g.partial_slots
                        + (exists ? row_index : 0), 1,
                        g.parts * g.partial_slots));
            % endfor
        }
        % elif not row_pass.is_empty:
        ${elements(row_pass)}
        % endif
        % for total in row_pass.totals:
        ${workgroup_reduce(total)}
        % endfor
        % if s == stage:
        % for total in row_pass.totals:
        if (exists && lane == 0)
            ${total.accumulator}_store1(sum${total.value},
                ${parts.partial(total)} + chunk * g.partial_slots + row_index, 1,
                g.parts * g.partial_slots);
        % endfor
        % endif
    }
    % endfor
    % if stage in (None, len(passes) - 1):
    if (exists && lane == 0 && chunk == 0) {
        % for array in arrays:
        % if array.kind == "row" and array.is_output:
        ${array.name}[at_${array.name}] = r${array.value};
        % endif
        % endfor
    }
    % endif
}
