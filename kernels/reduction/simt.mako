## Algorithm   Reduction for GPUs. The work-items of an output each reduce a part of the range, in blocks of BLOCK
##             elements; a tree in local memory combines them.
## Operands    As in kernels/reduction/cpu.mako.
## Tiling      A work-group has outputs_per_group outputs with threads_per_output work-items each. Neighbouring
##             work-items read neighbouring elements: along the reduced dimension (lane_stride 1) or across outputs
##             (output_stride 1).
## NDRange     (groups * group, chunks): dimension 0 covers the outputs, dimension 1 the chunks of the reduced range.
## Workspace   `group` accumulators in local memory; partial results as in kernels/reduction/cpu.mako.
## Invariants  The loop of the tree is the same for the whole group: its barriers are uniform.
<%page args="name, geometry, unit, in_dtype, acc_dtype, out_dtype, combine, identity, compensation, pair_in, pair_out,
             index, outer_dims, reduced_dims, group"/>
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%namespace name="traversal" file="/reduction/traversal.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype

    BLOCK = 64  # elements whose sum is added as one: long sums of floats stay accurate
    UNROLL = 4  # loads
%>
${geometry.c_typedef(f"{name}_geometry")}
${shared.accumulator(1)}
<% acc, combined = f"{name}_a1", f"{name}_combine1" %>
// Where element `rest` of the reduced range is, in C order of the reduced dimensions.
static ${index} ${name}_at(const ${name}_geometry *g, ${index} rest)
{
    ${traversal.reduced_offset()}
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${ctype(in_dtype)} *restrict input, const long input_at,
    __global ${ctype(out_dtype)} *restrict output, const long output_at, const ${name}_geometry g)
{
    __local ${acc} scratch[${group}];
    ${traversal.simt_task()}
    input += input_at;
    output += output_at;
    ${acc} total = ${name}_identity1();
    for (${index} i = first + lane; i < last;) {
        const ${index} stop = min(last, i + ${BLOCK} * g.threads_per_output);
        ${acc} part = ${name}_identity1();
        // loads in flight at once
        for (; stop - i > ${UNROLL - 1} * g.threads_per_output; i += ${UNROLL} * g.threads_per_output) {
            % for q in range(UNROLL):
            const ${acc} e${q} =
                ${name}_load1(input + in + ${name}_at(&g, i + ${q} * g.threads_per_output), 1, g.error_stride);
            % endfor
            % for q in range(UNROLL):
            part = ${combined}(part, e${q});
            % endfor
        }
        for (; i < stop; i += g.threads_per_output)
            part = ${combined}(part, ${name}_load1(input + in + ${name}_at(&g, i), 1, g.error_stride));
        total = ${combined}(total, part);
    }
    scratch[item] = total;
    // the same for the whole group, so the barriers are uniform
    for (int distance = g.threads_per_output / 2; distance > 0; distance /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < distance)
            scratch[item] = ${combined}(scratch[item], scratch[item + distance * g.lane_stride]);
    }
    if (lane == 0 && output_index < g.outputs)
        ${name}_store1(scratch[item], output + out, 1, g.error_stride);
}
