## The kernel of kernels/sort/radix_simt.mako that moves elements to their places: a tile is put in order in local
## memory, and is stored from there, so that neighbours mostly go to neighbouring places. The defs use the arguments of
## the template that calls them.
##
## `by_warps`: a warp takes 32 elements at a time. Those of the same digit find each other by votes; the first one adds
## their number to the count of the digit in this warp, which is the rank of an element among those of its digit in the
## warp. The counts are scanned over the warps, then over the digits.
##
## Otherwise a tile is sorted by four bits at a time: a work-item ranks a run of `items_per_thread` elements, and counts
## those of each digit in registers, four counts of 16 bits in a ulong; the group scans these.
<%namespace name="shared" file="/sort/keys.mako"/>
<%namespace name="padding" file="/common/bank_padding.mako"/>
<%namespace name="radix" file="/sort/radix_common.mako"/>
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
<%!
    from pytensor_cl.codegen.local_memory import padded_size
    from pytensor_cl.routines.sort.plan import split_digit
%>
## Replace the numbers of the digits by the sums of those before them.
<%def name="scan_bins(kind, values, sums)">
<% bins = 1 << bits
per = max(1, bins // group) %>
    barrier(CLK_LOCAL_MEM_FENCE);
    {
        ${kind} own_sum = 0;
        % for j in range(per):
        const ${kind} own${j} = ${f"item < {bins} ? " if group > bins else ""}${values}[item * ${per} + ${j}]\
${" : 0" if group > bins else ""};
        own_sum += own${j};
        % endfor
        ${sums}[item] = own_sum;
        ${workgroup.inclusive_scan(kind, sums, group, "{1} + {0}", "0")}
        ${kind} before = ${sums}[item] - own_sum;
        % for j in range(per):
        ${f"if (item < {bins})" if group > bins else ""}
            ${values}[item * ${per} + ${j}] = before;
        before += own${j};
        % endfor
    }
    barrier(CLK_LOCAL_MEM_FENCE);
</%def>
## The word of `words` that has the count of the digit.
<%def name="word_of(words, digit, count)" buffered="True" filter="trim">
${"".join(f"{digit} / 4 == {w} ? {words}{w} : " for w in range(count - 1))}${words}${count - 1}
</%def>
<%def name="count_one(words, digit, count)">
            % for w in range(count):
            ${words}${w} += ${f"{digit} / 4 != {w} ? 0 : " if count > 1 else ""}1ul << 16 * (${digit} % 4);
            % endfor
</%def>

## Sort the tile by `step_bits` bits of the digit from `low` on.
<%def name="sort_tile(low, step_bits)">
<% W = max(1, (1 << step_bits) // 4)
words = range(W)
digit_of = f"{name}_digit({{}}, pass) >> {low} & {(1 << step_bits) - 1}" %>
        {
            const int own_count = min(${items_per_thread}, n - item * ${items_per_thread});
            // GPUs would keep an array in memory.
            ${element} ${", ".join(f"run{k} = 0" for k in range(items_per_thread))};
            ulong ${", ".join(f"own{w} = 0" for w in words)};
            % for k in range(items_per_thread):
            if (${k} < own_count) {
                run${k} = elements[${padding.at(f"item * {items_per_thread} + {k}", itemsize)}];
                const int digit = ${digit_of.format(f"run{k}")};
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
            % for k in range(items_per_thread):
            if (${k} < own_count) {
                const int digit = ${digit_of.format(f"run{k}")};
                const ulong places = ${word_of("place", "digit", W)};
                const int rank = (ushort)(places >> 16 * (digit % 4));
                elements[${padding.at("rank", itemsize)}] = run${k};
                ${count_one("place", "digit", W)}
            }
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
        }
</%def>

<%def name="scatter(first, last, chunk)">
<% E, R, bins, tile = element, "long" if indexed else key, 1 << bits, group * items_per_thread
at = (lambda k: k) if by_warps else (lambda k: padding.at(k, itemsize))
warps = group // 32 %>
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_scatter${"_first" * first}${"_last" * last}(__global const ${key} *restrict input, const long input_at,
    __global ${E} *a, __global ${E} *b,
    % if pairs:
    __global ${key} *restrict sorted_keys, __global ${index} *restrict order,
    % else:
    __global ${R} *restrict output, const long output_at,
    % endif
    __global const ${index} *restrict counts, __global const ${index} *restrict totals, __global const uint *difference,
    const int pass, const ${name}_geometry g)
{
    __local ${E} elements[${tile if by_warps else padded_size(tile, itemsize)}];
    __local ${index} offsets[${bins}], next[${bins}], scanned[${group}];
    __local uint starts[${bins}];
    % if by_warps:
    __local uint warp_counts[${warps * bins}]${"" if index == "uint" else f", warp_sums[{group}]"};
    % else:
    __local ulong sums[${max(max(1, (1 << b) // 4) for _, b in split_digit(bits)) * group}];
    % endif
    % if not first:
    const ulong differing_bits = ${name}_differing_bits(difference);
    % endif
    ${chunk("" if first or last else f"{name}_is_skipped(differing_bits, pass)")}
    ${radix.begin(first, E)}
    % if not (last and pairs):
    ${radix.target(first, last, E)}
    % endif
    for (int d = item; d < ${bins}; d += ${group})
        next[d] = totals[row * ${bins} + d];
    ${scan_bins(index, "next", "scanned")}
    for (int d = item; d < ${bins}; d += ${group})
        next[d] += histogram_slice[d * g.chunks];
    % if by_warps:
    const int lane = item % 32;
    __local volatile uint *own_counts = warp_counts + item / 32 * ${bins};
    % endif
    for (long begin = start; begin < end; begin += ${tile}) {
        const int n = (int)min(${tile}L, end - begin);
        % if by_warps:
        for (int d = item; d < ${warps * bins}; d += ${group})
            warp_counts[d] = 0;
        const int place = item / 32 * ${32 * items_per_thread} + lane;
        % if first:
        __global const ${key} *from = x + (begin + place) * g.in_step;
        % else:
        __global const ${E} *from = x + begin + place;
        % endif
        % for k in range(items_per_thread):
        ${E} run${k} = 0;
        if (place + ${32 * k} < n)
            % if first:
            run${k} = ${name}_make(${name}_key(*from), begin + place + ${32 * k});
        from += 32 * g.in_step;
            % else:
            run${k} = from[${32 * k}];
            % endif
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        % for k in range(items_per_thread):
        // what is not there comes last, in order and by digit
        uint rank${k};  // in the warp among those of the digit; above it the digit
        {
            const int digit = place + ${32 * k} < n ? ${name}_digit(run${k}, pass) : ${bins - 1};
            const uint same = warp_match(digit, ${bits});
            const uint before = own_counts[digit];
            const int lower = popcount(same & (1u << lane) - 1);
            warp_barrier();
            if (lower == 0)
                own_counts[digit] = before + popcount(same);
            warp_barrier();
            rank${k} = before + lower | (uint)digit << 16;
        }
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int d = item; d < ${bins}; d += ${group}) {
            uint sum = 0;
            for (int w = 0; w < ${warps}; ++w) {
                const uint own = warp_counts[w * ${bins} + d];
                warp_counts[w * ${bins} + d] = sum;
                sum += own;
            }
            starts[d] = sum;
            offsets[d] = sum;
        }
        ${scan_bins("uint", "starts", "scanned" if index == "uint" else "warp_sums")}
        for (int d = item; d < ${bins}; d += ${group}) {
            const ${index} filled = offsets[d];
            offsets[d] = next[d] - starts[d];
            next[d] += filled;
        }
        % for k in range(items_per_thread):
        {
            const uint digit = rank${k} >> 16;
            elements[(rank${k} & 0xffffu) + own_counts[digit] + starts[digit]] = run${k};
        }
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        % else:
        for (int k = item; k < n; k += ${group}) {
            const long i = begin + k;
            elements[${at("k")}] = ${radix.read(first)};
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        % for low, step_bits in split_digit(bits):
        ${sort_tile(low, step_bits)}
        % endfor
        for (int k = item; k < n; k += ${group}) {
            const int digit = ${name}_digit(elements[${at("k")}], pass);
            if (k == 0 || ${name}_digit(elements[${at("k - 1")}], pass) != digit)
                starts[digit] = k;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // from the rank in the tile to the place in the row
        for (int k = item; k < n; k += ${group}) {
            const int digit = ${name}_digit(elements[${at("k")}], pass);
            if (k == n - 1 || ${name}_digit(elements[${at("k + 1")}], pass) != digit) {
                offsets[digit] = next[digit] - starts[digit];
                next[digit] += k + 1 - starts[digit];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        % endif
        for (int k = item; k < n; k += ${group}) {
            const ${E} e = elements[${at("k")}];
            const ${index} to = offsets[${name}_digit(e, pass)] + k;
            % if last and pairs:
            sorted_keys[to] = ${name}_key_of(e);
            order[to] = ${name}_result(e);
            % else:
            ${f"y[to * g.out_step] = {name}_result(e)" if last else "y[to] = e"};
            % endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
</%def>
