## Algorithm   x[positions] += y, in place, for GPUs, where few positions are added to. _add: a work-item adds values,
##             each a step of the work-group apart, to a sum of its own for each position, in local memory; those of a
##             work-group are added up in order. _finish: the sums of all chunks of values are added up, and to what was
##             there: in x, or in another array whose elements are old_step apart, where all elements are written.
## Operands    positions[count] in units of `unit` elements of x, below `span`, -1 where nothing is added, or
##             (index_type) an index of one axis, whose elements are i_step apart; y: values of positions are y_count
##             apart, y_outer after `inner`; shape, x, y: the elements that one position means.
## NDRange     _add: (chunks * group, tiles of positions, tiles of elements); work-items of a group are neighbouring
##             elements, and then other values. _finish: (any number of groups), each has `width` sums at a time.
## Workspace   parts[chunks][span][elements].
## Invariants  No atomics: the order of additions is fixed. A work-item reads and writes its own sums until the barrier.
<%page args="name, plan, ctype, combine, nothing, ndim, index, group, rows, columns, finishing, width,
             index_type, is_checked"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%namespace name="bounds" file="/common/bounds.mako"/>\
<%namespace name="runs" file="/indexing/value_runs.mako"/>\
<% slots, ahead = group // columns, 8 %>\
${plan.c_typedef(f"{name}_plan")}

<%def name="place(array)">
    {
        ${index} rest = e;
        ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]", [array])}
    }
</%def>\
__attribute__((reqd_work_group_size(${group}, 1, 1)))
__kernel void ${name}_add(__global const ${index_type or index} *restrict positions,
    __global const ${ctype} *restrict y,
    __global ${ctype} *restrict parts, const long y_at, const ${name}_plan p${"," if index_type else ")"}
    % if index_type:
    const long i_at, volatile __global int *error_flag, const int error_code)
    % endif
{
    __local ${ctype} sums[${rows * group}];
    const int item = get_local_id(0);
    const int slot = item / ${columns};
    const ${index} e = get_group_id(2) * ${columns} + item % ${columns};
    const ${index} low = get_group_id(1) * ${rows};
    const int filled = min((${index})${rows}, p.span - low);
    const ${index} start = get_group_id(0) * p.chunk;
    const ${index} end = min(p.count, start + p.chunk);
    ${index} from = 0;
    ${place(("from", "p.y[{}]"))}
    y += y_at + (e < p.elements ? from : 0);
    % if index_type:
    positions += i_at;
    % endif
    for (int r = 0; r < filled; ++r)
        sums[r * ${group} + item] = ${nothing};
    for (${index} k = start + slot; k < end; k += ${ahead * slots}) {
        // several values are read before the first is added
        % for j in range(ahead):
        % if index_type:
        ${index} at${j} = -1;
        if (k + ${j * slots} < end) {
            ${bounds.decode("at", index_type, f"positions[(k + {j * slots}) * p.i_step]", "p.length", is_checked,
                "(int)p.axis", "-1")}
            at${j} = (${index})at - low;
        }
        % else:
        const ${index} at${j} = k + ${j * slots} < end ? positions[k + ${j * slots}] - low : -1;
        % endif
        % endfor
        % for j in range(ahead):
        const int has${j} = at${j} >= 0 && at${j} < filled && e < p.elements;
        const ${ctype} value${j} = has${j} ? y[${runs.at(f"k + {j * slots}")}] : (${ctype})${nothing};
        % endfor
        % for j in range(ahead):
        if (has${j})
            sums[at${j} * ${group} + item] = ${combine.format(a=f"sums[at{j} * {group} + item]", b=f"value{j}")};
        % endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    parts += get_group_id(0) * (size_t)(p.span * p.elements);
    for (int n = item; n < filled * ${columns}; n += ${group}) {
        const int r = n / ${columns};
        const int c = n % ${columns};
        const ${index} to = get_group_id(2) * ${columns} + c;
        ${ctype} sum = ${nothing};
        for (int s = 0; s < ${slots}; ++s) {  // neighbours begin in other banks of local memory
            const ${ctype} own = sums[r * ${group} + (s + r) % ${slots} * ${columns} + c];
            sum = ${combine.format(a="sum", b="own")};
        }
        if (to < p.elements)
            parts[(low + r) * p.elements + to] = sum;
    }
}

__attribute__((reqd_work_group_size(${finishing}, 1, 1)))
__kernel void ${name}_finish(__global const ${ctype} *restrict parts, __global ${ctype} *x, const long x_at,
    __global const ${ctype} *old, const long old_at, const int old_step, const ${name}_plan p)
{
    __local ${ctype} sums[${finishing}];
    const int item = get_local_id(0);
    const ${index} size = p.span * p.elements;
    x += x_at;
    old += old_at;
    for (${index} first = get_group_id(0) * ${width}; first < size; first += get_num_groups(0) * ${width}) {
        const ${index} n = first + item % ${width};
        ${ctype} sum = ${nothing};
        for (int k = item / ${width}; k < p.parts && n < size; k += ${finishing // width}) {
            const ${ctype} part = parts[(size_t)k * size + n];
            sum = ${combine.format(a="sum", b="part")};
        }
        sums[item] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int distance = ${finishing // 2}; distance >= ${width}; distance /= 2) {
            if (item < distance)
                sums[item] = ${combine.format(a="sums[item]", b="sums[item + distance]")};
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (item < ${width} && n < size) {
            const ${index} e = n % p.elements;
            ${index} to = n / p.elements * p.unit;
            ${place(("to", "p.x[{}]"))}
            x[to] = ${combine.format(a="old[to * old_step]", b="sums[item]")};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
