## x[positions] = y, or += y, in place, for CPUs. Each position belongs to one work-item, which takes all that goes there in
## order: repeated positions need no atomics, the last one wins or the sum is NumPy's to the bit.
## Dimension 0 of the NDRange shares out the elements of x that one position means, dimension 1 the positions.
## The values of `inner` positions lie y_count apart; from the last of them it is y_next to those of the next one.
<%page args="name, ctype, combine, ndim, index, lanes"/>\
<%!
from pytensor_cl.dtypes import widened
%>\
typedef ${widened(ctype, lanes)} ${name}_vector __attribute__((aligned(sizeof(${ctype}))));
typedef struct {
    ${index} shape[${ndim}], x[${ndim}], y[${ndim}];
    ${index} segment, segments, units, run, y_run, count, inner, y_count, y_next, span;
} ${name}_plan;

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index} *positions, __global ${ctype} *x, __global const ${ctype} *y, const long x_at,
                      const long y_at, const ${name}_plan p)
{
    const long part = get_global_id(0), parts = get_global_size(0), owner = get_global_id(1), owners = get_global_size(1);
    const ${index} low = p.span * owner / owners, high = p.span * (owner + 1) / owners;
    const ${index} end = p.units * (part + 1) / parts;
    for (${index} unit = p.units * part / parts; unit < end; ++unit) {
        ${index} rest = unit / p.segments;
        const ${index} first = (unit - rest * p.segments) * p.segment, count = min(p.segment, p.run - first);
        __global ${ctype} *to = x + x_at + first;
        __global const ${ctype} *from = y + y_at + first * p.y_run;
% for d in reversed(range(ndim)):
        {
            const ${index} i = ${f"rest % p.shape[{d}]" if d else "rest"};
            ${f"rest /= p.shape[{d}];" if d else ""}
            to += i * p.x[${d}];
            from += i * p.y[${d}];
        }
% endfor
        if (count == 1) {
            for (${index} outer = 0; outer < p.count; outer += p.inner) {
                for (${index} b = 0; b < p.inner; ++b) {
                    const ${index} at = positions[outer + b];
                    if (at >= low && at < high) to[at] = ${combine.format(a="to[at]", b="from[b * p.y_count]")};
                }
                from += (p.inner - 1) * p.y_count + p.y_next;
            }
            continue;
        }
        for (${index} outer = 0; outer < p.count; outer += p.inner, from += p.y_next - p.y_count)
        for (${index} b = 0; b < p.inner; ++b, from += p.y_count) {
            const ${index} at = positions[outer + b];
            if (at < low || at >= high) continue;
            ${index} c = 0;
            if (p.y_run == 1) {
                for (; c + ${lanes} <= count; c += ${lanes}) {
                    __global ${name}_vector *v = (__global ${name}_vector *)(to + at + c);
                    *v = ${combine.format(a="*v", b=f"*(__global const {name}_vector *)(from + c)")};
                }
            }
            for (; c < count; ++c) to[at + c] = ${combine.format(a="to[at + c]", b="from[c * p.y_run]")};
        }
    }
}
