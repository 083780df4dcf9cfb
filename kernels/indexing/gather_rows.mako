## Algorithm   x[i] for CPUs, where x has dense rows or single elements (gather of rows). The range of the indices of a
##             block is found with vectors first: most blocks need no check of each index.
## Operands    x[length][run], rows x_row apart; i[rows] with step i_step; o[rows][run], rows o_row apart.
## NDRange     (work-items): each takes a contiguous range of the rows, in blocks of BLOCK.
## Invariants  An index that is out of range is reported, and taken for 0. Rows of a table that exceeds the second-level
##             cache (exceeds_l2) are prefetched AHEAD rows before they are read.
<%page args="name, plan, ctype, index_type, is_checked, lanes, index_lanes"/>\
<%namespace name="bounds" file="/common/bounds.mako"/>\
<%include file="/common/partition.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long, widened

BLOCK, AHEAD = 1024, 16
%>\
<% halves = [lanes >> k for k in range(lanes.bit_length() - 1)] %>\
% for n in halves:
typedef ${widened(ctype, n)} ${name}_vector${n} __attribute__((aligned(sizeof(${ctype}))));
% endfor
${plan.c_typedef(f"{name}_plan")}

${bounds.all_in_bounds(name, index_type, index_lanes)}

<%def name="copy(at)">
            __global const ${ctype} *from = x + ${at} * p.x_row;
            __global ${ctype} *to = o + b * p.o_row;
            long c = 0;
            for (; c + ${lanes} <= p.run; c += ${lanes})
                *(__global ${name}_vector${lanes} *)(to + c) = *(__global const ${name}_vector${lanes} *)(from + c);
% for n in halves[1:]:
            if (c + ${n} <= p.run) {
                *(__global ${name}_vector${n} *)(to + c) = *(__global const ${name}_vector${n} *)(from + c);
                c += ${n};
            }
% endfor
            for (; c < p.run; ++c)
                to[c] = from[c];
</%def>\

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index_type} *i, __global const ${ctype} *x, __global ${ctype} *o,
    const ${name}_plan p, volatile __global int *error_flag, const int error_code)
{
    o += p.o;
    x += p.x;
    i += p.i;
    const long stop = partition_begin(p.rows, 1, get_global_id(0) + 1, get_global_size(0));
    const long begin = partition_begin(p.rows, 1, get_global_id(0), get_global_size(0));
    for (long first = begin; first < stop; first += ${BLOCK}) {
        const long end = min(first + ${BLOCK}, stop);
        const int all_in_bounds = p.i_step == 1 && ${name}_all_in_bounds(i + first, end - first, p.length);
        if (all_in_bounds && p.run == 1) {
            #pragma clang loop unroll_count(4)
            for (long b = first; b < end; ++b)
                o[b * p.o_row] = x[(long)i[b] * p.x_row];
            continue;
        }
        if (all_in_bounds) {
            for (long b = first; b < end; ++b) {
                if (p.exceeds_l2)
                    fetch_ahead(x + (long)i[min(b + ${AHEAD}, end - 1)] * p.x_row, p.run * sizeof(${ctype}));
                ${copy("(long)i[b]")}
            }
            continue;
        }
        for (long b = first; b < end; ++b) {
            ${bounds.decode("at", index_type, "i[b * p.i_step]", "p.length", is_checked)}
            ${copy("at")}
        }
    }
}
