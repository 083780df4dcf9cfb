## Elements of an array, each repeated as often as its number says.
## `<name>_totals`: what the numbers of each block add up to; -1 where one is negative.
## `<name>`: the array is outer x length x inner; each work-item takes a range of the rows of the result, and a range of columns.
<%page args="name, element, vector, lanes, block"/>\
typedef ${vector} ${name}_vector __attribute__((aligned(sizeof(${element}))));

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_totals(__global const long *repeats, const long repeats_at, const long step, const long length,
                    __global long *totals)
{
    repeats += repeats_at;
    const long blocks = (length + ${block - 1}) / ${block}, part = get_global_id(0), parts = get_global_size(0);
    for (long b = blocks * part / parts; b < blocks * (part + 1) / parts; ++b) {
        const long first = b * ${block}, last = min(length, first + ${block});
        long total = 0, lowest = 0;
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
    for (; c + ${lanes} <= count; c += ${lanes}) *(__global ${name}_vector *)(to + c) = *(__global const ${name}_vector *)(from + c);
    for (; c < count; ++c) to[c] = from[c];
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(__global const ${element} *x, const long x_at, __global const long *repeats, const long repeats_at,
             const long step, __global const long *ends, __global ${element} *o, const long outer, const long length,
             const long inner, const long total)
{
    x += x_at;
    repeats += repeats_at;
    const long rows = outer * total, part = get_global_id(0), parts = get_global_size(0);
    const long column = inner * get_global_id(1) / get_global_size(1);
    const long columns = inner * (get_global_id(1) + 1) / get_global_size(1) - column;
    const long last = rows * (part + 1) / parts;
    for (long row = rows * part / parts; row < last;) {
        const long slab = row / total, at = row - slab * total, stop = min(total, last - slab * total);
        long low = 0, high = (length + ${block - 1}) / ${block} - 1;
        while (low < high) {  // the first block that ends behind `at`
            const long middle = (low + high) / 2;
            if (ends[middle] > at) high = middle; else low = middle + 1;
        }
        long i = low * ${block}, k = low ? ends[low - 1] : 0;
        while (k + repeats[i * step] <= at) k += repeats[i++ * step];
        long count = min(stop, k + repeats[i * step]) - at;
        k = at;
        __global const ${element} *from = x + (slab * length + i) * inner + column;
        __global ${element} *to = o + slab * total * inner + column;
        if (inner == 1) {
            for (;;) {
                const ${vector} value = ${"(" + vector + ")(*from)" if lanes > 1 else "*from"};
                /* What is too much is overwritten by the next elements, as long as they are this work-item's. */
                if (k + count + ${lanes} <= stop) {
                    *(__global ${name}_vector *)(to + k) = value;
                    for (long c = ${lanes}; c < count; c += ${lanes}) *(__global ${name}_vector *)(to + k + c) = value;
                } else
                    for (long c = 0; c < count; ++c) to[k + c] = *from;
                k += count;
                if (k >= stop) break;
                ++from;
                count = min(stop - k, repeats[++i * step]);
            }
        } else {
            for (;;) {
                for (; count > 0; --count, ++k) ${name}_copy(to + k * inner, from, columns);
                if (k >= stop) break;
                from += inner;
                count = min(stop - k, repeats[++i * step]);
            }
        }
        row = slab * total + stop;
    }
}
