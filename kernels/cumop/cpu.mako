## Cumulative sums and products on schedule cpu: each work-item takes a run of tasks; a task is one chunk of the axis, of one
## row (pattern rows: the lanes lie along the axis) or of a strip of rows (pattern columns: the lanes lie across rows).
## Runs of BLOCK vectors are summed apart and then joined: long sums of floats stay accurate.
<%page args="name, pattern, dtype, lanes, strip_vectors, combine, identity, kept_dims, in_buffer"/>
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
${shared.geometry("long")}
static inline ${V} ${name}_combine(const ${V} a, const ${V} b)
{
    return ${combine};
}

<%def name="rows()">
<% V = vector_type(dtype, lanes) %>
        ${V} base = (${V})(${identity});
        for (long c = 0; c < chunk; ++c)
            base = ${name}_combine(base, (${V})(totals[total + c * g.outputs]));
        const int unit = g.in_step == 1 && g.out_step == 1;
        for (long i = first; i < last;) {
            const long stop = min(last, i + ${BLOCK * lanes});
            ${V} run = (${V})(${identity});
            for (; i < stop; i += ${lanes}) {
                __global const ${ctype(dtype)} *x = input + in + i * g.in_step;
                __global ${ctype(dtype)} *y = output + out + i * g.out_step;
                const int end = min(${lanes}, (int)(stop - i)) - 1, whole = unit && end == ${lanes - 1};
                ${V} v = whole ? *(__global const ${name}_v *)x : load_${V}(x, g.in_step, end);
                % for by in (1, 2, 4, 8):
                % if by < lanes:
                v = ${name}_combine(${shifted(dtype, lanes, by, identity)}, v);
                % endif
                % endfor
                v = ${name}_combine(run, v);
                run = (${V})(v.s${DIGITS[lanes - 1]});
                v = ${name}_combine(base, v);
                if (whole)
                    *(__global ${name}_v *)y = v;
                else
                    store_${V}(v, y, g.out_step, end);
            }
            base = ${name}_combine(base, run);
        }
</%def>

<%def name="strip()">
<% V = vector_type(dtype, lanes) %>
        const long in_across = g.kept_in[0], out_across = g.kept_out[0], total_across = g.kept_total[0];
        const int vectors = (width + ${lanes - 1}) / ${lanes}, unit = in_across == 1 && out_across == 1;
        ${V} base[${strip_vectors}], run[${strip_vectors}];
        for (int k = 0; k < vectors; ++k) {
            const int end = min(${lanes}, width - k * ${lanes}) - 1;
            base[k] = (${V})(${identity});
            for (long c = 0; c < chunk; ++c)
                base[k] = ${name}_combine(base[k], load_${V}(totals + total + c * g.outputs + k * ${lanes} * total_across, total_across, end));
        }
        for (long i = first; i < last;) {
            const long stop = min(last, i + ${BLOCK});
            for (int k = 0; k < vectors; ++k)
                run[k] = (${V})(${identity});
            for (; i < stop; ++i)
                for (int k = 0; k < vectors; ++k) {
                    __global const ${ctype(dtype)} *x = input + in + i * g.in_step + k * ${lanes} * in_across;
                    __global ${ctype(dtype)} *y = output + out + i * g.out_step + k * ${lanes} * out_across;
                    const int end = min(${lanes}, width - k * ${lanes}) - 1, whole = unit && end == ${lanes - 1};
                    const ${V} v = whole ? *(__global const ${name}_v *)x : load_${V}(x, in_across, end);
                    run[k] = ${name}_combine(run[k], v);
                    const ${V} sum = ${name}_combine(base[k], run[k]);
                    if (whole)
                        *(__global ${name}_v *)y = sum;
                    else
                        store_${V}(sum, y, out_across, end);
                }
            for (int k = 0; k < vectors; ++k)
                base[k] = ${name}_combine(base[k], run[k]);
        }
</%def>

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}(__global const ${ctype(dtype)} *input, const long input_at, __global ${ctype(dtype)} *output, const long output_at,
             __global const ${ctype(dtype)} *totals, ${shared.parameter()})
{
    ${shared.read_parameter()}
    const long tasks = g.blocks * g.chunks, task_end = tasks * (get_global_id(0) + 1) / get_global_size(0);
    for (long task = tasks * get_global_id(0) / get_global_size(0); task < task_end; ++task) {
        const long chunk = task / g.blocks, first = chunk * g.chunk, last = min(g.length, first + g.chunk);
        long rest = task % g.blocks, in = input_at, out = output_at, total = g.first_total;
        % if pattern == "columns":
        const long column = rest % g.tiles * ${strip_vectors * lanes};
        const int width = min(${strip_vectors * lanes}L, g.kept[0] - column);
        rest = rest / g.tiles * g.kept[0] + column;
        % endif
        ${shared.kept_offset("long")}
        % if pattern == "rows":
        ${rows()}
        % else:
        ${strip()}
        % endif
    }
}
