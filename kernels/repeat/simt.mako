## Elements of an array, each repeated as often as its number says, for GPUs. See kernels/repeat/cpu.mako; `ends` has the end of each
## element's repetitions here, in which each work-item searches.
<%page args="name, element, block, index, group"/>\
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_totals(__global const long *repeats, const long repeats_at, const long step, const long length,
                    __global long *totals)
{
    __local long sums[${group}], lows[${group}];
    const int item = get_local_id(0);
    const long first = get_group_id(0) * (long)${block}, last = min(length, first + ${block});
    repeats += repeats_at;
    long total = 0, lowest = 0;
    for (long i = first + item; i < last; i += ${group}) {
        total += repeats[i * step];
        lowest = min(lowest, repeats[i * step]);
    }
    sums[item] = total;
    lows[item] = lowest;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int reach = ${group // 2}; reach; reach /= 2) {
        if (item < reach) {
            sums[item] += sums[item + reach];
            lows[item] = min(lows[item], lows[item + reach]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (item == 0) totals[get_group_id(0)] = lows[0] < 0 ? -1 : sums[0];
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${element} *x, const long x_at, __global const long *ends, __global ${element} *o,
             const long outer, const long length, const long inner, const long total)
{
    x += x_at;
    const ${index} size = outer * total * inner, width = inner, rows = total;
    for (${index} place = get_global_id(0); place < size; place += get_global_size(0)) {
        const ${index} row = place / width, slab = row / rows, at = row - slab * rows;
        ${index} low = 0, high = length - 1;
        while (low < high) {  // the first element whose repetitions end behind `at`
            const ${index} middle = low + (high - low) / 2;
            if (ends[middle] > at) high = middle; else low = middle + 1;
        }
        o[place] = x[(slab * (${index})length + low) * width + place - row * width];
    }
}
