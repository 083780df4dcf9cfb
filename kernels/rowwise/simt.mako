## Functions of rows on schedule simt: a work-group holds `slots` rows with `threads` work-items each, which walk a row, or a
## chunk of it, together, and meet in local memory. Neighbouring work-items take neighbouring elements: along the row
## (thread_step 1) or across rows (slot_step 1). For `stage` see kernels/rowwise/cpu.mako.
<%page args="name, group, arrays, values, loops, stage, row_values, row_qualifier, keeps, totals, tables, index, kept_dims, reduced_dims"/>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
${parts.declarations()}

## The work-items of a row put together what each has of a reduction.
<%def name="meet(total)">
<% sum, local, combine = f"sum{total.value}", f"local_{total.accumulator}", f"{total.accumulator}_combine1" %>
        barrier(CLK_LOCAL_MEM_FENCE);  // what was here before has been read
        ${local}[item] = ${sum};
        for (int reach = g.threads / 2; reach > 0; reach /= 2) {  // the same for the whole group, so the barriers are uniform
            barrier(CLK_LOCAL_MEM_FENCE);
            if (thread < reach)
                ${local}[item] = ${combine}(${local}[item], ${local}[item + reach * g.thread_step]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ${sum} = ${local}[item - thread * g.thread_step];
</%def>

## Elements of a row; the loads of several are under way together, if there is not much else to do.
<%def name="elements(walk)">
        ${index} at = first + thread;
        % for count in dict.fromkeys((walk.unroll, 1)):
        for (; last - at > ${count - 1} * g.threads; at += ${count} * g.threads) {
            % for q in range(count):
            ${read(walk, q)}
            % endfor
            % for q in range(count):
            ${compute(walk, q)}
            % endfor
        }
        % endfor
</%def>

<%def name="read(walk, q)">
<% numbers = {array.name: a for a, array in enumerate(arrays)} %>
            % for v in walk.reads:
            ${ctype(arrays[numbers[f"x{v}"]].dtype)} v${v}_${q};
            % endfor
            {
                ${parts.run_pointers([numbers[f"x{v}"] for v in walk.reads], f"at + {q} * g.threads", unrolled=True)}
                ${" ".join(f"v{v}_{q} = x{v}[p_x{v}];" for v in walk.reads)}
            }
</%def>

<%def name="compute(walk, q)">
<% numbers = {array.name: a for a, array in enumerate(arrays)} %>
            {
                % for v in walk.reads:
                const ${ctype(arrays[numbers[f"x{v}"]].dtype)} v${v} = v${v}_${q};
                % endfor
                ${walk.code}
                % for total in walk.totals:
                sum${total.value} = ${total.accumulator}_combine1(sum${total.value}, ${parts.lift(total, total.source, 1)});
                % endfor
                % if walk.writes:
                ${parts.run_pointers([numbers[f"y{o}"] for o, _ in walk.writes], f"at + {q} * g.threads", unrolled=True)}
                if (exists) { ${" ".join(f"y{o}[p_y{o}] = {value};" for o, value in walk.writes)} }
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
    const ${index} item = get_local_id(0), slots = ${group} / g.threads;
    const ${index} thread = item / g.thread_step % g.threads, slot = item / g.slot_step % slots;
    const ${index} number = (${index})get_group_id(0) * slots + slot, chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk, last = min(g.total, first + g.chunk);
    const int exists = number < g.blocks;
    ${index} rest = exists ? number : 0;
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
    % for s, walk in enumerate(loops[:len(loops) if stage is None else stage + 1]):
    {   // Loop ${s}
        % for total in walk.results:
        r${total.value} = ${parts.result(total, f"sum{total.value}", 1)};
        % endfor
        ${walk.row_code}
        % for total in walk.totals:
        sum${total.value} = ${total.accumulator}_identity1();
        % endfor
        % if stage is not None and s < stage:
        for (${index} part = thread; part < g.parts; part += g.threads) {
            % for total in walk.totals:
            sum${total.value} = ${total.accumulator}_combine1(sum${total.value}, ${total.accumulator}_load1(${parts.partial(total)} + part * g.slots + (exists ? number : 0), 1, g.parts * g.slots));
            % endfor
        }
        % elif not walk.is_empty:
        ${elements(walk)}
        % endif
        % for total in walk.totals:
        ${meet(total)}
        % endfor
        % if s == stage:
        % for total in walk.totals:
        if (exists && thread == 0)
            ${total.accumulator}_store1(sum${total.value}, ${parts.partial(total)} + chunk * g.slots + number, 1, g.parts * g.slots);
        % endfor
        % endif
    }
    % endfor
    % if stage in (None, len(loops) - 1):
    if (exists && thread == 0 && chunk == 0) {
        % for array in arrays:
        % if array.kind == "row" and array.is_output:
        ${array.name}[at_${array.name}] = r${array.value};
        % endif
        % endfor
    }
    % endif
}
