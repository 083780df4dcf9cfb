## x[i] for CPUs, where x has dense rows, or single elements, of which the index picks some. The range of the indices of a block
## is found with vectors first: most blocks need no look at each of them. One that is out of range is reported, and taken for 0.
<%page args="name, ctype, index_type, is_checked, lanes, index_lanes"/>\
<%!
from pytensor_cl.codegen.dtypes import to_long, widened

BLOCK, AHEAD = 1024, 16
%>\
<% halves = [lanes >> k for k in range(lanes.bit_length() - 1)] %>\
% for n in halves:
typedef ${widened(ctype, n)} ${name}_vector${n} __attribute__((aligned(sizeof(${ctype}))));
% endfor
typedef ${index_type}${index_lanes} ${name}_indices __attribute__((aligned(sizeof(${index_type}))));
typedef struct { long o, x, i, rows, run, o_row, x_row, i_step, length, is_far; } ${name}_plan;

/* Whether indices that lie side by side count from the start and are in range. */
__attribute__((noinline)) static int ${name}_is_plain(__global const ${index_type} *i, const long count, const long length)
{
    if (count < ${index_lanes}) return 0;
    ${index_type}${index_lanes} low = *(__global const ${name}_indices *)i, high = low;
    for (long b = 0; b < count; b += ${index_lanes}) {
        const ${index_type}${index_lanes} v = *(__global const ${name}_indices *)(i + min(b, count - ${index_lanes}));
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    int is_plain = 1;
% for k in range(index_lanes):
    is_plain &= ${to_long(index_type, f"low.s{k:x}")} >= 0 & ${to_long(index_type, f"high.s{k:x}")} < length;
% endfor
    return is_plain;
}

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
            for (; c < p.run; ++c) to[c] = from[c];
</%def>\

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${index_type} *i, __global const ${ctype} *x, __global ${ctype} *o, const ${name}_plan p,
                      volatile __global int *alarm, const int number)
{
    o += p.o;
    x += p.x;
    i += p.i;
    const long stop = p.rows * (get_global_id(0) + 1) / get_global_size(0);
    for (long first = p.rows * get_global_id(0) / get_global_size(0); first < stop; first += ${BLOCK}) {
        const long end = min(first + ${BLOCK}, stop);
        const int is_plain = p.i_step == 1 && ${name}_is_plain(i + first, end - first, p.length);
        if (is_plain && p.run == 1) {
            #pragma clang loop unroll_count(4)
            for (long b = first; b < end; ++b) o[b * p.o_row] = x[(long)i[b] * p.x_row];
            continue;
        }
        if (is_plain) {
            for (long b = first; b < end; ++b) {
                if (p.is_far) fetch_ahead(x + (long)i[min(b + ${AHEAD}, end - 1)] * p.x_row, p.run * sizeof(${ctype}));
                ${copy("(long)i[b]")}
            }
            continue;
        }
        for (long b = first; b < end; ++b) {
            const long given = ${to_long(index_type, "i[b * p.i_step]")};
            long at = given < 0 ? given + p.length : given;
% if is_checked:
            if (at < 0 || at >= p.length) {
                raise_alarm(alarm, number, 0, given, p.length);
                at = 0;
            }
% endif
            ${copy("at")}
        }
    }
}
