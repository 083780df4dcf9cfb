## Algorithm   Reduction for GPUs. The work-items of an output each reduce a part of the range, in blocks of BLOCK
##             loads where sums are rounded; then they put their results together.
## Operands    As in kernels/reduction/cpu.mako. With `lanes` above 1 the reduced range is one contiguous dimension of
##             aligned vectors, and g.total and g.chunk count these.
## Tiling      A work-group has several outputs with `threads` work-items each. Neighbouring work-items read
##             neighbouring elements: along the reduced dimension (`along`) or across outputs.
##             With `joins` the work-group that is the last of the chunks of its outputs also adds up the partial
##             results: it knows by a counter for each group of outputs, which it sets to zero again. No work-group
##             waits for another one.
## NDRange     (groups * group, chunks): dimension 0 covers the outputs, dimension 1 the chunks of the reduced range.
## Workspace   accumulators in local memory (kernels/common/workgroup.mako); partial results as in
##             kernels/reduction/cpu.mako. With `joins`: partials[chunks][outputs], accumulators; counters[groups].
## Invariants  Barriers are uniform: work-items without an output reduce another one's elements. With `joins`: one
##             kernel of the context at a time uses the counters, which are zero before and after.
## Reference   `joins`: the sample threadFenceReduction of NVIDIA's CUDA toolkit.
<%page args="name, geometry, unit, in_dtype, acc_dtype, out_dtype, combine, identity, compensation, pair_in, pair_out,
             index, outer_dims, reduced_dims, group, along, is_run, lanes, load_alignment, joins"/>
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%namespace name="traversal" file="/reduction/traversal.mako"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, part

    BLOCK = 64  # loads whose sum is added as one: long sums of floats stay accurate
%>
<%
    acc, single = f"{name}_a{lanes}", f"{name}_a1"
    combined, load = f"{name}_combine{lanes}", f"{name}_load{lanes}"
    sizes = [n for n in (1, 2, 4) if n <= lanes]
    unroll = 4 if lanes > 1 else 8  # loads in flight at once
    in_blocks = part(acc_dtype) == "float32" and not compensation
    total = "part" if in_blocks else "total"
    fields = [(f".{field}", acc_dtype) for field in ("sum", "error")] if compensation else [("", acc_dtype)]
%>
${geometry.c_typedef(f"{name}_geometry")}
% for n in sizes:
${shared.accumulator(n)}
% endfor
% for n in sizes if lanes > 1 else ():
${shared.horizontal_reduce(n)}
% endfor
// Where element `rest` of the reduced range is, in C order of the reduced dimensions.
static ${index} ${name}_at(const ${name}_geometry *g, ${index} rest)
{
    ${traversal.reduced_offset(is_run)}
}

## An element, or vector, that exists.
<%def name="element(place)" buffered="True" filter="trim">
% if lanes > 1:
${load}(x + (${place}) * ${lanes}, 1, g.error_stride)
% else:
${load}(x + ${name}_at(&g, ${place}), 1, g.error_stride)
% endif
</%def>

## Several elements; past the end (guarded) the last one is read again, and left out, so that all loads are in flight.
<%def name="several(stop, guarded)">
            % for q in range(unroll):
            const ${index} i${q} = i + lane + ${q} * threads;
            const ${acc} e${q} = ${element(f"min(i{q}, last - 1)" if guarded else f"i{q}")};
            % endfor
            % for q in range(unroll):
            ${f"if (i{q} < {stop}) " if guarded else ""}${total} = ${combined}(${total}, e${q});
            % endfor
</%def>

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${ctype(in_dtype)} *restrict input, const long input_at,
    __global ${ctype(out_dtype)} *restrict output, const long output_at,
    % if joins:
    volatile __global ${single} *partials, volatile __global int *counters,
    % endif
    const ${name}_geometry g)
{
    ${workgroup.row_scratch(single, "scratch", group)}
    ${traversal.simt_task(along)}
    __global const ${ctype(in_dtype)} *const x = input + input_at + in;
    ${acc} total = ${name}_identity${lanes}();
    % if in_blocks:
    for (${index} i = first; i < last;) {
        const ${index} stop = min(last, i + ${BLOCK} * threads);
        ${acc} part = ${name}_identity${lanes}();
        ${loops("stop")}
        i = stop;
        total = ${combined}(total, part);
    }
    % else:
    ${index} i = first;
    ${loops("last")}
    % endif
    % if lanes > 1:
    ${single} result = ${name}_horizontal_reduce${lanes}(total);
    % else:
    ${single} result = total;
    % endif
    ${workgroup.row_reduce("result", single, fields, f"{name}_combine1({{a}}, {{b}})", group, along=along,
        stride="1" if along else "slots", everyone=False)}
    % if joins:
    __local int is_last;
    if (lane == 0 && output_index < g.outputs)
        partials[chunk * g.outputs + output_index] = result;
    device_fence();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item == 0)
        is_last = atomic_inc(counters + get_group_id(0)) == (int)get_num_groups(1) - 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!is_last)  // the same for the whole group
        return;
    device_fence();
    result = ${name}_identity1();
    if (output_index < g.outputs)
        for (${index} k = lane; k < (${index})get_num_groups(1); k += threads)
            result = ${name}_combine1(result, partials[k * g.outputs + output_index]);
    barrier(CLK_LOCAL_MEM_FENCE);
    ${workgroup.row_reduce("result", single, fields, f"{name}_combine1({{a}}, {{b}})", group, along=along,
        stride="1" if along else "slots", everyone=False)}
    if (lane == 0 && output_index < g.outputs)
        ${name}_store1(result, output + output_at + out - chunk * g.chunk_stride, 1, g.error_stride);
    if (item == 0)
        atomic_xchg(counters + get_group_id(0), 0);
    % else:
    if (lane == 0 && output_index < g.outputs)
        ${name}_store1(result, output + output_at + out, 1, g.error_stride);
    % endif
}

## The limits are the same for all work-items of an output.
<%def name="loops(stop)">
        for (; ${stop} - i >= ${unroll} * threads; i += ${unroll} * threads) {
            ${several(stop, guarded=False)}
        }
        if (i < ${stop}) {
            ${several(stop, guarded=True)}
        }
</%def>
