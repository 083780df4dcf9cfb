## Algorithm   Argmax for GPUs. The work-items of an output each search a part of the range; a tree in local memory
##             combines value and position.
## Operands    As in kernels/argmax/cpu.mako.
## Tiling      As in kernels/reduction/simt.mako.
## NDRange     (groups * group, chunks), as in kernels/reduction/simt.mako.
## Workspace   `group` values and positions in local memory; found[chunks][outputs] of several chunks.
## Invariants  NaN is preferred to every number; of equal elements the first is taken. Barriers are uniform.
<%page args="name, geometry, dtype, index, outer_dims, reduced_dims, group, lanes"/>
<%namespace name="traversal" file="/reduction/traversal.mako"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T = ctype(dtype) %>
${geometry.c_typedef(f"{name}_geometry")}
${order.position(traversal.reduced_offset)}
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *restrict input, const long input_at, __global long *restrict output,
    const long output_at, const ${name}_geometry g)
{
    __local ${T} values[${group}];
    __local ${index} places[${group}];  // -1 where a work-item had no element
    ${traversal.simt_task()}
    input += input_at + in;
    ${index} where = first + lane < last ? first + lane : -1;
    ${T} best = input[${name}_at(&g, max(where, first))];
    ${index} i = first + lane + g.threads_per_output;
    % for count in (4, 1):
    // loads in flight at once
    for (; last - i > ${count - 1} * g.threads_per_output; i += ${count} * g.threads_per_output) {
        % for q in range(count):
        const ${T} value${q} = input[${name}_at(&g, i + ${q} * g.threads_per_output)];
        % endfor
        % for q in range(count):
        if (${order.beats(f"value{q}", "best")}) {
            best = value${q};
            where = i + ${q} * g.threads_per_output;
        }
        % endfor
    }
    % endfor
    values[item] = best;
    places[item] = where;
    // the same for the whole group, so the barriers are uniform
    for (int distance = g.threads_per_output / 2; distance > 0; distance /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < distance) {
            const ${index} other = item + distance * g.lane_stride;
            const ${index} place = places[other];
            const ${index} own = places[item];
            const ${T} value = values[other];
            const ${T} mine = values[item];
            const int sooner = ${order.same("value", "mine")} && place < own;
            if (place >= 0 && (own < 0 || ${order.beats("value", "mine")} || sooner)) {
                values[item] = value;
                places[item] = place;
            }
        }
    }
    if (lane == 0 && output_index < g.outputs)
        output[output_at + out] = places[item];
}
${order.finish(traversal.outer_offset, unrolled=True)}
