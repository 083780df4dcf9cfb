## Fused pair of matrix-vector products, schedule simt: z = alpha * A @ x + beta * y, r, ... = f(z, ...),
## o = alpha_t * A.T @ r + beta_t * y_t. A is read once.
##
## Algorithm   `width` neighbouring work-items hold one vector each of a row, in registers, of `rows` rows at once.
##             Their products are summed in local memory, where a work-item takes a row, computes f and leaves r; then
##             all add their vectors times r to their part of g = A.T @ r. The next rows are loaded meanwhile.
## Operands    A (n, k), of which rows are contiguous; x, y_t and o (k); y, z, r and full arrays (n), any strides.
## Tiling      p.block is the width; a vector has `lanes` elements, to which rows and k are aligned.
## NDRange     p.items groups loop over the rows. <name>_finish: a group adds up p.workspace_size columns of g; the last
##             one, the reductions of f.
## Workspace   Partial (items, padded_k) holds the g of each group, partial_totals the reductions of f.
## Invariants  one group does all; with more, <name>_finish adds up. Barriers are uniform. Rows that are equal have
##             equal products, and all sums have one order.
<%page args="name, ctype, dtype, lanes, group, rows, product, factor, has_addend, arrays, values, loops, row_values,
             totals, plan, call"/>
<%namespace name="row_kernels" file="/rowwise/common.mako"/>
<%namespace name="common" file="/gemv/pair_common.mako"/>
<%namespace name="partials" file="/common/partials.mako"/>
<%namespace name="padding" file="/common/bank_padding.mako"/>
<%!
    import numpy as np
    from pytensor_cl.codegen.dtypes import ctype as ctype_of
    from pytensor_cl.codegen.local_memory import padded_size
%>
<%
    row_loop, itemsize = loops[0], np.dtype(dtype).itemsize
    number = {array.name: a for a, array in enumerate(arrays)}
    vector, components = (f"{ctype}{lanes}", [f".s{c}" for c in range(lanes)]) if lanes > 1 else (ctype, [""])
    accumulators = list(dict.fromkeys(total.accumulator for total in totals))
    R = range(rows)
%>
${common.declarations()}

<%def name="element(array)" buffered="True" filter="trim">
${array}[s.at[${number[array]}] + i * p.step[${number[array]}]]
</%def>

<%def name="at(place)" buffered="True" filter="trim">
sums[${padding.at(place, itemsize)}]
</%def>

