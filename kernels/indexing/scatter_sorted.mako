## Algorithm   x[positions] = y, or += y, in place, for GPUs, where there are many positions: segmented reduction by
##             key of sorted positions. A segment is a run of equal positions. _last (sets): the last value of each
##             segment wins; a work-item has one element of one value. _sum (adds): a work-item has one element, or the
##             `lanes` of an aligned vector, of a chunk of sorted values. A segment of at most `chunk` values is added
##             by the chunk in which it begins, value by value. Of a longer segment each chunk adds up its part: two
##             parts for each chunk, of the segment that began before, and of the one that goes on. _join: the chunk in
##             which a longer segment begins adds up its parts; those of many parts are added up by the work-group,
##             those of few by a work-item.
## Operands    keys[count]: the sorted positions, in units of `unit` elements of x; those that are -1 come last, and
##             nothing is written there (if is_checked); order[count]: numbers of their
##             values, equal positions in the order of the values; x and y as in kernels/indexing/scatter_simt.mako.
## NDRange     Any size; a loop with it as stride. _join: (blocks of chunks * group, tiles of elements).
## Workspace   found[chunks]: the position whose segment begins there and is longer, -1 if there is none;
##             parts[2 * chunks][elements].
## Invariants  Sums of short segments are NumPy's to the bit. The order of additions is fixed.
<%page args="name, plan, ctype, combine, nothing, ndim, index, chunk, accumulates, is_checked, group, block,
             few_parts, width, lanes"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%namespace name="runs" file="/indexing/value_runs.mako"/>\
<%
    ahead = 4
    vector = f"{ctype}{lanes}" if lanes > 1 else ctype

    def at(array, place):
        return f"*(__global {vector} *)&{array}[{place}]" if lanes > 1 else f"{array}[{place}]"

    def const_at(array, place):
        return at(array, place).replace("__global", "__global const")
%>\
${plan.c_typedef(f"{name}_plan")}

<%def name="places(from_='from')">
        ${index} rest = e;
        ${index} to = 0;
        % if from_:
        ${index} from = 0;
        % endif
        ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]",
            [("to", "p.x[{}]"), *([("from", "p.y[{}]")] if from_ else [])])}
