## Algorithm   Reductions of rows of a table that an index gathers, for CPUs (embedding bag): the rows of a bag are read
##             where they are, and not copied.
## Operands    table[length][columns], rows `row` apart; i[bags][count] with steps bag_step and step; o[bags][columns].
## Tiling      Vectors along the columns; each keeps its accumulator in a register for the whole bag.
## NDRange     (work-items): each takes a contiguous range of the bags.
## Invariants  An index that is out of range is reported, and taken for 0. Rows of a table that exceeds the
##             second-level cache (is_far) are prefetched AHEAD indices before they are read.
<%page args="name, plan, index_type, is_checked, in_dtype, acc_dtype, out_dtype, combine, identity, compensation,
             lanes, unit, index, pair_in, pair_out"/>
<%namespace name="bounds" file="/common/bounds.mako"/>
<%include file="/common/partition.mako"/>\
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype

    AHEAD = 12

    def sizes(lanes):
        return [(lanes, 2), *((lanes >> k, 1) for k in range(lanes.bit_length()))]
%>
% for n in dict(sizes(lanes)):
${shared.accumulator(n)}
% endfor
${plan.c_typedef(f"{name}_plan")}

## Reduce columns, as many as `wide` vectors of n have, as often as there are so many left.
<%def name="columns(n, wide)">
        for (; c + ${n * wide} <= p.columns; c += ${n * wide}) {
            % for k in range(wide):
            ${name}_a${n} sum${k} = ${name}_identity${n}();
            % endfor
            for (long b = 0; b < p.count; ++b) {
                ${bounds.decode("at", index_type, "own[b * p.step]", "p.length", is_checked)}
                __global const ${ctype(in_dtype)} *row = table + at * p.row + c;
                if (p.is_far) {
                    __global const ${index_type} *next = own + (b + ${AHEAD}) * p.step;
                    if (next < last)
                        fetch_ahead(table + (long)*next * p.row + c, p.columns * sizeof(${ctype(in_dtype)}));
                }
                % for k in range(wide):
                sum${k} = ${name}_combine${n}(sum${k}, ${name}_load${n}(row + ${k * n}, 1, 0));
                % endfor
            }
            % for k in range(wide):
            ${name}_store${n}(sum${k}, to + c + ${k * n}, 1, 0);
            % endfor
        }
</%def>

__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
__kernel void ${name}(__global const ${ctype(in_dtype)} *table, __global const ${index_type} *i,
    __global ${ctype(out_dtype)} *o, const ${name}_plan p, volatile __global int *error_flag, const int error_code)
{
    table += p.table;
    const long end = partition_begin(p.bags, 1, get_global_id(0) + 1, get_global_size(0));
    for (long bag = partition_begin(p.bags, 1, get_global_id(0), get_global_size(0)); bag < end; ++bag) {
        __global const ${index_type} *own = i + p.i + bag * p.bag_step;
        __global ${ctype(out_dtype)} *to = o + p.o + bag * p.columns;
        // Where the indices of all bags follow one another, the next bag's rows are prefetched too.
        __global const ${index_type} *last =
            own + (p.bag_step == p.count * p.step ? p.bags - bag : 1) * p.count * p.step;
        long c = 0;
        % for n, wide in sizes(lanes):
        ${columns(n, wide)}
        % endfor
    }
}