## The group's work-items put together what each has of a reduction; the result is at 0.
<%def name="reduce_in_group(total, value)">
        local_${total.accumulator}[item] = ${value};
        for (int distance = ${group // 2}; distance; distance /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < distance)
                local_${total.accumulator}[item] = ${total.accumulator}_combine1(local_${total.accumulator}[item],
                    local_${total.accumulator}[item + distance]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
</%def>

<%def name="declare_local(count)">
    __local ${ctype} sums[${count}];
    % for accumulator in accumulators:
    __local ${accumulator}_a1 local_${accumulator}[${group}];
    % endfor
    const int item = get_local_id(0);
</%def>

## The function of row `i`, of which the product is `z`; leaves r in its place.
<%def name="apply_function()">
            ${ctype} v${product} = z;
            % if has_addend:
            v${product} *= s.alpha;
            if (s.beta != 0)  // beta = 0 must not let a NaN of the addend through
                v${product} += s.beta * Y[s.y + i * p.y_step];
            % endif
            % for v in row_loop.reads:
            % if v != product:
            const ${ctype_of(arrays[number[f"x{v}"]].dtype)} v${v} = ${element(f"x{v}")};
            % endif
            % endfor
            ${row_loop.code}
            % for total in row_loop.totals:
            sum${total.value} = ${total.accumulator}_combine1(sum${total.value},
                ${row_kernels.lift(total, total.source, 1)});
            % endfor
            % for o, value in row_loop.writes:
            % if f"y{o}" in number:
            ${element(f"y{o}")} = ${value};
            % endif
            % endfor
            z = v${factor};
</%def>

## Vectors of the rows that begin at `i0`, zeros where there is none: 0 * NaN would not be 0.
<%def name="load_rows(target, i0)">
        % for r in R:
        if (exists && ${i0} + ${r} * slots + slot < p.n)
            ${target}${r} = *(__global const ${vector} *)(a + (${i0} + ${r} * slots) * p.a_row);
        else
            ${target}${r} = 0;
        % endfor
</%def>

<%def name="finish()">
    const int columns = (int)p.workspace_size;
    const long tiles = (p.k + columns - 1) / columns;
    for (long tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        const long first = tile * columns;
        ${partials.sum_in_group(ctype, group, "columns", "p.items", "partial[{part} * p.padded_k + first + lane]",
            "first + lane < p.k")}
        if (item < columns && first + item < p.k) {
            const long j = first + item;
            ${ctype} sum = sums[item] * s.alpha_t;
            if (s.beta_t != 0)  // beta = 0 must not let a NaN of the addend through
                sum += s.beta_t * Yt[s.yt + j * p.yt_step];
            O[s.o + j * p.o_step] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (get_group_id(0) == get_num_groups(0) - 1) {
        ${common.load_row_values()}
        % for k, total in enumerate(totals):
<%  all, accumulator = f"all{total.value}", total.accumulator %>\
        ${accumulator}_a1 ${all} = ${accumulator}_identity1();
        for (long part = item; part < p.items; part += ${group})
            ${all} =
                ${accumulator}_combine1(${all}, ${accumulator}_load1(${common.partial_total(k)} + part, 1, p.items));
        ${reduce_in_group(total, all)}
        ${all} = local_${accumulator}[0];
        r${total.value} = ${row_kernels.result(total, all, 1)};
        barrier(CLK_LOCAL_MEM_FENCE);
        % endfor
        if (item == 0) {
            % for row_loop in loops[1:]:
            ${row_loop.row_code}
            % endfor
            % for a, array in enumerate(arrays):
            % if array.kind == "row" and array.is_output:
            ${array.name}[s.at[${a}]] = r${array.value};
            % endif
            % endfor
        }
    }
</%def>

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(${common.parameters()})
{
    ${declare_local(padded_size(rows * group, itemsize))}
    const int width = (int)p.block, slots = ${group} / width, lane = item % width, slot = item / width;
    const int count = slots * ${rows}, column = lane * ${lanes}, exists = column < p.k;
    const long stride = (long)p.items * count;
    ${common.load_scalars()}
    {
        ${common.load_row_values()}
        % for total in totals:
        ${total.accumulator}_a1 sum${total.value} = ${total.accumulator}_identity1();
        % endfor
        __global const ${ctype} *const a = A + s.a + slot * p.a_row + column;
        ${vector} x = 0, g = 0;
        if (exists) {
            % for c, component in enumerate(components):
            x${component} = X[s.x + (column + ${c}) * p.x_step];
            % endfor
        }
        ${vector} ${", ".join(f"a{r}" for r in R)};
        ${load_rows("a", "(get_group_id(0) * (long)count)")}
        for (long i0 = get_group_id(0) * (long)count; i0 < p.n; i0 += stride) {
            % for r in R:
            {
                const ${vector} t = a${r} * x;
                ${at(f"{r * group} + item")} = ${" + ".join(f"t{c}" for c in components)};
            }
            % endfor
            ${vector} ${", ".join(f"b{r}" for r in R)};
            ${load_rows("b", "(i0 + stride)")}
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int e = item; e < count; e += ${group}) {
                const long i = i0 + e;
                ${ctype} z = 0;
                if (i < p.n) {
                    for (int w = e * width; w < (e + 1) * width; ++w)
                        z += ${at("w")};
                    ${apply_function()}
                }
                ${at("e * width")} = z;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            % for r in R:
            g += a${r} * ${at(f"({r} * slots + slot) * width")};
            a${r} = b${r};
            % endfor
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        % for c, component in enumerate(components):
        sums[${c * group} + item] = g${component};
        % endfor
        for (int distance = ${group // 2}; distance >= width; distance /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < distance) {
                % for c in range(lanes):
                sums[${c * group} + item] += sums[${c * group} + item + distance];
                % endfor
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot == 0 && exists) {
            % for c in range(lanes):
            partial[get_group_id(0) * p.padded_k + column + ${c}] = sums[${c * group} + item];
            % endfor
        }
        % for k, total in enumerate(totals):
        ${reduce_in_group(total, f"sum{total.value}")}
        if (item == 0)
            ${total.accumulator}_store1(local_${total.accumulator}[0],
                                        ${common.partial_total(k)} + get_group_id(0), 1, p.items);
        barrier(CLK_LOCAL_MEM_FENCE);
        % endfor
    }
    if (p.items == 1) {
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        ${finish()}
    }
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_finish(${common.parameters()})
{
    ${declare_local(group)}
    ${common.load_scalars()}
    ${finish()}
}
