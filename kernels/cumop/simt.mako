## Algorithm   Prefix scan (sum or product) for GPUs. `<name>_rows`: a work-group scans a chunk of a row, tile by tile,
##             in local memory. `<name>_columns`: a work-item scans a chunk of a row; its neighbours take the rows
##             beside it.
## Operands    As in kernels/cumop/cpu.mako.
## Tiling      Tiles of group * run elements; each work-item scans `run` neighbouring ones, then the group scans their
##             sums.
## NDRange     _rows (outputs * group, chunks); _columns (outputs rounded up to groups, chunks).
## Workspace   Local memory: a tile, with gaps against bank conflicts, and one sum for each work-item.
## Invariants  Barriers are uniform: a work-group has one row.
## Reference   As in kernels/cumop/cpu.mako.
<%page args="name, geometry, dtype, combine, identity, outer_dims, index, group, run, in_buffer"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="shared" file="/cumop/geometry.mako"/>
<%namespace name="padding" file="/common/bank_padding.mako"/>\
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype
    from pytensor_cl.codegen.local_memory import padded_size
%>
<% T, ITEMS, itemsize = ctype(dtype), run, np.dtype(dtype).itemsize  # ITEMS: neighbouring elements of a work-item
tile = group * ITEMS %>
${geometry.c_typedef(f"{name}_geometry")}
static inline ${T} ${name}_combine(const ${T} a, const ${T} b)
{
    return ${combine};
}

static inline ${T} ${name}_exclusive_prefix(__global const ${T} *block_aggregates, const ${index} chunk,
    const ${index} outputs)
{
    ${T} sum = ${identity};
    for (${index} c = 0; c < chunk; ++c)
        sum = ${name}_combine(sum, block_aggregates[c * outputs]);
    return sum;
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_rows(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
    __global const ${T} *block_aggregates, ${shared.parameter()})
{
    ${shared.read_parameter()}
    __local ${T} elements[${padded_size(tile, itemsize)}];
    __local ${T} sums[${group}];
    const int item = get_local_id(0), own = ${padding.at(f"item * {ITEMS}", itemsize)};  // no gap within a run
    const ${index} chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk;
    const ${index} last = min(g.length, first + g.chunk);
    ${index} rest = get_group_id(0);
    ${index} in = 0;
    ${index} out = 0;
    ${index} total = g.first_total;
    ${shared.outer_offset(index, unrolled=True)}
    input += input_at + in;
    output += output_at + out;
    ${T} carry_in = ${name}_exclusive_prefix(block_aggregates + total, chunk, g.outputs);
    for (${index} start = first; start < last; start += ${tile}) {
        for (int k = item; k < ${tile}; k += ${group})
            elements[${padding.at("k", itemsize)}] = start + k < last ? input[(start + k) * g.in_step] : ${identity};
        barrier(CLK_LOCAL_MEM_FENCE);
        ${T} running[${ITEMS}];
        % for k in range(ITEMS):
        % if k == 0:
        running[0] = elements[own];
        % else:
        running[${k}] = ${name}_combine(running[${k - 1}], elements[own + ${k}]);
        % endif
        % endfor
        sums[item] = running[${ITEMS - 1}];
        ${workgroup.inclusive_scan(T, "sums", group, name + "_combine({}, {})", identity)}
        const ${T} lower = item ? sums[item - 1] : ${identity};
        for (int k = 0; k < ${ITEMS}; ++k)
            elements[own + k] = ${name}_combine(carry_in, ${name}_combine(lower, running[k]));
        carry_in = ${name}_combine(carry_in, sums[${group - 1}]);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < ${tile} && start + k < last; k += ${group})
            output[(start + k) * g.out_step] = elements[${padding.at("k", itemsize)}];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

__kernel void ${name}_columns(__global const ${T} *input, const long input_at, __global ${T} *output,
    const long output_at, __global const ${T} *block_aggregates, ${shared.parameter()})
{
    ${shared.read_parameter()}
    const ${index} chunk = get_global_id(1);
    const ${index} first = chunk * g.chunk;
    const ${index} last = min(g.length, first + g.chunk);
    ${index} rest = get_global_id(0);
    ${index} in = 0;
    ${index} out = 0;
    ${index} total = g.first_total;
    if (rest >= g.outputs)
        return;
    ${shared.outer_offset(index, unrolled=True)}
    input += input_at + in;
    output += output_at + out;
    ${T} carry_in = ${name}_exclusive_prefix(block_aggregates + total, chunk, g.outputs);
    for (${index} i = first; i < last;) {  // runs are summed apart: long sums of floats stay accurate
        const ${index} stop = min(last, i + 64);
        ${T} running = ${identity};
        for (; i < stop; ++i) {
            running = ${name}_combine(running, input[i * g.in_step]);
            output[i * g.out_step] = ${name}_combine(carry_in, running);
        }
        carry_in = ${name}_combine(carry_in, running);
    }
}
