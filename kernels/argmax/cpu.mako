## Algorithm   Argmax, or argmin where `is_least`, for CPUs. Blocks of elements are reduced to their maximum with
##             vectors; positions are looked for only where a block beats what was found before. Patterns as in
##             kernels/reduction/cpu.mako.
## Operands    array: outer and reduced dimensions as in kernels/reduction/cpu.mako, the reduced ones in C order, which
##             determines which element is the first; output: long.
## Tiling      Column tiles of tile_vectors vectors, ROWS rows at a time.
## NDRange     (work-items): each takes a contiguous range of the tasks; a task is one chunk for one output or column
##             tile.
## Workspace   Of several chunks, found[chunks][outputs] positions; `<name>_finish` chooses among them.
## Invariants  NaN is preferred to every number; of equal elements the first is taken.
<%page args="name, is_least, geometry, pattern, dtype, lanes, tile_vectors, index, outer_dims, reduced_dims"/>
<%include file="/common/partition.mako"/>\
<%include file="/math/lane_vote.mako"/>\
<%namespace name="traversal" file="/reduction/traversal.mako"/>
<%namespace name="order" file="/argmax/order.mako"/>
<%namespace name="along" file="/argmax/rows.mako"/>
<%!
    import numpy as np

    from pytensor_cl.codegen.dtypes import ctype, vector_type

    ROWS = 4  # rows of a tile that are searched again if they hold a new maximum

    def mask_type(dtype, lanes):
        return vector_type(f"int{8 * np.dtype(dtype).itemsize}", lanes)
%>
${geometry.c_typedef(f"{name}_geometry")}
${order.position()}
% if pattern == "rows":
${along.helpers()}
% endif
<%def name="column_tile()">
<% T, V, load = ctype(dtype), vector_type(dtype, lanes), f"load_{vector_type(dtype, lanes)}" %>
        const long column_stride = g.outer_in[0];
        const int vectors = (width + ${lanes - 1}) / ${lanes};
        ${V} best[${tile_vectors}];
        long${lanes} where[${tile_vectors}];
        __global const ${T} *x0 = input + ${name}_at(&g, first);
        for (int k = 0; k < vectors; ++k) {
            best[k] = ${load}(x0 + k * ${lanes} * column_stride, column_stride,
                min(${lanes}, width - k * ${lanes}) - 1);
            where[k] = (long${lanes})(first);
        }
        <%order:runs>
            for (long i = 0; i < n; i += ${ROWS}) {
                const int rows = min(${ROWS}L, n - i);
                for (int k = 0; k < vectors; ++k) {
                    __global const ${T} *y = x + i * step + k * ${lanes} * column_stride;
                    const int end = min(${lanes}, width - k * ${lanes}) - 1;
                    ${V} ${", ".join(f"v{r}" for r in range(ROWS))};
                    if (column_stride == 1 && end == ${lanes - 1} && rows == ${ROWS}) {
                        % for r in range(ROWS):
                        v${r} = *(__global const ${name}_v *)(y + ${r} * step);
                        % endfor
                    } else {  // what there is no row for repeats the one before
                        v0 = ${load}(y, column_stride, end);
                        % for r in range(1, ROWS):
                        v${r} = ${r} < rows ? ${load}(y + ${r} * step, column_stride, end) : v${r - 1};
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
                        const ${mask_type(dtype, lanes)} m${r} =
                            ${order.beats("found", f"v{r}")}${f" & m{r - 1}" if r else ""};
                        % endfor
                        const long${lanes} place =
                            (at + i) - convert_long${lanes}(${" + ".join(f"m{r}" for r in range(ROWS - 1))});
                        where[k] = convert_long${lanes}(${order.beats("found", "top")}) ? place : where[k];
                        best[k] = ${order.beats("found", "top")} ? found : top;
                    }
                }
            }
        </%order:runs>
        for (int k = 0; k < vectors; ++k)
            store_long${lanes}(where[k], output + out + k * ${lanes} * g.outer_out[0], g.outer_out[0],
                min(${lanes}, width - k * ${lanes}) - 1);
</%def>

<%def name="short()">
<% V, M, load = vector_type(dtype, lanes), mask_type(dtype, lanes), f"load_{vector_type(dtype, lanes)}" %>
        const long column_stride = g.outer_in[0];
        for (int k = 0; k < width; k += ${lanes}) {
            const int end = min(${lanes}, width - k) - 1;
            ${V} best = ${load}(input + ${name}_at(&g, 0) + k * column_stride, column_stride, end);
            ${M} where = 0;
            ${M} here = 0;
            <%order:runs>
            for (long i = 0; i < n; ++i, ++here) {
                __global const ${ctype(dtype)} *y = x + i * step + k * column_stride;
                const ${V} v = end == ${lanes - 1}
                    ? (${V})(${", ".join(f"y[{r} * column_stride]" for r in range(lanes))})
                    : ${load}(y, column_stride, end);
                where = ${order.beats("v", "best")} ? here : where;
                best = ${order.beats("v", "best")} ? v : best;
            }
            </%order:runs>
            store_long${lanes}(convert_long${lanes}(where), output + out + k * g.outer_out[0], g.outer_out[0], end);
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${vector_type(dtype, lanes)})))
void ${name}(__global const ${ctype(dtype)} *restrict array, const long input_at, __global long *restrict output,
    const long output_at, const ${name}_geometry g)
{
    const long tasks = g.blocks * g.chunks;
    const long end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < end; ++task) {
        const long chunk = task / g.blocks;
        const long first = chunk * g.chunk;
        const long last = min(g.total, first + g.chunk);
        long rest = task % g.blocks;
        long in = input_at;
        long out = output_at + chunk * g.chunk_stride;
        % if pattern != "rows":
        const long column = rest % g.tiles * ${tile_vectors * lanes};
        const int width = min(${tile_vectors * lanes}L, g.outer[0] - column);
        rest = rest / g.tiles * g.outer[0] + column;
        % endif
        ${traversal.outer_offset()}
        __global const ${ctype(dtype)} *input = array + in;
        % if pattern == "rows":
        ${along.rows()}
        % elif pattern == "short":
        ${short()}
        % else:
        ${column_tile()}
        % endif
    }
}
${order.finish(traversal.outer_offset)}
