## Algorithm   Prefix scan (sum or product) for GPUs. `<name>_rows`: a work-group scans a chunk of a row, tile by tile,
##             in local memory. `<name>_columns`: a work-item scans a chunk of a row; its neighbours take the rows
##             beside it. Before them `<name>_sums`: a work-group puts together a chunk of a row; `<name>_totals`: a
##             work-group scans the totals of the chunks of a row in place.
## Operands    As in kernels/cumop/cpu.mako.
## Tiling      Tiles of group * run elements; each work-item scans `run` neighbouring ones, then the group scans their
##             sums: `block` work-items each scan as many sums, and all add up the totals of the blocks before their
##             own.
## NDRange     _rows (outputs * group, chunks); _sums (outputs * group, chunks - 1); _columns (outputs rounded up to
##             groups, chunks); _totals (outputs * group).
## Workspace   Local memory: a tile, with gaps against bank conflicts, and one sum for each work-item.
## Invariants  Barriers are uniform: a work-group has one row. Sums have one order, the same in each call.
## Reference   As in kernels/cumop/cpu.mako.
<%page args="name, geometry, dtype, combine, identity, outer_dims, index, group, run, in_buffer"/>
<%namespace name="shared" file="/cumop/geometry.mako"/>
<%namespace name="padding" file="/common/bank_padding.mako"/>\
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype
    from pytensor_cl.codegen.local_memory import padded_size

    AHEAD = 8  # loads of a work-item in flight, of columns
%>
<% T, ITEMS, itemsize = ctype(dtype), run, np.dtype(dtype).itemsize  # ITEMS: neighbouring elements of a work-item
tile = group * ITEMS
block = min(16, group) %>
${geometry.c_typedef(f"{name}_geometry")}
static inline ${T} ${name}_combine(const ${T} a, const ${T} b)
{
    return ${combine};
}

