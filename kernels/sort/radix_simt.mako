## Algorithm   Sorts long rows on GPUs: the radix sort of kernels/sort/radix_cpu.mako. A work-group takes a chunk, tile
##             by tile; in a tile each work-item ranks a run of items_per_thread elements.
## Operands    As in kernels/sort/radix_cpu.mako.
## NDRange     (rows * chunks * group); scan: (rows * group).
## Workspace   As in kernels/sort/radix_cpu.mako; local memory: a histogram for each work-item, a tile of elements.
## Invariants  Barriers are uniform: a skipped pass has an empty range for the whole group.
## Reference   N. Satish, M. Harris, M. Garland, Designing efficient sorting algorithms for manycore GPUs, IPDPS 2009.
<%page args="name, geometry, key, to_key, from_key, element, indexed, is_128_bit, dims, index, bits, passes, steps,
             group, items_per_thread, itemsize"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<%namespace name="moving" file="/sort/radix_scatter_simt.mako"/>
<% E, R, bins = element, "long" if indexed else key, 1 << bits
left = min(group, bins)  # work-items whose counts are not added up pairwise
%>
${shared.rows(unrolled=True)}
${shared.element()}
${radix.digits(E)}
// Replace numbers of the work-items by the sums of those before them; return the sum of all.
static inline ${index} ${name}_exclusive_scan(__local ${index} *sums, const int item)
{
    ${workgroup.inclusive_scan(index, "sums", group, "{1} + {0}", "0")}
    const ${index} all = sums[${group - 1}];
    const ${index} before = item ? sums[item - 1] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[item] = before;
    return all;
}

<%def name="chunk(skips)">
    const int item = get_local_id(0);
    const long row = get_group_id(0) / g.chunks;
    const long chunk = get_group_id(0) % g.chunks;
    const long start = chunk * g.chunk;
    // the same for the whole group
    const long end = ${f"{skips} ? start : " if skips else ""}min(g.length, start + g.chunk);
    __global ${index} *histogram_slice = counts + row * ${1 << bits} * g.chunks + chunk;
</%def>

% for first in (True, False):
% if first or passes > 1:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_count${"_first" if first else ""}(__global const ${key} *restrict input, const long input_at,
    __global const ${E} *restrict a, __global const ${E} *restrict b, __global ${index} *restrict counts,
    __global uint *difference, const int pass, const ${name}_geometry g)
{
    __local ${index} histogram[${bins * group}];
    % if not first:
    const ulong differing_bits = ${name}_differing_bits(difference);
    % endif
    ${chunk("" if first else f"pass < {passes - 1} && {name}_is_skipped(differing_bits, pass)")}
    ${radix.begin(first, E)}
    for (int d = 0; d < ${bins}; ++d)
        histogram[d * ${group} + item] = 0;
    ${key} different = 0;
    for (long i = start + item; i < end; i += ${group}) {
        const ${E} e = ${radix.read(first)};
        ++histogram[${name}_digit(e, pass) * ${group} + item];
        % if first:
        different |= ${name}_key_of(e) ^ ${name}_key(x[0]);
        % endif
    }
    % if first:
    if (different) {
        atomic_or(difference, (uint)different);
        atomic_or(difference + 1, (uint)((ulong)different >> 32));
    }
    % endif
    for (int distance = ${group // 2}; distance >= ${left}; distance /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = 0; d < ${bins} && item < distance; ++d)
            histogram[d * ${group} + item] += histogram[d * ${group} + item + distance];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = item; d < ${bins}; d += ${group}) {
        ${index} sum = 0;
        for (int k = 0; k < ${left}; ++k)  // each digit begins in another bank of local memory
            sum += histogram[d * ${group} + (k + d) % ${left}];
        histogram_slice[d * g.chunks] = sum;
    }
}
% endif
% endfor

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_scan(__global ${index} *restrict counts, const ${name}_geometry g)
{
    __local ${index} sums[${group}];
    const int item = get_local_id(0);
    const long n = ${bins} * g.chunks;
    __global ${index} *count = counts + get_group_id(0) * n;
    ${index} carry = 0;
    for (long start = 0; start < n; start += ${group}) {
        const long k = start + item;
        sums[item] = k < n ? count[k] : 0;
        const ${index} all = ${name}_exclusive_scan(sums, item);
        if (k < n)
            count[k] = carry + sums[item];
        carry += all;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

% for first, last in steps:
${moving.scatter(first, last, chunk)}
% endfor
