## o = x with rows of y added, or set, where an index says, for large arrays on CPUs: the numbers of the values are put in the order
## of their positions, by counting, and then each row is added up where it is. The order of the values of a row stays: sums are
## NumPy's to the bit, the last one wins. Work-items of all kernels but `sum` have the same shares of the index.
<%page args="name, ctype, index_type, is_checked, combine, lanes"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long


def sizes(lanes):
    return [(lanes, 2), *((lanes >> k, 1) for k in range(lanes.bit_length()))]

AHEAD = 12  # rows that are asked for before they are needed
%>\
% for n, wide in sizes(lanes)[1:-1]:
typedef ${ctype}${n} ${name}_v${n} __attribute__((aligned(sizeof(${ctype}))));
% endfor
typedef ${ctype} ${name}_v1;
typedef struct { long o, x, y, i, ends, count, length, run, x_row, x_step, inner, y_count, y_outer, i_step; } ${name}_plan;

<%def name="share(what)">
    const long item = get_global_id(0), items = get_global_size(0);
    const long begin = p.${what} * item / items, end = p.${what} * (item + 1) / items;
</%def>
## Declare `at`, or go on with the next index.
<%def name="place()">
        const long given = ${to_long(index_type, "i[b * p.i_step]")}, at = given < 0 ? given + p.length : given;
% if is_checked:
        if (at < 0 || at >= p.length) continue;
% endif
</%def>\
<% alone = "__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))" %>\
/* How many values of its share each work-item has for each position. */
${alone} __kernel void ${name}_count(__global const ${index_type} *i, __global int *counts, const ${name}_plan p, volatile __global int *alarm, const int number)
{
    ${share("count")}
    counts += item * p.length;
    i += p.i;
    for (long k = 0; k < p.length; ++k) counts[k] = 0;
    for (long b = begin; b < end; ++b) {
% if is_checked:
        const long asked = ${to_long(index_type, "i[b * p.i_step]")};
        if (asked < -p.length || asked >= p.length) raise_alarm(alarm, number, 0, asked, p.length);
% endif
        ${place()}
        counts[at] += 1;
    }
}

/* How many values each work-item's share of the positions has. */
${alone} __kernel void ${name}_totals(__global const int *counts, __global int *totals, const ${name}_plan p)
{
    ${share("length")}
    int total = 0;
    for (long part = 0; part < items; ++part)
        for (long k = begin; k < end; ++k) total += counts[part * p.length + k];
    totals[item] = total;
}

/* Where the values of each work-item's share of the index begin, for each position. */
${alone} __kernel void ${name}_starts(__global int *counts, __global const int *totals, const ${name}_plan p)
{
    ${share("length")}
    int start = 0;
    for (long part = 0; part < item; ++part) start += totals[part];
    for (long k = begin; k < end; ++k)
        for (long part = 0; part < items; ++part) {
            const int n = counts[part * p.length + k];
            counts[part * p.length + k] = start;
            start += n;
        }
}

/* The numbers of the values in their new order; what was where they begin becomes where they end. */
${alone} __kernel void ${name}_place(__global const ${index_type} *i, __global int *counts, __global int *order, const ${name}_plan p)
{
    ${share("count")}
    counts += item * p.length;
    i += p.i;
    for (long b = begin; b < end; ++b) {
        ${place()}
        order[counts[at]++] = (int)b;
    }
}

static long ${name}_value(const long b, const ${name}_plan *p)
{
    return p->inner == p->count ? b * p->y_count : b / p->inner * p->y_outer + b % p->inner * p->y_count;
}

/* The first position from which on a share of the work lies, counting values and positions. */
static long ${name}_border(__global const int *ends, const long length, const long work)
{
    long low = 0, high = length;
    while (low < high) {
        const long middle = (low + high) / 2;
        if (ends[middle] + middle < work) low = middle + 1; else high = middle;
    }
    return low;
}

## Columns of a row, as many as `wide` vectors of n have, as often as there are so many left.
<%def name="columns(n, wide)">
        for (; c + ${n * wide} <= p.run; c += ${n * wide}) {
% for k in range(wide):
            ${name}_v${n} sum${k} = p.x_step ? *(__global const ${name}_v${n} *)(own + c + ${k * n}) : (${name}_v${n})(*own);
% endfor
            for (long k = start; k < ends[row]; ++k) {
                fetch_ahead(y + ${name}_value(order[min(k + ${AHEAD}, after - 1)], &p) + c, p.run * sizeof(${ctype}));
                __global const ${ctype} *value = y + ${name}_value(order[k], &p) + c;
% for k in range(wide):
                sum${k} = ${combine.format(a=f"sum{k}", b=f"*(__global const {name}_v{n} *)(value + {k * n})")};
% endfor
            }
% for k in range(wide):
            *(__global ${name}_v${n} *)(to + c + ${k * n}) = sum${k};
% endfor
        }
</%def>

/* Add up the rows; `ends` says where the values of each of them end. */
${alone} __kernel void ${name}_sum(__global const int *ends, __global const int *order, __global const ${ctype} *x, __global const ${ctype} *y,
                              __global ${ctype} *o, const ${name}_plan p)
{
    ends += p.ends;
    const long item = get_global_id(0), items = get_global_size(0), work = ends[p.length - 1] + p.length;
    const long begin = ${name}_border(ends, p.length, work * item / items), end = item + 1 < items ? ${name}_border(ends, p.length, work * (item + 1) / items) : p.length;
    const long after = begin < end ? ends[end - 1] : 0;
    y += p.y;
    for (long row = begin; row < end; ++row) {
        const long start = row ? ends[row - 1] : 0;
        __global const ${ctype} *own = x + p.x + row * p.x_row;
        __global ${ctype} *to = o + p.o + row * p.run;
        long c = 0;
% for n, wide in sizes(lanes):
        ${columns(n, wide)}
% endfor
    }
}
