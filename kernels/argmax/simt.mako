## Argmax on schedule simt: a work-group holds `slots` outputs with `threads` work-items each, which share a chunk of the
## reduced range and meet in local memory. Neighbouring work-items read neighbouring elements: along the reduced dimension
## (thread_step 1) or across the outputs (slot_step 1).
<%page args="name, geometry, dtype, index, kept_dims, reduced_dims, group, lanes"/>
<%namespace name="walk" file="/reduction/traversal.mako"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T = ctype(dtype) %>
${geometry.c_typedef(f"{name}_geometry")}
${order.position(walk.reduced_offset)}
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *restrict input, const long input_at, __global long *restrict output, const long output_at,
             const ${name}_geometry g)
{
    __local ${T} values[${group}];
    __local ${index} places[${group}];  // -1 where a work-item had no element
    const ${index} item = get_local_id(0), slots = ${group} / g.threads;
    const ${index} thread = item / g.thread_step % g.threads, slot = item / g.slot_step % slots;
    const ${index} number = (${index})get_group_id(0) * slots + slot, chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk, last = min(g.total, first + g.chunk);
    ${index} rest = number < g.outputs ? number : 0, in = 0, out = chunk * g.chunk_step;
    ${walk.kept_offset(unrolled=True)}
    input += input_at + in;
    ${index} where = first + thread < last ? first + thread : -1;
    ${T} best = input[${name}_at(&g, max(where, first))];
    ${index} i = first + thread + g.threads;
    % for count in (4, 1):
    for (; last - i > ${count - 1} * g.threads; i += ${count} * g.threads) {  // loads that are under way together
        % for q in range(count):
        const ${T} value${q} = input[${name}_at(&g, i + ${q} * g.threads)];
        % endfor
        % for q in range(count):
        if (${order.beats(f"value{q}", "best")}) {
            best = value${q};
            where = i + ${q} * g.threads;
        }
        % endfor
    }
    % endfor
    values[item] = best;
    places[item] = where;
    for (int reach = g.threads / 2; reach > 0; reach /= 2) {  // the same for the whole group, so the barriers are uniform
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread < reach) {
            const ${index} other = item + reach * g.thread_step, place = places[other], own = places[item];
            const ${T} value = values[other], mine = values[item];
            const int sooner = ${order.same("value", "mine")} && place < own;
            if (place >= 0 && (own < 0 || ${order.beats("value", "mine")} || sooner)) {
                values[item] = value;
                places[item] = place;
            }
        }
    }
    if (thread == 0 && number < g.outputs)
        output[output_at + out] = places[item];
}
${order.finish(walk.kept_offset, unrolled=True)}
