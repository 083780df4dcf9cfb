## x[i] = y, or += y, in place, for vectors on CPUs: a work-item reads the indices itself, in order, so that repeated ones need
## no atomics. One that is out of range is reported. Several work-items have a share of the indices each, and add to a vector of
## zeros of its own, `apart` elements after that of the one before; else the last one wins, or the sum is NumPy's to the bit.
## Where equal indices follow one another, which the first few of a block tell, the element stays in a register. The range of
## the indices of other blocks is found with vectors first: most need no look at each of them.
<%page args="name, ctype, index_type, is_checked, combine, nothing, lanes"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long

BLOCK, SAMPLE, RUN = 1024, 32, 4
%>\
<%def name="next_index()">
        const long given = ${to_long(index_type, "i[b * p.i_step]")};
        const long at = given < 0 ? given + p.length : given;
% if is_checked:
        if (at < 0 || at >= p.length) {
            raise_alarm(alarm, number, 0, given, p.length);
            continue;
        }
% endif
</%def>\
<% value = "y[b * p.y_step]" %>\
typedef ${index_type}${lanes} ${name}_indices __attribute__((aligned(sizeof(${index_type}))));
typedef struct { long x, y, i, count, y_step, i_step, length, apart; } ${name}_plan;

/* Whether indices that lie side by side count from the start and are in range. */
__attribute__((noinline)) static int ${name}_is_plain(__global const ${index_type} *i, const long count, const long length)
{
    if (count < ${lanes}) return 0;
    ${index_type}${lanes} low = *(__global const ${name}_indices *)i, high = low;
    for (long b = 0; b < count; b += ${lanes}) {
        const ${index_type}${lanes} v = *(__global const ${name}_indices *)(i + min(b, count - ${lanes}));
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    int is_plain = 1;
% for k in range(lanes):
    is_plain &= ${to_long(index_type, f"low.s{k:x}")} >= 0 & ${to_long(index_type, f"high.s{k:x}")} < length;
% endfor
    return is_plain;
}

/* Add up indices that follow equal ones. A function of its own, or it takes a fifth longer. */
__attribute__((noinline)) static void ${name}_add_runs(__global const ${index_type} *i, __global ${ctype} *x, __global const ${ctype} *y,
    const long first, const long end, const ${name}_plan p, volatile __global int *alarm, const int number)
{
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

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index_type} *i, __global ${ctype} *x, __global const ${ctype} *y, const ${name}_plan p,
                      volatile __global int *alarm, const int number)
{
    const long part = get_global_id(0), parts = get_global_size(0), stop = p.count * (part + 1) / parts;
    x += p.x + part * p.apart;
    y += p.y;
    i += p.i;
    if (p.apart)
        for (long k = 0; k < p.length; ++k) x[k] = ${nothing};
    for (long first = p.count * part / parts; first < stop; first += ${BLOCK}) {
        const long end = min(first + ${BLOCK}, stop), sampled = min(first + ${SAMPLE}, end);
        int runs = 1;
        for (long b = first + 1; b < sampled; ++b) runs += i[b * p.i_step] != i[(b - 1) * p.i_step];
        if (runs * ${RUN} <= sampled - first) {
            ${name}_add_runs(i, x, y, first, end, p, alarm, number);
            continue;
        }
        if (p.i_step == 1 && ${name}_is_plain(i + first, end - first, p.length)) {
            #pragma clang loop unroll_count(4)
            for (long b = first; b < end; ++b) {
                const long at = (long)i[b];
                x[at] = ${combine.format(a="x[at]", b=value)};
            }
            continue;
        }
        for (long b = first; b < end; ++b) {
    ${next_index()}
            x[at] = ${combine.format(a="x[at]", b=value)};
        }
    }
}
