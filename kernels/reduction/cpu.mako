## Algorithm   Reduction for CPUs. Pattern "rows": vectors along the innermost reduced dimension, 4 independent
##             accumulators. Pattern "columns": vectors across the innermost outer dimension, one accumulator for each
##             vector of a column tile. Pattern "short": the same for few elements; each vector is finished before the
##             next, and its accumulator stays in a register.
## Operands    input: outer[outer_dims] with steps outer_in, reduced[reduced_dims] with steps reduced_in; output: steps
##             outer_out. Dimensions from the innermost outwards, steps in elements. `unit`: vectors are contiguous.
## Tiling      Column tiles of tile_vectors vectors; the reduced range in `chunks` of `chunk` elements.
## NDRange     (work-items): each takes a contiguous range of the tasks. A task is one chunk for one output (rows) or
##             one column tile (columns, short).
## Workspace   Of several chunks, the results of chunk c begin at c * chunk_stride; another pass reduces them. With
##             `compensation` the rounding errors follow error_stride elements later.
## Invariants  Results depend on the layout and the device only, not on the order in which work-items run.
## Reference   Pairwise blocks as in N. J. Higham, The accuracy of floating point summation, SIAM J. Sci. Comput. 14
##             (1993); compensation: see kernels/reduction/accumulator.mako.
<%page args="name, geometry, pattern, unit, in_dtype, acc_dtype, out_dtype, combine, identity, compensation, pair_in,
             pair_out, index, lanes, tile_vectors, outer_dims, reduced_dims"/>
<%include file="/common/partition.mako"/>\
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%namespace name="traversal" file="/reduction/traversal.mako"/>
<%namespace name="few" file="/reduction/short_rows.mako"/>
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, is_complex

    MASK = {1: "char", 2: "short", 4: "int", 8: "long"}  # of a comparison's outcome, by bytes
    BLOCK = 64  # iterations of pattern rows whose sum is added as one: long sums of floats stay accurate
%>
${geometry.c_typedef(f"{name}_geometry")}
% for n in (1, 2, 4, 8, 16):
% if n in (1, lanes) or (pattern == "rows" and n < lanes):
${shared.accumulator(n)}
% endif
% if pattern == "rows" and n <= lanes:
${shared.horizontal_reduce(n)}
% endif
% endfor

## The last elements of a run, as a vector of which those before are masked.
<%def name="last(vector)">
<% mask = MASK[np.dtype(acc_dtype).itemsize] %>
            if (i < n && n >= ${lanes}) {
                const ${mask}${lanes} lane = (${mask}${lanes})(${", ".join(map(str, range(lanes)))}),
                    is_new = lane >= (${mask}${lanes})(${lanes} - (int)(n - i));
                ${vector} a = ${name}_load${lanes}(x + (n - ${lanes}) * step, step, g.error_stride);
                const ${vector} nothing = ${name}_identity${lanes}();
                % for part in (".sum", ".error") if compensation else ("",):
                a${part} = is_new ? a${part} : nothing${part};
                % endfor
                total0 = ${name}_combine${lanes}(total0, a);
                i = n;
            }
</%def>

<%def name="rows()">
<% combine, vector = f"{name}_combine{lanes}", f"{name}_a{lanes}" %>
        % for k in range(4):
        ${vector} total${k} = ${name}_identity${lanes}();
        % endfor
        ${name}_a1 tail = ${name}_identity1();
        <%traversal:runs>
            ${index} i = 0;
            while (n - i >= ${4 * lanes}) {
                const ${index} stop = min(n, i + ${4 * lanes * BLOCK});
                % for k in range(4):
                ${vector} part${k} = ${name}_identity${lanes}();
                % endfor
                for (; stop - i >= ${4 * lanes}; i += ${4 * lanes}) {
                    % for k in range(4):
                    part${k} = ${combine}(part${k},
                        ${name}_load${lanes}(x + (i + ${k * lanes}) * step, step, g.error_stride));
                    % endfor
                }
                % for k in range(4):
                total${k} = ${combine}(total${k}, part${k});
                % endfor
            }
            for (; n - i >= ${lanes}; i += ${lanes})
                total0 = ${combine}(total0, ${name}_load${lanes}(x + i * step, step, g.error_stride));
            % if lanes > 1 and not is_complex(acc_dtype):
            ${last(vector)}
            % endif
            for (; i < n; ++i)
                tail = ${name}_combine1(tail, ${name}_load1(x + i * step, step, g.error_stride));
        </%traversal:runs>
        if (last - first >= ${4 * lanes})
            total0 = ${combine}(${combine}(total0, total1), ${combine}(total2, total3));
        ${name}_store1(${name}_combine1(${name}_horizontal_reduce${lanes}(total0), tail), output + out, 1,
            g.error_stride);
