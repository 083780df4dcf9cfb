## Algorithm   x[positions] += y, in place, by the atomic additions of NVIDIA's GPUs, for float32 and float64: the order
##             of the sums is not fixed. The feature `float_atomics` says whether they work.
## Operands    positions[count] in elements of x, -1 where nothing is added; y:
##             values of positions are y_count apart, y_outer after `inner`;
##             shape, x, y: the elements that one position means.
## NDRange     Any size; a loop with it as stride.
<%page args="name, plan, ctype, ndim, index"/>\
<%namespace name="unravel" file="/common/unravel.mako"/>\
<%namespace name="runs" file="/indexing/value_runs.mako"/>\
<% ahead, kind, register = 4, *{"float": ("f32", "f"), "double": ("f64", "d")}[ctype] %>\
${plan.c_typedef(f"{name}_plan")}

__kernel void ${name}(__global const ${index} *restrict positions, __global ${ctype} *x,
    __global const ${ctype} *restrict y, const long x_at, const long y_at, const ${name}_plan p)
{
    const ${index} size = p.count * p.elements;
    const ${index} step = get_global_size(0);
    x += x_at;
    y += y_at;
    for (${index} first = get_global_id(0); first < size; first += ${ahead} * step) {
        // several values are read before the first is added
        % for j in range(ahead):
        __global ${ctype} *target${j} = x;
        ${ctype} value${j} = 0;
        int is_added${j} = 0;
        if (first + ${j} * step < size) {
            const ${index} k = (first + ${j} * step) / p.elements;
            ${index} rest = first + ${j} * step - k * p.elements;
            ${index} to = positions[k];
            ${index} from = ${runs.at("k")};
            ${unravel.unravel(range(ndim), index, "rest", "p.shape[{}]", [("to", "p.x[{}]"), ("from", "p.y[{}]")])}
            target${j} += to;
            value${j} = y[from];
            is_added${j} = positions[k] >= 0;
        }
        % endfor
        % for j in range(ahead):
        if (is_added${j})
            asm volatile("red.global.add.${kind} [%0], %1;" : : "l"(target${j}), "${register}"(value${j}) : "memory");
        % endfor
    }
}
