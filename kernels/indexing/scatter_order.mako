## Algorithm   o = x with rows of y added, or set, at the positions of an index, for large arrays on CPUs: a counting
##             sort of the values by position, then a reduction of each segment. Kernels in order: _count (histogram of
##             each share of the index), _totals (sum of each share of the positions), _starts (exclusive prefix scan),
##             _place (stable rank of each value), _sum (segment reduction).
## Operands    x[length][run], rows x_row apart; i[count] with step i_step; y: values y_count apart, y_outer after
##             `inner`.
## NDRange     (work-items), the same for all kernels but _sum: each takes an even share of the index or of the
##             positions.
## Workspace   counts[work-items][length], which ends as the end of each segment; totals[work-items]; order[count].
## Invariants  The order of the values of a row stays: sums are NumPy's to the bit, the last one wins.
## Example     i = 2 0 2 1 0 2: order = 1 4 | 3 | 0 2 5, ends = 2 3 6.
<%page args="name, plan, ctype, index_type, is_checked, combine, lanes"/>\
<%include file="/common/partition.mako"/>\
<%include file="/common/merge_path.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long


def sizes(lanes):
    return [(lanes, 2), *((lanes >> k, 1) for k in range(lanes.bit_length()))]

AHEAD = 12  # prefetch distance in rows
%>\
% for n, wide in sizes(lanes)[1:-1]:
typedef ${ctype}${n} ${name}_v${n} __attribute__((aligned(sizeof(${ctype}))));
% endfor
typedef ${ctype} ${name}_v1;
${plan.c_typedef(f"{name}_plan")}

<%def name="share(what)">
    const long item = get_global_id(0);
    const long items = get_global_size(0);
    const long begin = partition_begin(p.${what}, 1, item, items);
    const long end = partition_begin(p.${what}, 1, item + 1, items);
</%def>
## Declare `at`, or go on with the next index.
<%def name="place()">
        const long given = ${to_long(index_type, "i[b * p.i_step]")};
        const long at = given < 0 ? given + p.length : given;
% if is_checked:
        if (at < 0 || at >= p.length)
            continue;
% endif
</%def>\
<% alone = "__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))" %>\
/* How many values of its share each work-item has for each position. */
${alone} __kernel void ${name}_count(__global const ${index_type} *i, __global int *counts, const ${name}_plan p,
    volatile __global int *error_flag, const int error_code)
{
    ${share("count")}
    counts += item * p.length;
    i += p.i;
    for (long k = 0; k < p.length; ++k)
        counts[k] = 0;
    for (long b = begin; b < end; ++b) {
% if is_checked:
        const long index = ${to_long(index_type, "i[b * p.i_step]")};
        if (index < -p.length || index >= p.length)
            report_error(error_flag, error_code, 0, index, p.length);
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
        for (long k = begin; k < end; ++k)
            total += counts[part * p.length + k];
    totals[item] = total;
}

/* Where the values of each work-item's share of the index begin, for each position. */
${alone} __kernel void ${name}_starts(__global int *counts, __global const int *totals, const ${name}_plan p)
{
    ${share("length")}
    int start = 0;
    for (long part = 0; part < item; ++part)
        start += totals[part];
    for (long k = begin; k < end; ++k)
        for (long part = 0; part < items; ++part) {
            const int n = counts[part * p.length + k];
            counts[part * p.length + k] = start;
            start += n;
        }
}

/* The numbers of the values in their new order; what was where they begin becomes where they end. */
${alone} __kernel void ${name}_place(__global const ${index_type} *i, __global int *counts, __global int *order,
    const ${name}_plan p)
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

## Columns of a row, as many as `wide` vectors of n have, as often as there are so many left.
<%def name="columns(n, wide)">
        for (; c + ${n * wide} <= p.run; c += ${n * wide}) {
% for k in range(wide):
            ${name}_v${n} sum${k} = p.x_step ? *(__global const ${name}_v${n} *)(own + c + ${k * n})
                : (${name}_v${n})(*own);
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

/* Add up the rows; `ends` has the end of the values of each of them. */
${alone} __kernel void ${name}_sum(__global const int *ends, __global const int *order, __global const ${ctype} *x,
    __global const ${ctype} *y,
                              __global ${ctype} *o, const ${name}_plan p)
{
    ends += p.ends;
    const long item = get_global_id(0);
    const long items = get_global_size(0);
    const long work = ends[p.length - 1] + p.length;
    const long begin = merge_path_row(ends, p.length, partition_begin(work, 1, item, items));
    const long end = item + 1 < items ? merge_path_row(ends, p.length, partition_begin(work, 1, item + 1, items))
        : p.length;
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
