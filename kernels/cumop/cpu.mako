## Algorithm   Prefix scan (sum or product) for CPUs. Blocks of BLOCK vectors are scanned apart and then joined to the
##             prefix of what came before: long sums of floats stay accurate. Pattern "rows": lanes along the axis,
##             scanned by doubling shifts. Pattern "columns": lanes across rows.
## Operands    input, output: rows of `length` elements, in_step and out_step apart; outer dimensions from the innermost
##             outwards, steps in elements. block_aggregates[chunks][outputs]: what each chunk before this one comes to.
## Tiling      Chunks of `chunk` elements along the axis; column tiles of tile_vectors vectors.
## NDRange     (work-items): each takes a contiguous range of the tasks; a task is a chunk of a row or of a column tile.
## Invariants  The aggregates of the chunks are made by a reduction before; one chunk needs none.
## Reference   W. D. Hillis, G. L. Steele, Data parallel algorithms, CACM 29 (1986); reduce-then-scan over chunks.
<%page args="name, geometry, pattern, dtype, lanes, tile_vectors, combine, identity, outer_dims, in_buffer"/>
<%include file="/common/partition.mako"/>\
<%namespace name="shared" file="/cumop/geometry.mako"/>
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type

    BLOCK = 64
    DIGITS = "0123456789abcdef"

    def shifted(dtype, lanes, by, identity):
        """Return v with its lanes moved up, and the identity in those that become free."""
        places = ", ".join(str(k) for k in (*[lanes] * by, *range(lanes - by)))
        return f"__builtin_shufflevector(v, ({vector_type(dtype, lanes)})({identity}), {places})"
%>
<% V = vector_type(dtype, lanes) %>
typedef ${V} ${name}_v __attribute__((aligned(sizeof(${ctype(dtype)}))));
${geometry.c_typedef(f"{name}_geometry")}
static inline ${V} ${name}_combine(const ${V} a, const ${V} b)
{
    return ${combine};
}

<%def name="rows()">
<% V = vector_type(dtype, lanes) %>
        ${V} block_prefix = (${V})(${identity});
        for (long c = 0; c < chunk; ++c)
            block_prefix = ${name}_combine(block_prefix, (${V})(block_aggregates[total + c * g.outputs]));
        const int unit = g.in_step == 1 && g.out_step == 1;
        for (long i = first; i < last;) {
            const long stop = min(last, i + ${BLOCK * lanes});
            ${V} running = (${V})(${identity});
            for (; i < stop; i += ${lanes}) {
                __global const ${ctype(dtype)} *x = input + in + i * g.in_step;
                __global ${ctype(dtype)} *y = output + out + i * g.out_step;
                const int last_lane = min(${lanes}, (int)(stop - i)) - 1;
                const int whole = unit && last_lane == ${lanes - 1};
                ${V} v = whole ? *(__global const ${name}_v *)x : load_${V}(x, g.in_step, last_lane);
                % for by in (1, 2, 4, 8):
                % if by < lanes:
                v = ${name}_combine(${shifted(dtype, lanes, by, identity)}, v);
                % endif
                % endfor
                v = ${name}_combine(running, v);
                running = (${V})(v.s${DIGITS[lanes - 1]});
                v = ${name}_combine(block_prefix, v);
                if (whole)
                    *(__global ${name}_v *)y = v;
                else
                    store_${V}(v, y, g.out_step, last_lane);
            }
            block_prefix = ${name}_combine(block_prefix, running);
        }
</%def>

<%def name="column_tile()">
<% V = vector_type(dtype, lanes) %>
        const long in_column_stride = g.outer_in[0];
        const long out_column_stride = g.outer_out[0];
        const long aggregate_column_stride = g.outer_total[0];
        const int vectors = (width + ${lanes - 1}) / ${lanes};
        const int unit = in_column_stride == 1 && out_column_stride == 1;
        ${V} block_prefix[${tile_vectors}], running[${tile_vectors}];
        for (int k = 0; k < vectors; ++k) {
            const int last_lane = min(${lanes}, width - k * ${lanes}) - 1;
            block_prefix[k] = (${V})(${identity});
            for (long c = 0; c < chunk; ++c)
                block_prefix[k] = ${name}_combine(block_prefix[k],
                    load_${V}(block_aggregates + total + c * g.outputs + k * ${lanes} * aggregate_column_stride,
                        aggregate_column_stride, last_lane));
        }
        for (long i = first; i < last;) {
            const long stop = min(last, i + ${BLOCK});
            for (int k = 0; k < vectors; ++k)
                running[k] = (${V})(${identity});
            for (; i < stop; ++i)
                for (int k = 0; k < vectors; ++k) {
                    __global const ${ctype(dtype)} *x = input + in + i * g.in_step + k * ${lanes} * in_column_stride;
                    __global ${ctype(dtype)} *y = output + out + i * g.out_step + k * ${lanes} * out_column_stride;
                    const int last_lane = min(${lanes}, width - k * ${lanes}) - 1;
                    const int whole = unit && last_lane == ${lanes - 1};
                    const ${V} v = whole ? *(__global const ${name}_v *)x : load_${V}(x, in_column_stride, last_lane);
                    running[k] = ${name}_combine(running[k], v);
                    const ${V} sum = ${name}_combine(block_prefix[k], running[k]);
                    if (whole)
                        *(__global ${name}_v *)y = sum;
                    else
                        store_${V}(sum, y, out_column_stride, last_lane);
                }
            for (int k = 0; k < vectors; ++k)
                block_prefix[k] = ${name}_combine(block_prefix[k], running[k]);
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}(__global const ${ctype(dtype)} *input, const long input_at, __global ${ctype(dtype)} *output,
    const long output_at, __global const ${ctype(dtype)} *block_aggregates, ${shared.parameter()})
{
    ${shared.read_parameter()}
    const long tasks = g.blocks * g.chunks;
    const long task_end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < task_end; ++task) {
        const long chunk = task / g.blocks;
        const long first = chunk * g.chunk;
        const long last = min(g.length, first + g.chunk);
        long rest = task % g.blocks;
        long in = input_at;
        long out = output_at;
        long total = g.first_total;
        % if pattern == "columns":
        const long column = rest % g.tiles * ${tile_vectors * lanes};
        const int width = min(${tile_vectors * lanes}L, g.outer[0] - column);
        rest = rest / g.tiles * g.outer[0] + column;
        % endif
        ${shared.outer_offset("long")}
        % if pattern == "rows":
        ${rows()}
        % else:
        ${column_tile()}
        % endif
    }
}
