## Argmax on schedule cpu: each work-item takes a run of tasks; a task is one chunk of the reduced range for one output
## (pattern rows: vectors along the innermost reduced dimension) or for a strip of outputs (pattern columns: vectors across
## the innermost kept dimension; pattern short: the same, one vector after another). Positions are looked for only where a block of elements beats what was found before.
<%page args="name, geometry, pattern, dtype, lanes, strip_vectors, index, kept_dims, reduced_dims"/>
<%include file="/math/every_lane.mako"/>\
<%namespace name="walk" file="/reduction/traversal.mako"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="along" file="/argmax/rows.mako"/>
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, vector_type

    ROWS = 4  # rows of a strip that are searched again if they hold a new maximum

    def mask_type(dtype, lanes):
        return vector_type(f"int{8 * np.dtype(dtype).itemsize}", lanes)
%>
${geometry.c_typedef(f"{name}_geometry")}
${order.position()}
% if pattern == "rows":
${along.helpers()}
% endif
<%def name="strip()">
<% T, V, load = ctype(dtype), vector_type(dtype, lanes), f"load_{vector_type(dtype, lanes)}" %>
        const long across = g.kept_in[0];
        const int vectors = (width + ${lanes - 1}) / ${lanes};
        ${V} best[${strip_vectors}];
        long${lanes} where[${strip_vectors}];
        __global const ${T} *x0 = input + ${name}_at(&g, first);
        for (int k = 0; k < vectors; ++k) {
            best[k] = ${load}(x0 + k * ${lanes} * across, across, min(${lanes}, width - k * ${lanes}) - 1);
            where[k] = (long${lanes})(first);
        }
        <%order:runs>
            for (long i = 0; i < n; i += ${ROWS}) {
                const int rows = min(${ROWS}L, n - i);
                for (int k = 0; k < vectors; ++k) {
                    __global const ${T} *y = x + i * step + k * ${lanes} * across;
                    const int end = min(${lanes}, width - k * ${lanes}) - 1;
                    ${V} ${", ".join(f"v{r}" for r in range(ROWS))};
                    if (across == 1 && end == ${lanes - 1} && rows == ${ROWS}) {
                        % for r in range(ROWS):
                        v${r} = *(__global const ${name}_v *)(y + ${r} * step);
                        % endfor
                    } else {  // what there is no row for repeats the one before
                        v0 = ${load}(y, across, end);
                        % for r in range(1, ROWS):
                        v${r} = ${r} < rows ? ${load}(y + ${r} * step, across, end) : v${r - 1};
                        % endfor
                    }
                    ${V} found = v0;
                    % for r in range(1, ROWS):
                    found = ${order.greater("found", f"v{r}")};
                    % endfor
                    const ${V} top = best[k];
                    if (some_lane(${order.beats("found", "top")})) {
                        // Minus the rows before the first that holds the maximum: a mask is -1.
                        % for r in range(ROWS - 1):
                        const ${mask_type(dtype, lanes)} m${r} = ${order.beats("found", f"v{r}")}${f" & m{r - 1}" if r else ""};
                        % endfor
                        const long${lanes} place = (at + i) - convert_long${lanes}(${" + ".join(f"m{r}" for r in range(ROWS - 1))});
                        where[k] = convert_long${lanes}(${order.beats("found", "top")}) ? place : where[k];
                        best[k] = ${order.beats("found", "top")} ? found : top;
                    }
                }
            }
        </%order:runs>
        for (int k = 0; k < vectors; ++k)
            store_long${lanes}(where[k], output + out + k * ${lanes} * g.kept_out[0], g.kept_out[0], min(${lanes}, width - k * ${lanes}) - 1);
</%def>

<%def name="short()">
<% V, M, load = vector_type(dtype, lanes), mask_type(dtype, lanes), f"load_{vector_type(dtype, lanes)}" %>
        const long across = g.kept_in[0];
        for (int k = 0; k < width; k += ${lanes}) {
            const int end = min(${lanes}, width - k) - 1;
            ${V} best = ${load}(input + ${name}_at(&g, 0) + k * across, across, end);
            ${M} where = 0, here = 0;
            <%order:runs>
            for (long i = 0; i < n; ++i, ++here) {
                __global const ${ctype(dtype)} *y = x + i * step + k * across;
                const ${V} v = end == ${lanes - 1} ? (${V})(${", ".join(f"y[{r} * across]" for r in range(lanes))}) : ${load}(y, across, end);
                where = ${order.beats("v", "best")} ? here : where;
                best = ${order.beats("v", "best")} ? v : best;
            }
            </%order:runs>
            store_long${lanes}(convert_long${lanes}(where), output + out + k * g.kept_out[0], g.kept_out[0], end);
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${vector_type(dtype, lanes)})))
void ${name}(__global const ${ctype(dtype)} *restrict array, const long input_at, __global long *restrict output, const long output_at,
             const ${name}_geometry g)
{
    const long tasks = g.blocks * g.chunks, end = tasks * (get_global_id(0) + 1) / get_global_size(0);
    for (long task = tasks * get_global_id(0) / get_global_size(0); task < end; ++task) {
        const long chunk = task / g.blocks, first = chunk * g.chunk, last = min(g.total, first + g.chunk);
        long rest = task % g.blocks, in = input_at, out = output_at + chunk * g.chunk_step;
        % if pattern != "rows":
        const long column = rest % g.tiles * ${strip_vectors * lanes};
        const int width = min(${strip_vectors * lanes}L, g.kept[0] - column);
        rest = rest / g.tiles * g.kept[0] + column;
        % endif
        ${walk.kept_offset()}
        __global const ${ctype(dtype)} *input = array + in;
        % if pattern == "rows":
        ${along.rows()}
        % elif pattern == "short":
        ${short()}
        % else:
        ${strip()}
        % endif
    }
}
${order.finish(walk.kept_offset)}
