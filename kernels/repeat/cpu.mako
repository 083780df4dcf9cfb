## Algorithm   Run-length expansion for CPUs: each element is repeated as many times as its count. `<name>_block_totals`
##             adds up the counts of each block (-1 if one is negative); `<name>` finds the first element of its range
##             by a binary search in `ends`, the prefix sum of the totals.
## Operands    x[outer][length][inner], repeats[length] with a step; o[outer][total][inner].
## NDRange     (parts, parts): dimension 0 divides the rows of o, dimension 1 the columns.
## Invariants  A work-item writes beyond its own results only where it overwrites that itself later.
<%page args="name, element, vector, lanes, block"/>\
<%include file="/common/partition.mako"/>\
typedef ${vector} ${name}_vector __attribute__((aligned(sizeof(${element}))));

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_block_totals(__global const long *repeats, const long repeats_at, const long step, const long length,
    __global long *totals)
{
    repeats += repeats_at;
    const long blocks = (length + ${block - 1}) / ${block};
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    for (long b = partition_begin(blocks, 1, part, parts); b < partition_begin(blocks, 1, part + 1, parts); ++b) {
        const long first = b * ${block};
        const long last = min(length, first + ${block});
        long total = 0;
        long lowest = 0;
        for (long i = first; i < last; ++i) {
            total += repeats[i * step];
            lowest = min(lowest, repeats[i * step]);
        }
        totals[b] = lowest < 0 ? -1 : total;
    }
}

static inline void ${name}_copy(__global ${element} *to, __global const ${element} *from, const long count)
{
    long c = 0;
    for (; c + ${lanes} <= count; c += ${lanes})
        *(__global ${name}_vector *)(to + c) = *(__global const ${name}_vector *)(from + c);
    for (; c < count; ++c)
        to[c] = from[c];
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(__global const ${element} *x, const long x_at, __global const long *repeats, const long repeats_at,
    const long step, __global const long *ends, __global ${element} *o, const long outer, const long length,
    const long inner, const long total)
{
    x += x_at;
    repeats += repeats_at;
    const long rows = outer * total;
    const long part = get_global_id(0);
    const long parts = get_global_size(0);
    const long column = partition_begin(inner, 1, get_global_id(1), get_global_size(1));
    const long columns = partition_begin(inner, 1, get_global_id(1) + 1, get_global_size(1)) - column;
    const long last = partition_begin(rows, 1, part + 1, parts);
    for (long row = partition_begin(rows, 1, part, parts); row < last;) {
        const long outer_index = row / total;
        const long at = row - outer_index * total;
        const long stop = min(total, last - outer_index * total);
        long low = 0;
        long high = (length + ${block - 1}) / ${block} - 1;
        while (low < high) {  // the first block that ends behind `at`
            const long middle = (low + high) / 2;
            if (ends[middle] > at)
                high = middle;
            else
                low = middle + 1;
        }
        long i = low * ${block};
        long k = low ? ends[low - 1] : 0;
        while (k + repeats[i * step] <= at)
            k += repeats[i++ * step];
        long count = min(stop, k + repeats[i * step]) - at;
        k = at;
        __global const ${element} *from = x + (outer_index * length + i) * inner + column;
        __global ${element} *to = o + outer_index * total * inner + column;
        if (inner == 1) {
            for (;;) {
                const ${vector} value = ${"(" + vector + ")(*from)" if lanes > 1 else "*from"};
                /* What is too much is overwritten by the next elements, as long as they are this work-item's. */
                if (k + count + ${lanes} <= stop) {
                    *(__global ${name}_vector *)(to + k) = value;
                    for (long c = ${lanes}; c < count; c += ${lanes})
                        *(__global ${name}_vector *)(to + k + c) = value;
                } else
                    for (long c = 0; c < count; ++c)
                        to[k + c] = *from;
                k += count;
                if (k >= stop)
                    break;
                ++from;
                count = min(stop - k, repeats[++i * step]);
            }
        } else {
            for (;;) {
                for (; count > 0; --count, ++k)
                    ${name}_copy(to + k * inner, from, columns);
                if (k >= stop)
                    break;
                from += inner;
                count = min(stop - k, repeats[++i * step]);
            }
        }
        row = outer_index * total + stop;
    }
}
