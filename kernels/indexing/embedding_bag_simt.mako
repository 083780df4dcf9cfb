## Algorithm   Reductions of rows of a table that an index gathers, for GPUs (embedding bag): a work-item has one
##             element of a result, and reads the rows of its bag where they are, several before it combines the first.
## Operands    As in kernels/indexing/embedding_bag.mako.
## NDRange     Any size; a loop with it as stride.
## Invariants  An index that is out of range is reported, and taken for 0.
<%page args="name, plan, index_type, is_checked, in_dtype, acc_dtype, out_dtype, combine, identity, compensation,
             lanes, unit, index, pair_in, pair_out"/>
<%namespace name="bounds" file="/common/bounds.mako"/>
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype

    AHEAD = 4
%>
${shared.accumulator(1)}
${plan.c_typedef(f"{name}_plan")}

<%def name="load(k, b)">
            ${name}_a1 value${k};
            {
                ${bounds.decode("at", index_type, f"own[({b}) * p.step]", "p.length", is_checked)}
                value${k} = ${name}_load1(column + at * p.row, 1, 0);
            }
</%def>
__kernel void ${name}(__global const ${ctype(in_dtype)} *restrict table, __global const ${index_type} *restrict i,
    __global ${ctype(out_dtype)} *restrict o, const ${name}_plan p, volatile __global int *error_flag,
    const int error_code)
{
    const uint columns = p.columns;
    const uint size = p.bags * p.columns;
    const uint count = p.count;
    for (uint n = get_global_id(0); n < size; n += get_global_size(0)) {
        const uint bag = n / columns;
        __global const ${index_type} *own = i + p.i + bag * p.bag_step;
        __global const ${ctype(in_dtype)} *column = table + p.table + (n - bag * columns);
        ${name}_a1 sum = ${name}_identity1();
        uint b = 0;
        for (; b + ${AHEAD} <= count; b += ${AHEAD}) {
            % for k in range(AHEAD):
            ${load(k, f"b + {k}")}
            % endfor
            % for k in range(AHEAD):
            sum = ${name}_combine1(sum, value${k});
            % endfor
        }
        for (; b < count; ++b) {
            ${load(0, "b")}
            sum = ${name}_combine1(sum, value0);
        }
        ${name}_store1(sum, o + p.o + n, 1, 0);
    }
}
