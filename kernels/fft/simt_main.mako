## The kernel of kernels/fft/simt.mako.
<%page args="name, dtype, kept_dims, space, group, widest"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>\
<% T, S, fence = ctype(dtype), f"__{space}", f"barrier(CLK_{space.upper()}_MEM_FENCE)" %>\
## A barrier never depends on a condition, not even on a uniform one: PoCL would double all the code after it.
## Neighbouring work-items take neighbouring elements of a line, or neighbouring lines: what is closer in memory.
<%def name="move(side, at, count)">
        {
            const ${name}_side *side = &g.${side};
            const int count = ${count}, rows = abs(side->step) < abs(g.kept_${side}[0]);
            ${name}_FOR(i, count * width) {
                const int lane = rows ? i / count : i % width, j = rows ? i % count : i / width, k = j * width + lane;
                const long to = j < side->mirror ? at[${at}][lane] + j * side->step : at[${at + 1}][lane] - j * side->step;
                const ${T} sign = j < side->mirror ? ${side}_sign : -${side}_sign;
                ${caller.body()}
            }
        }
</%def>\
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at, ${S} ${T} *scratch,
             __global const ${T} *factors, __global const ${T} *tangle, __global const ${T} *pre, __global const ${T} *mid,
             __global const ${T} *post, __global const ${T} *block_twiddles, __global const ${T} *lane_twiddles,
             const ${T} in_sign, const ${T} out_sign, const int width, const ${name}_geometry g)
{
    __local long at[4][${widest}];
    const int plane = (g.size + 1) * width;
    % if space == "global":
    scratch += get_group_id(0) * 4 * (long)plane;
    % endif
    for (long block = get_group_id(0); block < g.blocks; block += get_num_groups(0)) {
        const long column = block % g.tiles * width;
        const int active = min((long)width, g.inner - column);
        ${S} ${T} *a = scratch, *b = scratch + 2 * plane, *c;
        ${name}_FOR(k, width) {  // lines that are not there repeat the last one
            const long line = column + min(k, active - 1);
            long rest = block / g.tiles * g.inner + line, in = input_at + g.in.at, out = output_at + g.out.at;
            for (int d = 0; d < ${kept_dims}; ++d) {
                in += rest % g.kept[d] * g.kept_in[d];
                out += rest % g.kept[d] * g.kept_out[d];
                rest /= g.kept[d];
            }
            at[0][k] = in;
            at[1][k] = in + g.in.total - 2 * line * g.in.mirror_step;
            at[2][k] = out;
            at[3][k] = out + g.out.total - 2 * line * g.out.mirror_step;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        <%call expr="move('in', 0, 'g.length + g.tangle')">
                a[k] = j < side->re_count ? input[to] : 0;
                a[k + plane] = j < side->im_count ? input[to + side->im] * sign : 0;
        </%call>
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);  // the output may be the input
        if (g.tangle) {
            ${name}_tangle(a, b, plane, width, tangle, g.length);
            c = a;
            a = b;
            b = c;
        }
        ${fence};
        ${name}_FOR(i, (g.size - g.length) * width) {
            a[g.length * width + i] = 0;
            a[g.length * width + i + plane] = 0;
        }
        ${fence};
        if (g.pre)
            ${name}_multiply(a, plane, width, g.length, pre, g.pre_step, g.pre_lane, column, 1, 1);
        ${fence};
        for (int again = 0; again <= g.mid; ++again) {
            if (again)
                ${name}_multiply(a, plane, width, g.size, mid, g.mid_step, g.mid_lane, column, 1, -1);
            ${fence};
            c = ${name}_passes(a, b, plane, width, factors, &g);
            b = c == a ? b : a;
            a = c;
        }
        if (g.post)
            ${name}_multiply(a, plane, width, g.length, post, 1, 0, 0, -1, 1);
        ${fence};
        if (g.untangle) {
            ${name}_untangle(a, b, plane, width, tangle, g.length);
            c = a;
            a = b;
            b = c;
        }
        ${fence};
        if (g.twiddle)
            ${name}_twiddle(a, plane, width, g.length + g.untangle, column, block_twiddles, lane_twiddles);
        ${fence};
        <%call expr="move('out', 2, 'min(g.length + g.untangle, g.out.re_count)')">
                // Lines that are their own mirror images make each number twice: only one work-item writes it.
                const long own = (column + lane) * side->mirror_step;
                const int twice = j >= side->mirror && 2 * own % side->step == 0 && 2 * (own + j * side->step) != side->total;
                if (lane < active && !twice)
                    output[to] = a[k];
                if (lane < active && !twice && j < side->im_count)
                    output[to + side->im] = a[k + plane] * sign;
        </%call>
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);  // `at` is local, wherever the lines are
    }
}
