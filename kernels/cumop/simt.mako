## Cumulative sums and products on schedule simt. `<name>_rows`: a work-group takes a chunk of a row, tile by tile, in local
## memory. `<name>_columns`: a work-item takes a chunk of a row; its neighbours take the rows beside it.
<%page args="name, dtype, combine, identity, kept_dims, index, group, run, in_buffer"/>
<%namespace name="shared" file="/cumop/geometry.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>
<% T, ITEMS = ctype(dtype), run  # neighbouring elements that a work-item takes
tile = group * ITEMS %>
${shared.geometry(index)}
static inline ${T} ${name}_combine(const ${T} a, const ${T} b)
{
    return ${combine};
}

static inline ${T} ${name}_before(__global const ${T} *totals, const ${index} chunk, const ${index} outputs)
{
    ${T} sum = ${identity};
    for (${index} c = 0; c < chunk; ++c)
        sum = ${name}_combine(sum, totals[c * outputs]);
    return sum;
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_rows(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
                  __global const ${T} *totals, ${shared.parameter()})
{
    ${shared.read_parameter()}
    __local ${T} elements[${tile + group}];  // with gaps, so that runs of ${ITEMS} do not meet in a memory bank
    __local ${T} sums[${group}];
    const int item = get_local_id(0);
    const ${index} chunk = get_group_id(1), first = chunk * g.chunk, last = min(g.length, first + g.chunk);
    ${index} rest = get_group_id(0), in = 0, out = 0, total = g.first_total;
    ${shared.kept_offset(index, unrolled=True)}
    input += input_at + in;
    output += output_at + out;
    ${T} carry = ${name}_before(totals + total, chunk, g.outputs);
    for (${index} start = first; start < last; start += ${tile}) {
        for (int k = item; k < ${tile}; k += ${group})
            elements[k + k / ${ITEMS}] = start + k < last ? input[(start + k) * g.in_step] : ${identity};
        barrier(CLK_LOCAL_MEM_FENCE);
        ${T} run[${ITEMS}];
        % for k in range(ITEMS):
        run[${k}] = ${f"{name}_combine(run[{k - 1}], elements[item * {ITEMS + 1} + {k}])" if k else f"elements[item * {ITEMS + 1}]"};
        % endfor
        sums[item] = run[${ITEMS - 1}];
        for (int reach = 1; reach < ${group}; reach *= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const ${T} own = sums[item], lower = item >= reach ? sums[item - reach] : ${identity};
            barrier(CLK_LOCAL_MEM_FENCE);
            sums[item] = ${name}_combine(lower, own);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const ${T} lower = item ? sums[item - 1] : ${identity};
        for (int k = 0; k < ${ITEMS}; ++k)
            elements[item * ${ITEMS + 1} + k] = ${name}_combine(carry, ${name}_combine(lower, run[k]));
        carry = ${name}_combine(carry, sums[${group - 1}]);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < ${tile} && start + k < last; k += ${group})
            output[(start + k) * g.out_step] = elements[k + k / ${ITEMS}];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

__kernel void ${name}_columns(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
                              __global const ${T} *totals, ${shared.parameter()})
{
    ${shared.read_parameter()}
    const ${index} chunk = get_global_id(1), first = chunk * g.chunk, last = min(g.length, first + g.chunk);
    ${index} rest = get_global_id(0), in = 0, out = 0, total = g.first_total;
    if (rest >= g.outputs)
        return;
    ${shared.kept_offset(index, unrolled=True)}
    input += input_at + in;
    output += output_at + out;
    ${T} carry = ${name}_before(totals + total, chunk, g.outputs);
    for (${index} i = first; i < last;) {  // runs are summed apart: long sums of floats stay accurate
        const ${index} stop = min(last, i + 64);
        ${T} run = ${identity};
        for (; i < stop; ++i) {
            run = ${name}_combine(run, input[i * g.in_step]);
            output[i * g.out_step] = ${name}_combine(carry, run);
        }
        carry = ${name}_combine(carry, run);
    }
}
