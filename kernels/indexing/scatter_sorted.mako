## Algorithm   x[positions] = y, or += y, in place, for GPUs, where there are many positions: segmented reduction by key
##             of sorted positions. A segment is a run of equal positions. _keys: the sorted positions. _last (sets):
##             the last value of each segment wins; a work-item has one element of one value. _sum (adds): a work-item
##             has one element of a chunk of sorted values. A segment of at most `chunk` values is added by the chunk in
##             which it begins, value by value. Of a longer segment each chunk adds up its part. The parts are pairs of
##             a position and a sum, two for each chunk: `found` and `parts`. _join: the same for the pairs that the
##             kernel before left, which are sorted too. The launches, and the longest chain of additions, grow as the
##             logarithm of the longest segment.
## Operands    order[count]: numbers of the values in the order of their positions, equal positions in the order of the
##             values; x and y as in kernels/indexing/scatter_simt.mako.
## NDRange     Any size; a loop with it as stride.
## Workspace   keys[count]; found[2 * chunks], -1 where there is no pair; parts[2 * chunks][elements].
## Invariants  Sums of short segments are NumPy's to the bit. A long segment has neighbouring pairs only: a chunk in its
##             middle leaves a pair that changes nothing besides its own.
<%page args="name, plan, ctype, combine, nothing, ndim, index, chunk, accumulates"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
${plan.c_typedef(f"{name}_plan")}

__kernel void ${name}_keys(__global const ${index} *positions, __global const long *order, __global ${index} *keys,
    const long count)
{
    for (long k = get_global_id(0); k < count; k += get_global_size(0))
        keys[k] = positions[order[k]];
}

<%def name="places()">
        ${index} rest = e;
        ${index} to = 0;
        ${index} from = 0;
        ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]", [("to", "p.x[{}]"), ("from", "p.y[{}]")])}
</%def>\
% if not accumulates:
__kernel void ${name}_last(__global const ${index} *keys, __global const long *order, __global ${ctype} *x,
    __global const ${ctype} *y, const long x_at, const long y_at, const ${name}_plan p)
{
    const ${index} size = p.count * p.elements;
    x += x_at;
    y += y_at;
    for (${index} n = get_global_id(0); n < size; n += get_global_size(0)) {
        const ${index} k = n / p.elements;
        const ${index} e = n - k * p.elements;
        const ${index} key = keys[k];
        if (k + 1 < p.count && keys[k + 1] == key)
            continue;
        ${places()}
        x[to + key] = y[from + (${index})order[k] * p.y_count];
    }
}
% else:
/* Whether the segment that begins at number k of the sorted positions has more than ${chunk} values. */
static int ${name}_is_long(__global const ${index} *keys, const ${index} k, const ${index} count)
{
    return count - k > ${chunk} && keys[k + ${chunk}] == keys[k];
}

/* The same for a segment that began before number k: ${chunk} places before it, or later, or it is long. */
static int ${name}_goes_on(__global const ${index} *keys, const ${index} k, const ${index} count)
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
    return k - low >= ${chunk} || ${name}_is_long(keys, low, count);
}

% for kernel in ("sum", "join"):
<% value = {"sum": "y[from + (%s)order[k] * p.y_count]" % index, "join": "given[k * p.elements + e]"}[kernel] %>\
__kernel void ${name}_${kernel}(
    __global const ${index} *keys,
    % if kernel == "sum":
    __global const long *order,
    __global const ${ctype} *y,
    const long y_at,
    % else:
    __global const ${ctype} *given,
    % endif
    __global ${ctype} *x,
    const long x_at,
    __global ${index} *found,
    __global ${ctype} *parts,
    const long given_count,
    const ${name}_plan p)
{
    const ${index} count = given_count;
    const ${index} chunks = (count + ${chunk - 1}) / ${chunk};
    const ${index} size = chunks * p.elements;
    x += x_at;
% if kernel == "sum":
    y += y_at;
% endif
    for (${index} n = get_global_id(0); n < size; n += get_global_size(0)) {
        const ${index} c = n / p.elements;
        const ${index} e = n - c * p.elements;
        const ${index} first = c * ${chunk};
        const ${index} last = min(count, first + ${chunk});
        ${places()}
        ${index} head_key = -1;
        ${index} tail_key = -1;
        ${index} k = first;
        ${ctype} head = ${nothing};
        ${ctype} tail = ${nothing};
        while (k < last) {
            const ${index} key = keys[k];
            const ${index} start = k;
            const int begins = k == 0 || keys[k - 1] != key;
            const int is_long = key >= 0
                && (begins ? ${name}_is_long(keys, k, count) : ${name}_goes_on(keys, k, count));
            if (key < 0 || !(begins || is_long)) {  // no pair, or the chunk before adds it
                do ++k; while (k < last && keys[k] == key);
                continue;
            }
            const ${index} stop = is_long ? last : count;
            ${ctype} sum = is_long ? ${nothing} : x[to + key];
            for (; k < stop && keys[k] == key; ++k) {
                const ${ctype} value = ${value};
                sum = ${combine.format(a="sum", b="value")};
            }
            if (!is_long) {
                x[to + key] = sum;
            } else if (start == first) {
                head = sum;
                head_key = key;
                if (k == last && last < count && keys[last] == key)
                    tail_key = key;
            } else {
                tail = sum;
                tail_key = key;
            }
        }
        if (chunks == 1)
            continue;
        if (e == 0) {
            found[2 * c] = head_key;
            found[2 * c + 1] = tail_key;
        }
        parts[2 * c * p.elements + e] = head;
        parts[(2 * c + 1) * p.elements + e] = tail;
    }
}

% endfor
% endif
