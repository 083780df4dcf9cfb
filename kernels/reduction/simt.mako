## Reduction on schedule simt: a work-group holds `slots` outputs with `threads` work-items each, which share a chunk of the
## reduced range and meet in local memory. Neighbouring work-items read neighbouring elements: along the reduced dimension
## (thread_step 1) or across the outputs (slot_step 1).
<%page args="name, geometry, unit, in_dtype, acc_dtype, out_dtype, combine, identity, compensation, pair_in, pair_out, index, kept_dims,
             reduced_dims, group"/>
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%namespace name="walk" file="/reduction/traversal.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype

    BLOCK = 64  # elements whose sum is added as one: long sums of floats stay accurate
    TOGETHER = 4  # loads
%>
${geometry.c_typedef(f"{name}_geometry")}
${shared.accumulator(1)}
<% acc, combined = f"{name}_a1", f"{name}_combine1" %>
// Where element `rest` of the reduced range lies, in C order of the reduced dimensions.
static ${index} ${name}_at(const ${name}_geometry *g, ${index} rest)
{
    ${walk.reduced_offset()}
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${ctype(in_dtype)} *restrict input, const long input_at,
             __global ${ctype(out_dtype)} *restrict output, const long output_at, const ${name}_geometry g)
{
    __local ${acc} scratch[${group}];
    const ${index} item = get_local_id(0), slots = ${group} / g.threads;
    const ${index} thread = item / g.thread_step % g.threads, slot = item / g.slot_step % slots;
    const ${index} number = (${index})get_group_id(0) * slots + slot, chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk, last = min(g.total, first + g.chunk);
    ${index} rest = number < g.outputs ? number : 0, in = 0, out = chunk * g.chunk_step;
    ${walk.kept_offset(unrolled=True)}
    input += input_at;
    output += output_at;
    ${acc} total = ${name}_identity1();
    for (${index} i = first + thread; i < last;) {
        const ${index} stop = min(last, i + ${BLOCK} * g.threads);
        ${acc} part = ${name}_identity1();
        for (; stop - i > ${TOGETHER - 1} * g.threads; i += ${TOGETHER} * g.threads) {  // loads that are under way together
            % for q in range(TOGETHER):
            const ${acc} e${q} = ${name}_load1(input + in + ${name}_at(&g, i + ${q} * g.threads), 1, g.plane);
            % endfor
            % for q in range(TOGETHER):
            part = ${combined}(part, e${q});
            % endfor
        }
        for (; i < stop; i += g.threads)
            part = ${combined}(part, ${name}_load1(input + in + ${name}_at(&g, i), 1, g.plane));
        total = ${combined}(total, part);
    }
    scratch[item] = total;
    for (int reach = g.threads / 2; reach > 0; reach /= 2) {  // the same for the whole group, so the barriers are uniform
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread < reach)
            scratch[item] = ${combined}(scratch[item], scratch[item + reach * g.thread_step]);
    }
    if (thread == 0 && number < g.outputs)
        ${name}_store1(scratch[item], output + out, 1, g.plane);
}