## Inclusive scan of a value of each work-item: `lower` becomes what comes before it, `all` what all come to. Two
## barriers; others must not be at work with `sums` and `blocks` before and after it.
<%def name="scan_in_group(value, lower, all)">
        sums[${padding.at("item", itemsize)}] = ${value};
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < ${group // block}) {
            ${T} sum = sums[${padding.at(f"item * {block}", itemsize)}];
            for (int k = 1; k < ${block}; ++k) {
                const int at = item * ${block} + k;
                sum = ${name}_combine(sum, sums[${padding.at("at", itemsize)}]);
                sums[${padding.at("at", itemsize)}] = sum;
            }
            blocks[item] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ${T} ${lower} = ${identity}, ${all} = ${identity};
        for (int b = 0; b < ${group // block}; ++b) {
            if (b == item / ${block})
                ${lower} = ${all};
            ${all} = ${name}_combine(${all}, blocks[b]);
        }
        if (item % ${block})
            ${lower} = ${name}_combine(${lower}, sums[${padding.at("item - 1", itemsize)}]);
</%def>

<%def name="declare_sums()">
    __local ${T} sums[${padded_size(group, itemsize)}];
    __local ${T} blocks[${group // block}];
    const int item = get_local_id(0);
</%def>

<%def name="begin_row()">
    const ${index} chunk = get_group_id(1);
    const ${index} first = chunk * g.chunk;
    const ${index} last = min(g.length, first + g.chunk);
    ${index} rest = get_group_id(0);
    ${index} in = 0;
    ${index} out = 0;
    ${index} total = g.first_total;
    ${shared.outer_offset(index, unrolled=True)}
</%def>

## Elements of the tile at `start`, all loads in flight at once; neighbours take neighbouring ones.
<%def name="load_tile()">
            ${T} ${", ".join(f"v{k}" for k in range(ITEMS))};
            if (is_full && g.in_step == 1) {
                % for k in range(ITEMS):
                v${k} = input[start + item + ${k * group}];
                % endfor
            } else {
                % for k in range(ITEMS):
                v${k} = start + item + ${k * group} < last
                    ? input[(start + item + ${k * group}) * g.in_step] : ${identity};
                % endfor
            }
</%def>

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_sums(__global const ${T} *input, const long input_at, __global ${T} *totals, ${shared.parameter()})
{
    ${shared.read_parameter()}
    ${declare_sums()}
    ${begin_row()}
    input += input_at + in;
    ${T} sum = ${identity};
    // backwards: the scan finds the begin of the chunk in the cache
    for (${index} start = first + (last - first - 1) / ${tile} * ${tile}; start >= first; start -= ${tile}) {
        const int is_full = last - start >= ${tile};
        ${load_tile()}
        ${T} part = v0;
        % for k in range(1, ITEMS):
        part = ${name}_combine(part, v${k});
        % endfor
        sum = ${name}_combine(sum, part);
    }
    ${scan_in_group("sum", "lower", "all")}
    if (item == 0)
        totals[total + chunk * g.outputs] = all;
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_rows(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
    __global const ${T} *block_aggregates, ${shared.parameter()})
{
    ${shared.read_parameter()}
    __local ${T} elements[${padded_size(tile, itemsize)}];
    ${declare_sums()}
    const int own = ${padding.at(f"item * {ITEMS}", itemsize)};  // no gap within a run
    ${begin_row()}
    input += input_at + in;
    output += output_at + out;
    ${T} carry_in = ${identity};
    if (chunk) {  // the same for the whole group: barriers are uniform
        ${T} sum = ${identity};
        for (${index} c = item; c < chunk; c += ${group})
            sum = ${name}_combine(sum, block_aggregates[total + c * g.outputs]);
        ${scan_in_group("sum", "lower", "all")}
        carry_in = all;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (${index} start = first; start < last; start += ${tile}) {
        const int is_full = last - start >= ${tile};
        {
            ${load_tile()}
            % for k in range(ITEMS):
            elements[${padding.at(f"item + {k * group}", itemsize)}] = v${k};
            % endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        ${T} running[${ITEMS}];
        % for k in range(ITEMS):
        % if k == 0:
        running[0] = elements[own];
        % else:
        running[${k}] = ${name}_combine(running[${k - 1}], elements[own + ${k}]);
        % endif
        % endfor
        ${scan_in_group(f"running[{ITEMS - 1}]", "lower", "all")}
        % for k in range(ITEMS):
        elements[own + ${k}] = ${name}_combine(carry_in, ${name}_combine(lower, running[${k}]));
        % endfor
        carry_in = ${name}_combine(carry_in, all);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (is_full && g.out_step == 1) {
            % for k in range(ITEMS):
            output[start + item + ${k * group}] = elements[${padding.at(f"item + {k * group}", itemsize)}];
            % endfor
        } else {
            for (int k = item; k < ${tile} && start + k < last; k += ${group})
                output[(start + k) * g.out_step] = elements[${padding.at("k", itemsize)}];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_totals(__global ${T} *totals, const long chunks, const long outputs)
{
    ${declare_sums()}
    const long each = (chunks + ${group - 1}) / ${group}, first = item * each, last = min(chunks, first + each);
    totals += get_group_id(0);
    ${T} sum = ${identity};
    for (long c = first; c < last; ++c)
        sum = ${name}_combine(sum, totals[c * outputs]);
    ${scan_in_group("sum", "lower", "all")}
    for (long c = first; c < last; ++c) {
        lower = ${name}_combine(lower, totals[c * outputs]);
        totals[c * outputs] = lower;
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
    ${T} carry_in = chunk ? block_aggregates[total + (chunk - 1) * g.outputs] : ${identity};
    for (${index} i = first; i < last;) {  // runs are summed apart: long sums of floats stay accurate
        const ${index} stop = min(last, i + 64);
        ${T} running = ${identity};
        for (; stop - i >= ${AHEAD}; i += ${AHEAD}) {
            % for k in range(AHEAD):
            const ${T} v${k} = input[(i + ${k}) * g.in_step];
            % endfor
            % for k in range(AHEAD):
            running = ${name}_combine(running, v${k});
            output[(i + ${k}) * g.out_step] = ${name}_combine(carry_in, running);
            % endfor
        }
        for (; i < stop; ++i) {
            running = ${name}_combine(running, input[i * g.in_step]);
            output[i * g.out_step] = ${name}_combine(carry_in, running);
        }
        carry_in = ${name}_combine(carry_in, running);
    }
}
