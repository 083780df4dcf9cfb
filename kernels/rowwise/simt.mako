## Algorithm   Fused element functions and reductions along the same axes, for GPUs: see kernels/rowwise/cpu.mako, also
##             for `stage`. The work-items of a row put their accumulators together after each pass. Each keeps `held`
##             elements of a row in registers from pass to pass (kernels/rowwise/held.mako), or reads them again (0).
## Operands    As in kernels/rowwise/cpu.mako.
## Tiling      A work-group has several rows with `threads` work-items each. Neighbouring work-items take neighbouring
##             elements, or vectors of `load_lanes`: along the row (`along`) or across rows.
## NDRange     (groups * group, chunks): dimension 0 covers the rows, dimension 1 the chunks of a row.
## Workspace   accumulators of each kind of reduction in local memory (kernels/common/workgroup.mako); partials as in
##             kernels/rowwise/cpu.mako.
## Invariants  Barriers are uniform: work-items without a row execute them too.
<%page args="name, geometry, group, arrays, values, passes, stage, row_values, row_qualifier, spills, totals, tables,
             tables_struct, index, outer_dims, reduced_dims, along, held, load_lanes"/>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%namespace name="registers" file="/rowwise/held.mako"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
${parts.declarations()}
% if held:
${registers.vector_types()}
% endif

## The work-items of a row put together what each has of a reduction; `number` counts the reductions of the kernel.
<%def name="combine_items(total, number)">
<%
    names = (".sum", ".error") if total.compensation else ("",)
    kind = f"{total.accumulator}_a1"
    scratch = f"local_{total.accumulator}"
%>
        ${workgroup.row_reduce(f"sum{total.value}", kind, [(n, total.acc_dtype) for n in names],
            total.accumulator + "_combine1({a}, {b})", group, scratch=scratch, along=along, phase=number,
            stride="1" if along else "slots")}
</%def>

## Elements of a row; the loads of several are in flight at once, if there is not much else to do.
<%def name="elements(row_pass)">
        ${index} at = first + lane;
        % for count in dict.fromkeys((row_pass.unroll, 1)):
        for (; last - at > ${count - 1} * threads; at += ${count} * threads) {
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
                ${parts.run_pointers([array_numbers[f"x{v}"] for v in row_pass.reads], f"at + {q} * threads",
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
                    f"at + {q} * threads",
                    unrolled=True)}
                if (exists) { ${" ".join(f"y{o}[p_y{o}] = {value};" for o, value in row_pass.writes)} }
                % endif
            }
</%def>

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(${parts.parameters("restrict ")}${parts.error_parameters(tables)})
{
    % for accumulator in dict.fromkeys(total.accumulator for total in totals):
    ${workgroup.row_scratch(f"{accumulator}_a1", f"local_{accumulator}", group)}
    % endfor
    % for total in totals:
    ${total.accumulator}_a1 sum${total.value};
    % endfor
    const ${index} item = get_local_id(0);
    const ${index} threads = g.threads_per_row;  // powers of two: dividing by a variable takes as long as a load
    const int shift = 31 - clz((int)threads);
    const ${index} slots = ${group} >> shift;
    % if along:
    const ${index} lane = item & (threads - 1);
    const ${index} slot = item >> shift;
    % else:
    const ${index} lane = item >> (31 - clz((int)slots));
    const ${index} slot = item & (slots - 1);
    % endif
    const ${index} row_index = (${index})get_group_id(0) * slots + slot;
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
    % if held:
    ${registers.declarations()}
    % endif
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
        for (${index} part = lane; part < g.parts; part += threads) {
            % for total in row_pass.totals:
            sum${total.value} =
                ${total.accumulator}_combine1(sum${total.value},
                    ${total.accumulator}_load1(${parts.partial(total)} + part * g.partial_slots
                        + (exists ? row_index : 0), 1,
                        g.parts * g.partial_slots));
            % endfor
        }
        % elif held and not row_pass.is_empty:
        ${registers.elements(row_pass, s)}
        % elif not row_pass.is_empty:
        ${elements(row_pass)}
        % endif
        % for total in row_pass.totals:
        ${combine_items(total, totals.index(total))}
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
