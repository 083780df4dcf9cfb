## Algorithm   Sorts long rows on GPUs: the radix sort of kernels/sort/radix_cpu.mako. A work-group counts the digits of
##             a chunk, or moves its elements, tile by tile. The scan runs over the counts of each digit of each row
##             apart; what moves the elements adds the sums of the digits before.
## Operands    As in kernels/sort/radix_cpu.mako; `pairs`: the last pass writes the keys, and their source indices.
## NDRange     (rows * chunks * group); scan: (rows * digits * group), or, with few chunks, any number of groups that
##             has a work-item for each digit of each row.
## Workspace   counts[rows][2^bits][chunks]; totals[rows][2^bits]; differences[rows * chunks]: which bits differ between
##             the keys of a chunk and the first one of the row; difference: all of these. Local memory: a histogram for
##             each 32 work-items; a tile of elements, and counts.
## Invariants  Barriers are uniform: a skipped pass has an empty range for the whole group. Counts do not depend on the
##             order of the atomics.
## Reference   N. Satish, M. Harris, M. Garland, Designing efficient sorting algorithms for manycore GPUs, IPDPS 2009.
<%page args="name, geometry, key, to_key, from_key, element, indexed, is_128_bit, dims, index, bits, passes, steps,
             group, items_per_thread, itemsize, by_warps, few_chunks, pairs"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<%namespace name="moving" file="/sort/radix_scatter_simt.mako"/>
<% E, bins, copies, ahead = element, 1 << bits, max(1, group // 32), 4 %>
% if by_warps:
<%include file="/common/warp_votes.mako"/>\
% endif
${shared.rows(unrolled=True)}
${shared.element()}
${radix.digits(E, clears=False)}
<%def name="chunk(skips)">
    const int item = get_local_id(0);
    const long row = get_group_id(0) / g.chunks;
    const long chunk = get_group_id(0) % g.chunks;
    const long start = chunk * g.chunk;
    // the same for the whole group
    const long end = ${f"{skips} ? start : " if skips else ""}min(g.length, start + g.chunk);
    __global ${index} *histogram_slice = counts + row * ${bins} * g.chunks + chunk;
</%def>

% for first in (True, False):
% if first or passes > 1:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_count${"_first" if first else ""}(__global const ${key} *restrict input, const long input_at,
    __global const ${E} *restrict a, __global const ${E} *restrict b, __global ${index} *restrict counts,
    __global ${"ulong" if first else "const uint"} *restrict ${"differences" if first else "difference"},
    const int pass,
    const ${name}_geometry g)
{
    __local uint histogram[${bins * copies}];
    % if first:
    __local uint differing[2];
    % else:
    const ulong differing_bits = ${name}_differing_bits(difference);
    % endif
    ${chunk("" if first else f"pass < {passes - 1} && {name}_is_skipped(differing_bits, pass)")}
    ${radix.begin(first, E)}
    for (int d = item; d < ${bins * copies}; d += ${group})
        histogram[d] = 0;
    % if first:
    const ${key} x0 = ${name}_key(x[0]);
    ${key} different = 0;
    if (item < 2)
        differing[item] = 0;
    % endif
    barrier(CLK_LOCAL_MEM_FENCE);
    __local uint *own = histogram + item / 32 % ${copies} * ${bins};
    long i = start + item;
    for (; i + ${(ahead - 1) * group} < end; i += ${ahead * group}) {
        % for k in range(ahead):
        const ${key} key${k} = ${radix.read_key(first, f"i + {k * group}")};
        % endfor
        % for k in range(ahead):
        atomic_inc(own + ${name}_key_digit(key${k}, pass));
        % if first:
        different |= key${k} ^ x0;
        % endif
        % endfor
    }
    for (; i < end; i += ${group}) {
        const ${key} key0 = ${radix.read_key(first, "i")};
        atomic_inc(own + ${name}_key_digit(key0, pass));
        % if first:
        different |= key0 ^ x0;
        % endif
    }
    % if first:
    atomic_or(differing, (uint)different);
    atomic_or(differing + 1, (uint)((ulong)different >> 32));
    % endif
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = item; d < ${bins}; d += ${group}) {
        uint sum = 0;
        for (int k = 0; k < ${copies}; ++k)
            sum += histogram[k * ${bins} + d];
        histogram_slice[d * g.chunks] = sum;
    }
    % if first:
    if (item == 0)
        differences[get_group_id(0)] = differing[0] | (ulong)differing[1] << 32;
    % endif
}
% endif
% endfor

% for first in (True, False):
% if first or passes > 1:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_scan${"_first" if first else ""}(__global ${index} *restrict counts, __global ${index} *restrict totals,
    __global const ulong *restrict differences, __global uint *restrict difference, const int pass,
    const ${name}_geometry g)
{
    __local ${index} sums[${group}];
    const int item = get_local_id(0);
    % if first:
    // the first group also finds which bits differ
    __local uint differing[2];
    if (item < 2)
        differing[item] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_group_id(0) == 0) {
        ulong different = 0;
        for (long k = item; k < g.rows * g.chunks; k += ${group})
            different |= differences[k];
        atomic_or(differing, (uint)different);
        atomic_or(differing + 1, (uint)(different >> 32));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_group_id(0) == 0 && item < 2)
        difference[item] = differing[item];
    % else:
    if (pass < ${passes - 1} && ${name}_is_skipped(${name}_differing_bits(difference), pass))
        return;
    % endif
    if (g.chunks <= ${few_chunks}) {
        for (long n = get_global_id(0); n < g.rows * ${bins}; n += get_global_size(0)) {
            __global ${index} *count = counts + n * g.chunks;
            ${index} sum = 0;
            for (int k = 0; k < g.chunks; ++k) {
                const ${index} own = count[k];
                count[k] = sum;
                sum += own;
            }
            totals[n] = sum;
        }
        return;
    }
    __global ${index} *count = counts + get_group_id(0) * g.chunks;
    ${index} carry = 0;
    for (long start = 0; start < g.chunks; start += ${4 * group}) {
        const long k = start + 4 * item;
        % for j in range(4):
        const ${index} own${j} = k + ${j} < g.chunks ? count[k + ${j}] : 0;
        % endfor
        sums[item] = own0 + own1 + own2 + own3;
        ${workgroup.inclusive_scan(index, "sums", group, "{1} + {0}", "0")}
        ${index} before = carry + (item ? sums[item - 1] : 0);
        carry += sums[${group - 1}];
        % for j in range(4):
        if (k + ${j} < g.chunks)
            count[k + ${j}] = before;
        before += own${j};
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0)
        totals[get_group_id(0)] = carry;
}
% endif
% endfor

% for first, last in steps:
${moving.scatter(first, last, chunk)}
% endfor