</%def>

## `size` accumulators of n lanes; the last vector may overlap the one before. Eight rows at a time cost the least,
## but are read from memory at half the speed of rows that follow one another. What compilers would make of the loops
## over vectors doubles the build, and is no faster.
<%def name="column_tile(n, size, count)">
        {
            ${name}_a${n} sums[${size + 1}];
            const int vectors = ${count};
            #pragma clang loop unroll(disable) vectorize(disable)
            for (int k = 0; k <= vectors; ++k)
                sums[k] = ${name}_identity${n}();
            <%traversal:runs>
            const ${index} column_stride = g.outer_in[0];
            ${index} i = 0;
            <%def name="tree(first, rows)" buffered="True" filter="trim">
            % if rows == 1:
            ${name}_load${n}(y + ${first} * step, column_stride, g.error_stride)
            % else:
            ${name}_combine${n}(${tree(first, rows // 2)}, ${tree(first + rows // 2, rows // 2)})
            % endif
            </%def>
            % for rows, ahead in ((8, 1), (2, 2), (1, 2)):
            #pragma clang loop unroll(disable) vectorize(disable)
            for (; ${"!is_dense && " if rows > 2 else ""}n - i >= ${rows}; i += ${rows})
                #pragma clang loop unroll(disable) vectorize(disable)
                for (int k = 0; k < vectors; k += ${ahead}) {
                    __global const ${ctype(in_dtype)} *y = x + i * step + min(k * ${n}, width - ${n}) * column_stride;
                    sums[k] = ${name}_combine${n}(sums[k], ${tree(0, rows)});
                    % if ahead == 2:
                    y = x + i * step + min(k * ${n} + ${n}, width - ${n}) * column_stride;
                    sums[k + 1] = ${name}_combine${n}(sums[k + 1], ${tree(0, rows)});
                    % endif
                }
            % endfor
            </%traversal:runs>
            #pragma clang loop unroll(disable) vectorize(disable)
            for (int k = 0; k < vectors; ++k)
                ${name}_store${n}(sums[k], output + out + min(k * ${n}, width - ${n}) * g.outer_out[0], g.outer_out[0],
                    g.error_stride);
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(__global const ${ctype(in_dtype)} *restrict input, const long input_at,
    __global ${ctype(out_dtype)} *restrict output, const long output_at, const ${name}_geometry g)
{
    const ${index} tasks = g.blocks * g.chunks;
    const ${index} end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (${index} task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < end; ++task) {
        ${traversal.divmod_index("task", "chunk", "rest", "g.blocks")}
        const ${index} first = chunk * g.chunk;
        const ${index} last = min(g.total, first + g.chunk);
        ${index} in = input_at;
        ${index} out = output_at + chunk * g.chunk_stride;
        % if pattern != "rows":
        const ${index} column = rest % g.tiles * ${tile_vectors * lanes};
        const int width = g.tiles == 1 ? g.outer[0] : min((${index})${tile_vectors * lanes}, g.outer[0] - column);
        const int is_dense = g.tiles == 1 && width >= ${4 * lanes} && g.outer_in[0] == 1
            && 4 * g.reduced_in[0] <= 5 * width;
        rest = rest / g.tiles * g.outer[0] + column;
        % endif
        ${traversal.outer_offset()}
        % if pattern == "rows":
        ${rows()}
        % elif pattern == "short":
        int k = 0;
        ${few.vectors(lanes)}
        ${few.vectors(1)}
        % else:
        ${column_tile(lanes, 2 * tile_vectors, f"width < {lanes} ? 0 : (width + {lanes - 1}) / {lanes}")}
        ${column_tile(1, lanes, f"width < {lanes} ? width : 0")}
        % endif
    }
}
