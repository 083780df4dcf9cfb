## A product of a matrix and a vector, a function of its elements, and the product of the transposed matrix with one of the
## function's results, schedule cpu: a work-item takes blocks of rows, each so small that it is in the cache for the second product.
## Vectors lie along rows or along columns (`order`), whichever are contiguous.
<%page args="name, ctype, dtype, lanes, wide, order, product, factor, has_addend, arrays, values, loops, row_values, totals"/>
<%namespace name="parts" file="/rowwise/common.mako"/>
<%namespace name="along" file="/gemv/pair_common.mako"/>
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import vector_type
    MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
%>
<%
    V, walk = f"{ctype}{lanes}", loops[0]
    number = {array.name: a for a, array in enumerate(arrays)}
%>
${along.declarations()}
<%include file="/gemv/pair_${order}.mako" args="name=name, ctype=ctype, wide=wide"/>

## Which lanes of a vector with elements of some dtype there are rows for.
<%def name="existing(dtype)" buffered="True" filter="trim">
((${MASK[np.dtype(dtype).itemsize]}${lanes})(${", ".join(map(str, range(lanes)))}) <= (${MASK[np.dtype(dtype).itemsize]})top)
</%def>

<%def name="at(array)" buffered="True" filter="trim">
${array} + s.at[${number[array]}] + (first + i) * p.step[${number[array]}], p.step[${number[array]}], top
</%def>

<%def name="vector()">
            const int top = min(${lanes}L, count - i) - 1, whole = top == ${lanes - 1};
            ${V} v${product} = unit_${V}(z + i);
            % if has_addend:
            v${product} *= s.alpha;
            if (s.beta != 0)  // beta = 0 must not let a NaN of the addend through
                v${product} += s.beta * load_${V}(y + (first + i) * p.y_step, p.y_step, top);
            % endif
            % for v in walk.reads:
            % if v != product:
            const ${vector_type(arrays[number[f"x{v}"]].dtype, lanes)} v${v} = load_${vector_type(arrays[number[f"x{v}"]].dtype, lanes)}(${at(f"x{v}")});
            % endif
            % endfor
            ${walk.code}
            % for total in walk.totals:
            {
                ${vector_type(total.source_dtype, lanes)} m = ${total.source};
                if (!whole)
                    m = ${existing(total.source_dtype)} ? m : (${vector_type(total.source_dtype, lanes)})(${total.identity});
                sum${total.value} = ${total.accumulator}_combine${lanes}(sum${total.value}, ${parts.lift(total, "m", lanes)});
            }
            % endfor
            % for o, value in walk.writes:
            % if f"y{o}" in number:
            store_${vector_type(arrays[number[f"y{o}"]].dtype, lanes)}(${value}, ${at(f"y{o}")});
            % endif
            % endfor
            put_${V}(whole ? v${factor} : ${existing(dtype)} ? v${factor} : (${V})(0), z + i);
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(${along.parameters()})
{
    const long item = get_global_id(0), items = get_global_size(0), blocks = (p.n + p.block - 1) / p.block;
    __global ${ctype} *const x = scratch + item * p.scratch, *const g = partial + item * p.padded, *const z = x + p.padded;
    __global const ${ctype} *const y = Y + s.y;
    ${along.load_scalars()}
    ${along.load_rows()}
    for (long j = 0; j < p.padded; ++j) {
        x[j] = j < p.k ? X[s.x + j * p.x_step] : 0;
        g[j] = 0;
    }
    % for total in totals:
    ${total.accumulator}_a${lanes} sum${total.value} = ${total.accumulator}_identity${lanes}();
    % endfor
    for (long b = blocks * item / items; b < blocks * (item + 1) / items; ++b) {
        const long first = b * p.block, count = min(p.block, p.n - first);
        const long whole_rows = min(count, p.n - first - ${wide});  // those whose vectors may reach into rows behind them
        __global const ${ctype} *const a = A + s.a + first * p.a_row;
        ${name}_product(a, p.a_row, p.a_col, x, p.k, count, whole_rows, z);
        for (long i = count; i % ${lanes}; ++i)  // what the lanes hold that have no row
            z[i] = z[count - 1];
        for (long i = 0; i < count; i += ${lanes}) {
${vector()}
        }
        ${name}_transposed(a, p.a_row, p.a_col, z, p.k, count, whole_rows, g);
    }
    % for k, total in enumerate(totals):
    ${total.accumulator}_store1(${total.accumulator}_horizontal_reduce${lanes}(sum${total.value}), ${along.partial(k)} + item, 1, items);
    % endfor
    if (items == 1) {
        ${along.finish()}
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_finish(${along.parameters()})
{
    const long items = p.items;
    ${along.load_scalars()}
    ${along.load_rows()}
    ${along.finish()}
}
