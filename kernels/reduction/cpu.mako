## Reduction on schedule cpu: each work-item takes a run of tasks; a task is one chunk of the reduced range for one output
## (pattern rows: vectors along the innermost reduced dimension) or for a strip of outputs (pattern columns: vectors across
## the innermost kept dimension; pattern short: the same, for so few elements that each vector is finished before the next).
<%page args="name, geometry, pattern, unit, in_dtype, acc_dtype, out_dtype, combine, identity, compensation, pair_in, pair_out, index,
             lanes, strip_vectors, kept_dims, reduced_dims"/>
<%namespace name="shared" file="/reduction/accumulator.mako"/>
<%namespace name="walk" file="/reduction/traversal.mako"/>
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
${shared.fold(n)}
% endif
% endfor

## The last elements of a run, as a vector of which those that were seen before count for nothing.
<%def name="last(vector)">
<% mask = MASK[np.dtype(acc_dtype).itemsize] %>
            if (i < n && n >= ${lanes}) {
                const ${mask}${lanes} lane = (${mask}${lanes})(${", ".join(map(str, range(lanes)))}), is_new = lane >= (${mask}${lanes})(${lanes} - (int)(n - i));
                ${vector} a = ${name}_load${lanes}(x + (n - ${lanes}) * step, step, g.plane);
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
        <%walk:runs>
            ${index} i = 0;
            while (n - i >= ${4 * lanes}) {
                const ${index} stop = min(n, i + ${4 * lanes * BLOCK});
                % for k in range(4):
                ${vector} part${k} = ${name}_identity${lanes}();
                % endfor
                for (; stop - i >= ${4 * lanes}; i += ${4 * lanes}) {
                    % for k in range(4):
                    part${k} = ${combine}(part${k}, ${name}_load${lanes}(x + (i + ${k * lanes}) * step, step, g.plane));
                    % endfor
                }
                % for k in range(4):
                total${k} = ${combine}(total${k}, part${k});
                % endfor
            }
            for (; n - i >= ${lanes}; i += ${lanes})
                total0 = ${combine}(total0, ${name}_load${lanes}(x + i * step, step, g.plane));
            % if lanes > 1 and not is_complex(acc_dtype):
            ${last(vector)}
            % endif
            for (; i < n; ++i)
                tail = ${name}_combine1(tail, ${name}_load1(x + i * step, step, g.plane));
        </%walk:runs>
        if (last - first >= ${4 * lanes})
            total0 = ${combine}(${combine}(total0, total1), ${combine}(total2, total3));
        ${name}_store1(${name}_combine1(${name}_fold${lanes}(total0), tail), output + out, 1, g.plane);
</%def>

## `size` accumulators of n lanes; the last vector may overlap the one before. Eight rows at a time cost the least, but are read from
## memory at half the speed of rows that follow one another. What compilers would make of the loops over vectors doubles the build,
## and is no faster.
<%def name="strip(n, size, count)">
        {
            ${name}_a${n} sums[${size + 1}];
            const int vectors = ${count};
            #pragma clang loop unroll(disable) vectorize(disable)
            for (int k = 0; k <= vectors; ++k)
                sums[k] = ${name}_identity${n}();
            <%walk:runs>
            const ${index} across = g.kept_in[0];
            ${index} i = 0;
            <%def name="tree(first, rows)" buffered="True" filter="trim">
            % if rows == 1:
            ${name}_load${n}(y + ${first} * step, across, g.plane)
            % else:
            ${name}_combine${n}(${tree(first, rows // 2)}, ${tree(first + rows // 2, rows // 2)})
            % endif
            </%def>
            % for rows, ahead in ((8, 1), (1, 2)):
            #pragma clang loop unroll(disable) vectorize(disable)
            for (; ${"!is_dense && " if rows > 1 else ""}n - i >= ${rows}; i += ${rows})
                #pragma clang loop unroll(disable) vectorize(disable)
                for (int k = 0; k < vectors; k += ${ahead}) {
                    __global const ${ctype(in_dtype)} *y = x + i * step + min(k * ${n}, width - ${n}) * across;
                    sums[k] = ${name}_combine${n}(sums[k], ${tree(0, rows)});
                    % if ahead == 2:
                    y = x + i * step + min(k * ${n} + ${n}, width - ${n}) * across;
                    sums[k + 1] = ${name}_combine${n}(sums[k + 1], ${tree(0, rows)});
                    % endif
                }
            % endfor
            </%walk:runs>
            #pragma clang loop unroll(disable) vectorize(disable)
            for (int k = 0; k < vectors; ++k)
                ${name}_store${n}(sums[k], output + out + min(k * ${n}, width - ${n}) * g.kept_out[0], g.kept_out[0], g.plane);
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}(__global const ${ctype(in_dtype)} *restrict input, const long input_at,
             __global ${ctype(out_dtype)} *restrict output, const long output_at, const ${name}_geometry g)
{
    const ${index} tasks = g.blocks * g.chunks;
    const ${index} end = tasks * (get_global_id(0) + 1) / get_global_size(0);
    for (${index} task = tasks * get_global_id(0) / get_global_size(0); task < end; ++task) {
        ${walk.split("task", "chunk", "rest", "g.blocks")}
        const ${index} first = chunk * g.chunk, last = min(g.total, first + g.chunk);
        ${index} in = input_at, out = output_at + chunk * g.chunk_step;
        % if pattern != "rows":
        const ${index} column = rest % g.tiles * ${strip_vectors * lanes};
        const int width = g.tiles == 1 ? g.kept[0] : min((${index})${strip_vectors * lanes}, g.kept[0] - column);
        const int is_dense = g.tiles == 1 && width >= ${4 * lanes} && g.kept_in[0] == 1 && 4 * g.reduced_in[0] <= 5 * width;
        rest = rest / g.tiles * g.kept[0] + column;
        % endif
        ${walk.kept_offset()}
        % if pattern == "rows":
        ${rows()}
        % elif pattern == "short":
        int k = 0;
        ${few.vectors(lanes)}
        ${few.vectors(1)}
        % else:
        ${strip(lanes, 2 * strip_vectors, f"width < {lanes} ? 0 : (width + {lanes - 1}) / {lanes}")}
        ${strip(1, lanes, f"width < {lanes} ? width : 0")}
        % endif
    }
}
