## The kernel of schedule simt that moves elements to their places: each work-item ranks a run of `items_per_thread`
## elements of a tile, the tile is put in order in local memory, and goes out from there, neighbours mostly to
## neighbouring places. The def sees the arguments of the template that calls it.
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<%def name="scatter(first, last, chunk)">
<% E, R, bins, tile = element, "long" if indexed else key, 1 << bits, group * items_per_thread %>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_scatter${"_first" * first}${"_last" * last}(__global const ${key} *restrict input, const long input_at,
    __global ${E} *a, __global ${E} *b, __global ${R} *restrict output, const long output_at,
    __global ${index} *restrict counts, __global const uint *difference, const int pass, const ${name}_geometry g)
{
    __local ${E} elements[${tile}];
    __local ushort ranks[${bins * group}];
    __local ${index} sums[${max(group, bins)}], next[${bins}];
    % if not first:
    const ulong differing_bits = ${name}_differing_bits(difference);
    % endif
    ${chunk("" if first or last else f"{name}_is_skipped(differing_bits, pass)")}
    ${radix.begin(first, E)}
    % if last:
    __global ${R} *y = output + output_at + ${name}_out(&g, row);
    % else:
    __global ${E} *y = ${"a" if first else f"({name}_reads_b(differing_bits, pass) ? a : b)"} + row * g.length;
    % endif
    for (int d = item; d < ${bins}; d += ${group})
        next[d] = histogram_slice[d * g.chunks];
    for (long begin = start; begin < end; begin += ${tile}) {
        const int n = (int)min(${tile}L, end - begin);
        for (int k = item; k < n; k += ${group}) {
            const long i = begin + k;
            elements[k] = ${radix.read(first)};
        }
        for (int d = 0; d < ${bins}; ++d)
            ranks[d * ${group} + item] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        const int own = min(${items_per_thread}, n - item * ${items_per_thread});
        ${E} ${", ".join(f"run{k} = 0" for k in range(items_per_thread))};  // no array: GPUs would keep it in memory
        % for k in range(items_per_thread):
        if (${k} < own) {
            run${k} = elements[item * ${items_per_thread} + ${k}];
            ++ranks[${name}_digit(run${k}, pass) * ${group} + item];
        }
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        ${index} sum = 0;
        for (int k = item * ${bins}; k < (item + 1) * ${bins}; ++k)
            sum += ranks[k];
        sums[item] = sum;
        ${name}_exclusive_scan(sums, item);
        sum = sums[item];
        for (int k = item * ${bins}; k < (item + 1) * ${bins}; ++k) {
            const ushort count = ranks[k];
            ranks[k] = (ushort)sum;
            sum += count;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = item; d < ${bins}; d += ${group}) {
            sums[d] = next[d] - ranks[d * ${group}];  // from the rank in the tile to the source_index in the row
            next[d] = sums[d] + (d + 1 < ${bins} ? ranks[(d + 1) * ${group}] : n);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        % for k in range(items_per_thread):
        if (${k} < own)
            elements[ranks[${name}_digit(run${k}, pass) * ${group} + item]++] = run${k};
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < n; k += ${group}) {
            const ${E} e = elements[k];
            const ${index} to = sums[${name}_digit(e, pass)] + k;
            ${f"y[to * g.out_step] = {name}_result(e)" if last else "y[to] = e"};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
</%def>
