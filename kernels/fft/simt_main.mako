## The kernel of kernels/fft/simt.mako, which has the header: the stages of a block of lines, in order.
##
## Stages: load -> real_pre (pre-processing of an inverse real transform) -> zeros up to `size` -> pre (Bluestein:
##     chirp) -> passes -> mid (Bluestein: spectrum of the filter) -> passes -> post (Bluestein: chirp) -> real_post
##     (post-processing of a real transform) -> twiddle (four-step method) -> store. The fields of the geometry
##     (plan.mako) say which of them there are.
## Operands    `at` has, for each line, where it begins in the input and in its mirror image, then the same for the
##             output. The passes swap the arrays a and b.
<%page args="name, dtype, kept_dims, space, group, widest"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype
%>\
<% T, S, fence = ctype(dtype), f"__{space}", f"barrier(CLK_{space.upper()}_MEM_FENCE)" %>\
## A barrier never depends on a condition, not even on a uniform one: PoCL would double all the code after it.
## Neighbouring work-items take neighbouring elements of a line, or neighbouring lines: what is closer in memory.
<%def name="move(io, at, count)">
        {
            const ${name}_io *io = &g.${io};
            const int count = ${count}, rows = abs(io->step) < abs(g.kept_${io}[0]);
            ${name}_FOR(i, count * width) {
                const int lane = rows ? i / count : i % width, j = rows ? i % count : i / width;
                const int k = j * width + lane;
                const long to =
                    j < io->mirror ? at[${at}][lane] + j * io->step : at[${at + 1}][lane] - j * io->step;
                const ${T} sign = j < io->mirror ? ${io}_sign : -${io}_sign;
                ${caller.body()}
            }
        }
</%def>\
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
             ${S} ${T} *workspace,
             __global const ${T} *factors, __global const ${T} *real_pre, __global const ${T} *pre,
             __global const ${T} *mid, __global const ${T} *post, __global const ${T} *block_twiddles,
             __global const ${T} *lane_twiddles,
             const ${T} in_sign, const ${T} out_sign, const int width, const ${name}_geometry g)
{
    __local long at[4][${widest}];
    const int plane = (g.size + 1) * width;
    % if space == "global":
    workspace += get_group_id(0) * 4 * (long)plane;
    % endif
    for (long block = get_group_id(0); block < g.blocks; block += get_num_groups(0)) {
        const long column = block % g.tiles * width;
        const int active = min((long)width, g.inner - column);
        ${S} ${T} *a = workspace, *b = workspace + 2 * plane, *c;
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
        <%call expr="move('in', 0, 'g.length + g.real_pre')">
                a[k] = j < io->re_count ? input[to] : 0;
                a[k + plane] = j < io->im_count ? input[to + io->im] * sign : 0;
        </%call>
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);  // the output may be the input
        if (g.real_pre) {
            ${name}_real_pre(a, b, plane, width, real_pre, g.length);
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
        if (g.real_post) {
            ${name}_real_post(a, b, plane, width, real_pre, g.length);
            c = a;
            a = b;
            b = c;
        }
        ${fence};
        if (g.twiddle)
            ${name}_twiddle(a, plane, width, g.length + g.real_post, column, block_twiddles, lane_twiddles);
        ${fence};
        <%call expr="move('out', 2, 'min(g.length + g.real_post, g.out.re_count)')">
                // Lines that are their own mirror images make each number twice: only one work-item writes it.
                const long own = (column + lane) * io->mirror_step;
                const int twice =
                    j >= io->mirror && 2 * own % io->step == 0 && 2 * (own + j * io->step) != io->total;
                if (lane < active && !twice)
                    output[to] = a[k];
                if (lane < active && !twice && j < io->im_count)
                    output[to + io->im] = a[k + plane] * sign;
        </%call>
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);  // `at` is local, wherever the lines are
    }
}
