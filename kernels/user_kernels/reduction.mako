## Algorithm   A reduction that a user wrote. A work-group reduces a chunk of the elements of one result: each work-item
##             takes every so many of them, and a tree combines what they have. Several chunks of a result leave partial
##             results, which the stage "final" combines.
## Operands    `arguments`: as in indexed.mako, without outputs that are raw. `functions`: names of the C functions map,
##             reduce and post; `kind`: C type of what is reduced.
## Variants    `strands`: values that a work-item of schedule cpu has at a time; `is_unit`: arrays are contiguous along
##             the only dimension that is reduced.
## NDRange     cpu: (work-items), each with a contiguous range of the chunks; simt: (groups * GROUP), with a loop.
## Invariants  No identity enters the sum: a work-item begins with an element; of no element the result is that of the
##             identity. Barriers are
##             uniform: all work-items of a group take the same chunks.
<%page args="name, plan, offsets, arguments, functions, call, kind, stage, identity, has_initial,
             initial_type, group, strands, dims, is_unit, index, plan_in_buffer"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%include file="/common/partition.mako"/>\
<%
outer_dims, inner_dims = dims
places = [variable for variable, _, sort, _ in arguments if sort != "value"]
arrays = [variable for variable, _, sort, _ in arguments if sort == "array" and variable[0] == "i"]
type_of = {variable: c_type for variable, c_type, _, _ in arguments}
strides = [(f"at_{v}", f"p.{{part}}_stride[{a}][{{d}}]") for a, v in enumerate([*arrays, "element"])]
def offsets_in(part):
    return [(name_, text.replace("{part}", part).replace("{d}", "{}")) for name_, text in strides]
%>\
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(
% for variable, c_type, sort, _ in arguments:
    % if sort == "value":
    const ${c_type} ${variable},
    % else:
    __global ${"const " if variable[0] == "i" else ""}${c_type} *b_${variable},
    % endif
% endfor
    __global ${kind} *partials,
% if has_initial:
    const ${initial_type} initial,
% endif
    const ${name}_offsets offset,
    ${"__global " if plan_in_buffer else ""}const ${name}_plan ${"*plan" if plan_in_buffer else "p"})
{
% if plan_in_buffer:
    const ${name}_plan p = *plan;
% endif
% for place, variable in enumerate(places):
    b_${variable} += offset.at[${place}];
% endfor
    const long elements = p.inner_elements;
% for variable, _, sort, ndim in arguments:
    % if sort == "raw":
    const long size_${variable} = p.size_${variable};
    const long shape_${variable}[${max(ndim, 1)}] = {${", ".join(f"p.shape_{variable}[{d}]" for d in range(max(ndim, 1)))}};
    % endif
% endfor
% if group > 1:
    __local ${kind} scratch[${group}];
    const int item = get_local_id(0);
    for (long task = get_group_id(0); task < p.tasks; task += get_num_groups(0)) {
% else:
    const int item = 0;
    const long end_task = partition_begin(p.tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(p.tasks, 1, get_global_id(0), get_global_size(0)); task < end_task; ++task) {
% endif
        const long row = task / p.chunks;
        const long begin = (task - row * p.chunks) * p.chunk;
        const long end = min(begin + p.chunk, ${"p.partials" if stage == "final" else "elements"});
        ${kind} sum;
        % if stage != "final":
        % for variable in (*arrays, "element"):
        ${index} row_${variable} = 0;
        % endfor
        {
            ${index} rest = row;
            ${unravel.unravel(range(outer_dims), index, "rest", "p.outer_shape[{}]",
                [(f"row_{n[3:]}", s) for n, s in offsets_in("outer")])}
        }
        % endif
        % if strands > 1:
        /* Values that do not wait for one another. */
        ${kind} strand[${strands}];
        const int used = min(end - begin, (long)${strands});
        for (int q = 0; q < used; ++q) {
            const long k = begin + q;
            ${value()}
            strand[q] = next;
        }
        long done = begin + ${strands};
        for (; done + ${strands} <= end; done += ${strands}) {
            for (int q = 0; q < ${strands}; ++q) {
                const long k = done + q;
                ${value()}
                ${functions["reduce"]}(strand[q], next, &strand[q]);
            }
        }
        for (long k = done; k < end; ++k) {
            ${value()}
            ${functions["reduce"]}(strand[k - done], next, &strand[k - done]);
        }
        sum = strand[0];
        for (int q = 1; q < used; ++q)
            ${functions["reduce"]}(sum, strand[q], &sum);
        % else:
        for (long k = begin + item; k < end; k += ${group}) {
            ${value()}
            if (k == begin + item)
                sum = next;
            else
                ${functions["reduce"]}(sum, next, &sum);
        }
        % endif
        % if group > 1:
        const int active = min(end - begin, (long)${group});
        if (item < active)
            scratch[item] = sum;
        <%workgroup:tree_reduce group="${group // 2}">
            if (item + distance < active) {
                ${kind} combined;
                ${functions["reduce"]}(scratch[item], scratch[item + distance], &combined);
                scratch[item] = combined;
            }
        </%workgroup:tree_reduce>
        sum = scratch[0];
        % endif
        if (item == 0) {
            % if stage == "first":
            partials[task] = sum;
            % else:
            % if has_initial:
            if (elements)
                ${functions["reduce"]}((${kind})initial, sum, &sum);
            else
                sum = (${kind})initial;
            % elif identity is not None:
            if (!elements)
                sum = ${identity};
            % endif
            ${functions["post"]}
            long at_result = 0;
            {
                long rest = row;
                ${unravel.unravel(range(outer_dims), "long", "rest", "p.outer_shape[{}]",
                    [("at_result", "p.result_stride[{}]")])}
            }
            b_o0[at_result] = o0;
            % endif
        }
        % if group > 1:
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
    }
}
<%def name="value()">
            ${kind} next;
            % if stage == "final":
            next = partials[row * p.partials + k];
            % else:
            % for variable in (*arrays, "element"):
            ${index} at_${variable} = row_${variable}${" + k" if is_unit and variable != "element" else ""};
            % endfor
            {
                ${index} rest = k;
                ${unravel.unravel(range(inner_dims), index, "rest", "p.inner_shape[{}]",
                    offsets_in("inner")[len(arrays) if is_unit else 0:])}
            }
            % for variable in arrays:
            const ${type_of[variable]} ${variable} = b_${variable}[at_${variable}];
            % endfor
            {
                const long element = at_element;
                ${call}
            }
            % endif
</%def>\
