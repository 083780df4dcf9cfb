## Algorithm   o = x with some slices set or added to, one after the other, for CPUs: a segment of a row at a time,
##             which stays in the cache until all is written.
## Operands    x, o: shape[ndim], o contiguous. Slices are counted upwards: from `start`, `count` elements, `step`
##             apart; steps of their values are `y`.
## NDRange     (work-items): each takes a contiguous range of the tasks; a task is a segment of a row.
<%page args="name, plan, offsets, ctype, ndim, combines, lanes"/>\
<%include file="/common/partition.mako"/>\
<% last, W = ndim - 1, len(combines) %>\
typedef ${ctype}${lanes} ${name}_vector __attribute__((aligned(sizeof(${ctype}))));
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global ${ctype} *o, __global const ${ctype} *x,
% for w in range(W):
    __global const ${ctype} *y${w},
% endfor
    const ${name}_offsets offset, const ${name}_plan p)
{
    const long end = partition_begin(p.tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(p.tasks, 1, get_global_id(0), get_global_size(0)); task < end; ++task) {
        const long row = task / p.segments;
        const long first = (task - row * p.segments) * p.segment;
        const long after = min(first + p.segment, p.shape[${last}]);
        long rest = row;
        __global ${ctype} *to = o + offset.o + row * p.shape[${last}];
        __global const ${ctype} *from = x + offset.x;
% for d in reversed(range(last)):
        const long at${d} = ${f"rest % p.shape[{d}]" if d else "rest"};
        ${f"rest /= p.shape[{d}];" if d else ""}
        from += at${d} * p.x[${d}];
% endfor
        long k = first;
        if (p.x[${last}] == 1)
            for (; k + ${lanes} <= after; k += ${lanes})
                *(__global ${name}_vector *)(to + k) = *(__global const ${name}_vector *)(from + k);
        if (p.x[${last}] == 0)
            for (; k + ${lanes} <= after; k += ${lanes})
                *(__global ${name}_vector *)(to + k) = (${ctype}${lanes})(*from);
        for (; k < after; ++k)
            to[k] = from[k * p.x[${last}]];
% for w, combine in enumerate(combines):
        {
            __global const ${ctype} *value = y${w} + offset.y[${w}];
            int is_in = 1;
    % for d in range(last):
            {
                const long n = at${d} - p.start[${w}][${d}];
                const long q = n / p.step[${w}][${d}];
                is_in &= (n >= 0) & (q < p.count[${w}][${d}]) & (q * p.step[${w}][${d}] == n);
                value += q * p.y[${w}][${d}];
            }
    % endfor
            const long start = p.start[${w}][${last}];
            const long step = p.step[${w}][${last}];
            const long y_step = p.y[${w}][${last}];
            long q = max(0L, first - start + step - 1) / step;
            const long stop = is_in ? min(p.count[${w}][${last}], max(0L, after - start + step - 1) / step) : 0;
            if (step == 1 && y_step == 1)
                for (; q + ${lanes} <= stop; q += ${lanes}) {
                    __global ${name}_vector *v = (__global ${name}_vector *)(to + start + q);
                    *v = ${combine.format(a="*v", b=f"*(__global const {name}_vector *)(value + q)")};
                }
            for (; q < stop; ++q) {
                __global ${ctype} *v = to + start + q * step;
                *v = ${combine.format(a="*v", b="value[q * y_step]")};
            }
        }
% endfor
    }
}
