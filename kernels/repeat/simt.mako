## Algorithm   Run-length expansion for GPUs: see kernels/repeat/cpu.mako. Each work-item searches the element of its
##             result in `ends`, which has the end of each element's repetitions here.
## Operands    As in kernels/repeat/cpu.mako; ends[length].
## NDRange     _block_totals: a work-group for each block; `<name>`: any size, a loop with it as stride.
<%page args="name, element, block, index, group"/>\
<%namespace name="workgroup" file="/common/workgroup.mako"/>\
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_block_totals(__global const long *repeats, const long repeats_at, const long step, const long length,
    __global long *totals)
{
    __local long sums[${group}], lows[${group}];
    const int item = get_local_id(0);
    const long first = get_group_id(0) * (long)${block};
    const long last = min(length, first + ${block});
    repeats += repeats_at;
    long total = 0;
    long lowest = 0;
    for (long i = first + item; i < last; i += ${group}) {
        total += repeats[i * step];
        lowest = min(lowest, repeats[i * step]);
    }
    sums[item] = total;
    lows[item] = lowest;
    <%workgroup:tree_reduce group="${group // 2}">
            sums[item] += sums[item + distance];
            lows[item] = min(lows[item], lows[item + distance]);
    </%workgroup:tree_reduce>
    if (item == 0)
        totals[get_group_id(0)] = lows[0] < 0 ? -1 : sums[0];
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${element} *x, const long x_at, __global const long *ends, __global ${element} *o,
    const long outer, const long length, const long inner, const long total)
{
    x += x_at;
    const ${index} size = outer * total * inner;
    const ${index} width = inner;
    const ${index} rows = total;
    for (${index} place = get_global_id(0); place < size; place += get_global_size(0)) {
        const ${index} row = place / width;
        const ${index} outer_index = row / rows;
        const ${index} at = row - outer_index * rows;
        ${index} low = 0;
        ${index} high = length - 1;
        while (low < high) {  // the first element whose repetitions end behind `at`
            const ${index} middle = low + (high - low) / 2;
            if (ends[middle] > at)
                high = middle;
            else
                low = middle + 1;
        }
        o[place] = x[(outer_index * (${index})length + low) * width + place - row * width];
    }
}