</%def>\
% if not accumulates:
__kernel void ${name}_last(__global const ${index} *restrict keys, __global const ${index} *restrict order,
    __global ${ctype} *restrict x, __global const ${ctype} *restrict y, const long x_at, const long y_at,
    const ${name}_plan p)
{
    const ${index} size = p.count * p.elements;
    x += x_at;
    y += y_at;
    for (${index} n = get_global_id(0); n < size; n += get_global_size(0)) {
        const ${index} k = n / p.elements;
        const ${index} e = n - k * p.elements;
        const ${index} key = keys[k];
        if (${"key < 0 || " if is_checked else ""}(k + 1 < p.count && keys[k + 1] == key))
            continue;
        ${places()}
        x[to + key * p.unit] = y[from + ${runs.at("order[k]")}];
    }
}
% else:
/* How many positions there are before those that are -1. */
static ${index} ${name}_valid(__global const ${index} *keys, const ${index} count)
{
    ${index} low = 0;
    ${index} high = count;
    while (low < high) {
        const ${index} middle = low + (high - low) / 2;
        if (keys[middle] < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Whether the segment of number k, which began before it, has more than ${chunk} values. */
static int ${name}_is_long(__global const ${index} *keys, const ${index} k, const ${index} count)
{
    ${index} low = max(k - ${chunk}, (${index})0);
    ${index} high = k;
    while (low < high) {
        const ${index} middle = low + (high - low) / 2;
        if (keys[middle] == keys[k])
            high = middle;
        else
            low = middle + 1;
    }
    return k - low >= ${chunk} || (count - low > ${chunk} && keys[low + ${chunk}] == keys[k]);
}

__kernel void ${name}_sum(__global const ${index} *restrict keys, __global const ${index} *restrict order,
    __global const ${ctype} *restrict y, const long y_at, __global ${ctype} *restrict x, const long x_at,
    __global ${index} *restrict found, __global ${ctype} *restrict parts, const ${name}_plan p)
{
    const ${index} count = ${f"{name}_valid(keys, p.count)" if is_checked else "p.count"};
    const ${index} chunks = (count + ${chunk - 1}) / ${chunk};
    const ${index} vectors = p.elements${f" / {lanes}" if lanes > 1 else ""};
    const ${index} size = chunks * vectors;
    x += x_at;
    y += y_at;
    for (${index} n = get_global_id(0); n < size; n += get_global_size(0)) {
        const ${index} c = n / vectors;
        const ${index} e = ${f"(n - c * vectors) * {lanes}" if lanes > 1 else "n - c * vectors"};
        const ${index} first = c * ${chunk};
        const ${index} last = min(count, first + ${chunk});
        const ${index} last_key = keys[last - 1];
        ${places()}
        ${index} key = keys[first];
        ${index} begun = -1;
        ${vector} sum = ${nothing};
        // what becomes of the sum: 0 another chunk adds the segment, 1 the short one ends here, 2 and 3 a part
        int kind = first > 0 && keys[first - 1] == key ? 2 * ${name}_is_long(keys, first, count) : -1;
        int goes_on = 1;
        for (${index} k = first; goes_on; k += ${ahead}) {
            % for j in range(ahead):
            ${index} key${j} = -1;
            if (k + ${j} < count) {
                key${j} = keys[k + ${j}];
                key${j} = k + ${j} < last || key${j} == last_key ? key${j} : -1;
            }
            % endfor
            // several values are read before the first is added
            % for j in range(ahead):
            const int begins${j} = key${j} >= 0 && ${f"key{j} != key{j - 1}" if j else "(key0 != key || kind < 0)"};
            const int is_long${j} = begins${j} && count - k > ${chunk + j} && keys[k + ${chunk + j}] == key${j};
            ${vector} start${j} = ${nothing};
            ${vector} value${j} = ${nothing};
            if (begins${j} && !is_long${j})
                start${j} = ${at("x", f"to + key{j} * p.unit")};
            const ${index} number${j} = key${j} >= 0 ? order[k + ${j}] : 0;
            if (key${j} >= 0)
                value${j} = ${const_at("y", "from + " + runs.at(f"number{j}"))};
            % endfor
            % for j in range(ahead):
            if (goes_on) {
                if (key${j} != key || kind < 0) {
                    if (kind == 1)
                        ${at("x", "to + key * p.unit")} = sum;
                    else if (kind == 2)
                        ${at("parts", "2 * c * p.elements + e")} = sum;
                    goes_on = k + ${j} < last;
                    key = key${j};
                    kind = is_long${j} ? 3 : 1;
                    begun = is_long${j} ? key : begun;
                    sum = start${j};
                } else if (k + ${j} >= last && kind != 1) {
                    if (kind > 0)
                        ${at("parts", "(2 * c + kind - 2) * p.elements + e")} = sum;
                    goes_on = 0;
                }
                sum = ${combine.format(a="sum", b=f"value{j}")};
            }
            % endfor
        }
        if (e == 0)
            found[c] = begun;
    }
}

__attribute__((reqd_work_group_size(${group}, 1, 1)))
__kernel void ${name}_join(__global const ${index} *restrict keys, __global ${ctype} *restrict x, const long x_at,
    __global const ${index} *restrict found, __global const ${ctype} *restrict parts, const ${name}_plan p)
{
    __local ${index} long_segments[${block}];
    __local ${ctype} sums[${group}];
    const int item = get_local_id(0);
    const ${index} count = ${f"{name}_valid(keys, p.count)" if is_checked else "p.count"};
    const ${index} chunks = (count + ${chunk - 1}) / ${chunk};
    const ${index} block = get_group_id(0) * ${block};
    x += x_at;
    for (${index} tile = get_group_id(1) * ${width}; tile < p.elements; tile += get_num_groups(1) * ${width}) {
        const ${index} e = tile + item % ${width};
        ${places("")}
        for (int n = item / ${width}; n < ${block}; n += ${group // width}) {
            const ${index} c = block + n;
            const ${index} key = c < chunks ? found[c] : -1;
            ${index} low = 0;  // chunks after c that begin in the segment
            if (key >= 0) {
                ${index} high = chunks - c;
                while (high - low > 1) {
                    const ${index} middle = low + (high - low) / 2;
                    if (keys[(c + middle) * ${chunk}] == key)
                        low = middle;
                    else
                        high = middle;
                }
                if (low <= ${few_parts} && e < p.elements) {
                    ${ctype} sum = x[to + key * p.unit];
                    ${ctype} part = parts[(2 * c + 1) * p.elements + e];
                    sum = ${combine.format(a="sum", b="part")};
                    for (${index} k = 1; k <= low; ++k) {
                        part = parts[2 * (c + k) * p.elements + e];
                        sum = ${combine.format(a="sum", b="part")};
                    }
                    x[to + key * p.unit] = sum;
                }
            }
            if (item % ${width} == 0)
                long_segments[n] = low > ${few_parts} ? low : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int n = 0; n < ${block}; ++n) {
            const ${index} later = long_segments[n];  // the same for the whole group
            if (later == 0)
                continue;
            const ${index} c = block + n;
            ${ctype} sum = ${nothing};
            for (${index} k = item / ${width}; k <= later && e < p.elements; k += ${group // width}) {
                const ${ctype} part = parts[(2 * (c + k) + (k == 0)) * p.elements + e];
                sum = ${combine.format(a="sum", b="part")};
            }
            sums[item] = sum;
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int distance = ${group // 2}; distance >= ${width}; distance /= 2) {
                if (item < distance)
                    sums[item] = ${combine.format(a="sums[item]", b="sums[item + distance]")};
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            if (item < ${width} && e < p.elements) {
                const ${index} at = to + found[c] * p.unit;
                x[at] = ${combine.format(a="x[at]", b="sums[item]")};
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
% endif
