## The kernel of kernels/sort/radix_simt.mako that moves elements to their places: each work-item ranks a run of
## `items_per_thread` elements of a tile, the tile is put in order in local memory, and is stored from there, so that
## neighbours mostly go to neighbouring places. A work-item counts its elements of each digit in registers, four counts
## of 16 bits in a ulong; the group scans these. The defs use the arguments of the template that calls them.
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="padding" file="/common/bank_padding.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<%!
    from pytensor_cl.codegen.local_memory import padded_size
%>
## The word of `words` that has the count of the digit.
<%def name="word_of(words, digit, count)" buffered="True" filter="trim">
${"".join(f"{digit} / 4 == {w} ? {words}{w} : " for w in range(count - 1))}${words}${count - 1}
</%def>
<%def name="count_one(words, digit, count)">
            % for w in range(count):
            ${words}${w} += ${f"{digit} / 4 != {w} ? 0 : " if count > 1 else ""}1ul << 16 * (${digit} % 4);
            % endfor
</%def>
<%def name="scatter(first, last, chunk)">
<% E, R, bins, tile = element, "long" if indexed else key, 1 << bits, group * items_per_thread
words = range(max(1, bins // 4))
W = len(words) %>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_scatter${"_first" * first}${"_last" * last}(__global const ${key} *restrict input, const long input_at,
    __global ${E} *a, __global ${E} *b, __global ${R} *restrict output, const long output_at,
    __global ${index} *restrict counts, __global const uint *difference, const int pass, const ${name}_geometry g)
{
    __local ${E} elements[${padded_size(tile, itemsize)}];
    __local ulong sums[${W * group}];
    __local ${index} offsets[${bins}], next[${bins}];
    % if not first:
    const ulong differing_bits = ${name}_differing_bits(difference);
    % endif
    ${chunk("" if first or last else f"{name}_is_skipped(differing_bits, pass)")}
    ${radix.begin(first, E)}
    ${radix.target(first, last, E)}
    for (int d = item; d < ${bins}; d += ${group})
        next[d] = histogram_slice[d * g.chunks];
    for (long begin = start; begin < end; begin += ${tile}) {
        const int n = (int)min(${tile}L, end - begin);
        for (int k = item; k < n; k += ${group}) {
            const long i = begin + k;
            elements[${padding.at("k", itemsize)}] = ${radix.read(first)};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        const int own = min(${items_per_thread}, n - item * ${items_per_thread});
        ${E} ${", ".join(f"run{k} = 0" for k in range(items_per_thread))};  // no array: GPUs would keep it in memory
        ulong ${", ".join(f"own{w} = 0" for w in words)};
        % for k in range(items_per_thread):
        if (${k} < own) {
            run${k} = elements[${padding.at(f"item * {items_per_thread}", itemsize)} + ${k}];
            const int digit = ${name}_digit(run${k}, pass);
            ${count_one("own", "digit", W)}
        }
        % endfor
        ulong ${", ".join(f"place{w} = own{w}" for w in words)};
        % for w in words:
        sums[${w * group} + item] = own${w};
        % endfor
        for (int distance = 1; distance < ${group}; distance *= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            % for w in words:
            place${w} += item >= distance ? sums[${w * group} + item - distance] : 0;
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
            % for w in words:
            sums[${w * group} + item] = place${w};
            % endfor
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Where each digit begins in the tile. The products are sums of the counts before a count, and of all four.
        % for w in words:
        const ulong all${w} = sums[${(w + 1) * group - 1}];
        const ulong begin${w} = all${w} * 0x0001000100010000ul\
${f" + (begin{w - 1} + all{w - 1} >> 48) * 0x0001000100010001ul" if w else ""};
        place${w} += begin${w} - own${w};
        % endfor
        for (int d = item; d < ${bins}; d += ${group}) {
            const ulong first = ${word_of("begin", "d", W)}, count = ${word_of("all", "d", W)};
            // from the rank in the tile to the place in the row
            offsets[d] = next[d] - (ushort)(first >> 16 * (d % 4));
            next[d] += (ushort)(count >> 16 * (d % 4));
        }
        % for k in range(items_per_thread):
        if (${k} < own) {
            const int digit = ${name}_digit(run${k}, pass);
            const ulong places = ${word_of("place", "digit", W)};
            const int rank = (ushort)(places >> 16 * (digit % 4));
            elements[${padding.at("rank", itemsize)}] = run${k};
            ${count_one("place", "digit", W)}
        }
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = item; k < n; k += ${group}) {
            const ${E} e = elements[${padding.at("k", itemsize)}];
            const ${index} to = offsets[${name}_digit(e, pass)] + k;
            ${f"y[to * g.out_step] = {name}_result(e)" if last else "y[to] = e"};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
</%def>
