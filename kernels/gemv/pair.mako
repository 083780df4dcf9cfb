## Fused pair of matrix-vector products, schedule cpu: z = alpha * A @ x + beta * y, r, ... = f(z, ...),
## o = alpha_t * A.T @ r + beta_t * y_t. A is read once from memory.
##
## Algorithm   a work-item takes blocks of rows, each so small that it is in the cache for the second product: z of the
##             block (pair_row.mako or pair_col.mako, by `order`, the contiguous dimension of A), f of vectors of z,
##             then g += A.T @ r.
## Operands    A (n, k); x, y_t and o (k); y, z, r and full arrays (n); any strides but those of A, of which one is 1.
## Tiling      Blocks of p.block rows; f is computed for `lanes` rows at a time.
## NDRange     a partition of the blocks among p.items work-items. <name>_finish: work-items loop over the columns.
## Workspace   For each work-item x, padded with zeros to p.padded_k, and z of a block, together p.workspace_size;
##             partial (items, padded_k) holds the g of each work-item, partial_totals the reductions of f.
## Invariants  a launch of one work-item does all; with more, <name>_finish adds up.
<%page args="name, ctype, dtype, lanes, wide, order, product, factor, has_addend, arrays, values, loops, row_values,
             totals, plan, call"/>
<%namespace name="row_kernels" file="/rowwise/common.mako"/>
<%namespace name="common" file="/gemv/pair_common.mako"/>
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import vector_type
    MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
%>
<%
    vector, row_loop = f"{ctype}{lanes}", loops[0]
    number = {array.name: a for a, array in enumerate(arrays)}
%>
<%include file="/common/partition.mako"/>
${common.declarations()}
<%include file="/gemv/pair_${order}.mako" args="name=name, ctype=ctype, wide=wide"/>

## The lanes of a vector with elements of some dtype that have a row.
<%def name="lane_mask(dtype)" buffered="True" filter="trim">
<% mask = MASK[np.dtype(dtype).itemsize] %>\
((${mask}${lanes})(${", ".join(map(str, range(lanes)))}) <= (${mask})last_lane)
</%def>

## Pointer, step and last lane of a vector of a full array.
<%def name="access(array)" buffered="True" filter="trim">
<% a = number[array] %>\
${array} + s.at[${a}] + (first_row + i) * p.step[${a}], p.step[${a}], last_lane
</%def>

## The function of the rows of one vector: z is replaced by r.
<%def name="apply_function()">
            const int last_lane = min(${lanes}L, count - i) - 1, is_full = last_lane == ${lanes - 1};
            ${vector} v${product} = unit_${vector}(z + i);
            % if has_addend:
            v${product} *= s.alpha;
            if (s.beta != 0)  // beta = 0 must not let a NaN of the addend through
                v${product} += s.beta * load_${vector}(y + (first_row + i) * p.y_step, p.y_step, last_lane);
            % endif
            % for v in row_loop.reads:
            % if v != product:
<%  type = vector_type(arrays[number[f"x{v}"]].dtype, lanes) %>\
            const ${type} v${v} = load_${type}(${access(f"x{v}")});
            % endif
            % endfor
            ${row_loop.code}
            % for total in row_loop.totals:
<%  type, sum = vector_type(total.source_dtype, lanes), f"sum{total.value}" %>\
            {
                ${type} m = ${total.source};
                if (!is_full)
                    m = ${lane_mask(total.source_dtype)} ? m : (${type})(${total.identity});
                ${sum} = ${total.accumulator}_combine${lanes}(${sum}, ${row_kernels.lift(total, "m", lanes)});
            }
            % endfor
            % for o, value in row_loop.writes:
            % if f"y{o}" in number:
            store_${vector_type(arrays[number[f"y{o}"]].dtype, lanes)}(${value}, ${access(f"y{o}")});
            % endif
            % endfor
            put_${vector}(is_full ? v${factor} : ${lane_mask(dtype)} ? v${factor} : (${vector})(0), z + i);
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(${common.parameters()})
{
    const long item = get_global_id(0), items = get_global_size(0), blocks = (p.n + p.block - 1) / p.block;
    __global ${ctype} *const x = workspace + item * p.workspace_size;
    __global ${ctype} *const z = x + p.padded_k;
    __global ${ctype} *const g = partial + item * p.padded_k;
    __global const ${ctype} *const y = Y + s.y;
    ${common.load_scalars()}
    ${common.load_row_values()}
    for (long j = 0; j < p.padded_k; ++j) {
        x[j] = j < p.k ? X[s.x + j * p.x_step] : 0;
        g[j] = 0;
    }
    % for total in totals:
    ${total.accumulator}_a${lanes} sum${total.value} = ${total.accumulator}_identity${lanes}();
    % endfor
    const long block_end = partition_begin(blocks, 1, item + 1, items);
    for (long b = partition_begin(blocks, 1, item, items); b < block_end; ++b) {
        const long first_row = b * p.block, count = min(p.block, p.n - first_row);
        const long whole_rows = min(count, p.n - first_row - ${wide});  // vectors may reach into the rows behind them
        __global const ${ctype} *const a = A + s.a + first_row * p.a_row;
        ${name}_product(a, p.a_row, p.a_col, x, p.k, count, whole_rows, z);
        for (long i = count; i % ${lanes}; ++i)  // lanes that have no row
            z[i] = z[count - 1];
        for (long i = 0; i < count; i += ${lanes}) {
            ${apply_function()}
        }
        ${name}_transposed(a, p.a_row, p.a_col, z, p.k, count, whole_rows, g);
    }
    % for k, total in enumerate(totals):
    ${total.accumulator}_store1(${total.accumulator}_horizontal_reduce${lanes}(sum${total.value}),
                                ${common.partial_total(k)} + item, 1, items);
    % endfor
    if (items == 1) {
        ${common.finish()}
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_finish(${common.parameters()})
{
    const long items = p.items;
    ${common.load_scalars()}
    ${common.load_row_values()}
    ${common.finish()}
}
