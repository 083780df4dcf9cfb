## Algorithm   Sums of weighted elements along an axis for GPUs: see kernels/resampling/cpu.mako. Neighbouring
##             work-items compute neighbouring elements of y.
## Operands    As in kernels/resampling/cpu.mako.
## NDRange     Any size, a loop with it as stride.
<%page args="name, element, weighted, gaps, index"/>\
__kernel void ${name}(__global const ${element} *restrict x, const long x_at, __global const int *restrict index,
    const long index_at,${f" __global const {element} *restrict weight, const long weight_at," if weighted else ""}
    __global ${element} *restrict y, const long outer, const long length, const long results, const long inner,
    const long taps)
{
    x += x_at;
    index += index_at;
% if weighted:
    weight += weight_at;
% endif
    const ${index} size = outer * results * inner;
    const ${index} width = inner;
    const ${index} rows = results;
    for (${index} place = get_global_id(0); place < size; place += get_global_size(0)) {
        const ${index} row = place / width;
        const ${index} o = row / rows;
        const ${index} i = row - o * rows;
        __global const ${element} *column = x + o * (${index})length * width + place - row * width;
        ${element} sum = 0;
        for (int k = 0; k < taps; ++k) {
            const int from = index[k * results + i];
% if gaps:
            if (from >= 0)
% endif
                sum += ${f"weight[k * results + i] * " if weighted else ""}column[from * width];
        }
        y[place] = sum;
    }
}
