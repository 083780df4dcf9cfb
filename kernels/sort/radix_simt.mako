## Long rows on schedule simt: the radix sort of kernels/sort/radix_cpu.mako. A work-group takes a chunk, tile by tile; neighbouring
## work-items read neighbouring elements. In a tile, each work-item ranks a run of elements.
<%page args="name, key, to_key, from_key, element, indexed, wide, dims, index, bits, passes, steps, group, moved"/>
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<%namespace name="moving" file="/sort/radix_scatter_simt.mako"/>
<% E, R, bins = element, "long" if indexed else key, 1 << bits %>
${shared.rows(unrolled=True)}
${shared.element()}
${radix.digits(E)}
// Replace numbers of the work-items by the sums of those before them; return the sum of all.
static inline ${index} ${name}_before(__local ${index} *sums, const int item)
{
    for (int reach = 1; reach < ${group}; reach *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const ${index} own = sums[item], lower = item >= reach ? sums[item - reach] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sums[item] = own + lower;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const ${index} all = sums[${group - 1}], before = item ? sums[item - 1] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    sums[item] = before;
    return all;
}

<%def name="chunk(skips)">
    const int item = get_local_id(0);
    const long row = get_group_id(0) / g.chunks, chunk = get_group_id(0) % g.chunks, start = chunk * g.chunk;
    const long end = ${f"{skips} ? start : " if skips else ""}min(g.length, start + g.chunk);  // the same for the whole group
    __global ${index} *share = counts + row * ${1 << bits} * g.chunks + chunk;
</%def>

% for first in (True, False):
% if first or passes > 1:
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_count${"_first" if first else ""}(__global const ${key} *restrict input, const long input_at,
    __global const ${E} *restrict a, __global const ${E} *restrict b, __global ${index} *restrict counts,
    __global uint *diff, const int pass, const ${name}_geometry g)
{
    __local ${index} tally[${bins * group}];
    % if not first:
    const ulong varied = ${name}_varied(diff);
    % endif
    ${chunk("" if first else f"pass < {passes - 1} && {name}_skips(varied, pass)")}
    ${radix.begin(first, E)}
    for (int d = 0; d < ${bins}; ++d)
        tally[d * ${group} + item] = 0;
    ${key} different = 0;
    for (long i = start + item; i < end; i += ${group}) {
        const ${E} e = ${radix.read(first)};
        ++tally[${name}_digit(e, pass) * ${group} + item];
        % if first:
        different |= ${name}_key_of(e) ^ ${name}_key(x[0]);
        % endif
    }
    % if first:
    if (different) {
        atomic_or(diff, (uint)different);
        atomic_or(diff + 1, (uint)((ulong)different >> 32));
    }
    % endif
    for (int reach = ${group // 2}; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = 0; d < ${bins} && item < reach; ++d)
            tally[d * ${group} + item] += tally[d * ${group} + item + reach];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = item; d < ${bins}; d += ${group})
        share[d * g.chunks] = tally[d * ${group}];
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
        const ${index} all = ${name}_before(sums, item);
        if (k < n)
            count[k] = carry + sums[item];
        carry += all;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

% for first, last in steps:
${moving.scatter(first, last, chunk)}
% endfor
