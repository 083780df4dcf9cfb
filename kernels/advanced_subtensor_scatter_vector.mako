## x[i] = y, or += y, in place, for vectors on CPUs: a work-item reads the indices itself, in order, so that repeated ones need
## no atomics, the last one wins or the sum is NumPy's to the bit. One that is out of range is reported.
## Where equal indices follow one another, which the first few of a block tell, the element stays in a register.
<%page args="name, ctype, index_type, is_checked, combine"/>\
<%!
BLOCK, SAMPLE, RUN = 1024, 32, 4
%>\
<%def name="next_index()">
            const long given = (long)i[b * p.i_step];
            const long at = given < 0 ? given + p.length : given;
% if is_checked:
            if (at < 0 || at >= p.length) {
                raise_alarm(alarm, number, 0, given, p.length);
                continue;
            }
% endif
</%def>\
<% value = "y[b * p.y_step]" %>\
typedef struct { long x, y, i, count, y_step, i_step, length; } ${name}_plan;

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index_type} *i, __global ${ctype} *x, __global const ${ctype} *y, const ${name}_plan p,
                      volatile __global int *alarm, const int number)
{
    x += p.x;
    y += p.y;
    i += p.i;
    for (long first = 0; first < p.count; first += ${BLOCK}) {
        const long end = min(first + ${BLOCK}, p.count), sampled = min(first + ${SAMPLE}, end);
        int runs = 1;
        for (long b = first + 1; b < sampled; ++b) runs += i[b * p.i_step] != i[(b - 1) * p.i_step];
        if (runs * ${RUN} > sampled - first) {
            for (long b = first; b < end; ++b) {
                ${next_index()}
                x[at] = ${combine.format(a="x[at]", b=value)};
            }
            continue;
        }
        ${ctype} sum = 0;
        long last = -1;
        for (long b = first; b < end; ++b) {
            ${next_index()}
            if (at != last) {
                if (last >= 0) x[last] = sum;
                sum = x[at];
                last = at;
            }
            sum = ${combine.format(a="sum", b=value)};
        }
        if (last >= 0) x[last] = sum;
    }
}
