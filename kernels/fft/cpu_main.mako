## The kernel of kernels/fft/cpu.mako, which has the header: the stages of a block of lines, in order.
##
## Stages: load -> real_pre (pre-processing of an inverse real transform) -> zeros up to `size` -> pre (Bluestein:
##     chirp) -> passes -> mid (Bluestein: spectrum of the filter) -> passes -> post (Bluestein: chirp) -> real_post
##     (post-processing of a real transform) -> twiddle (four-step method) -> store. The fields of the geometry
##     (plan.mako) say which of them there are.
## Operands    `at` has, for each line, where it begins in the input and in its mirror image, then the same for the
##             output. The passes swap the arrays a and b.
<%page args="name, dtype, lanes, kept_dims"/>\
<%!
    from pytensor_cl.codegen.dtypes import ctype, vector_type
%>\
<% T, V = ctype(dtype), vector_type(dtype, lanes) %>\
<%def name="move(how, at, array, sign)">
            fft_${how}(a, ${array}, at[${at}], 0, middle, io->step, io->im, ${sign}, io->re_count, io->im_count,
                       active);
            fft_${how}(a, ${array}, at[${at + 1}], middle, end, -io->step, io->im, -${sign}, io->re_count, io->im_count,
                       active);
</%def>\
<%include file="/common/partition.mako"/>\
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}(__global const ${T} *input, const long input_at, __global ${T} *output, const long output_at,
             __global ${V} *workspace,
             __global const ${T} *factors, __global const ${T} *real_pre, __global const ${T} *pre,
             __global const ${T} *mid, __global const ${T} *post, __global const ${T} *block_twiddles,
             __global const ${V} *lane_twiddles,
             const ${T} in_sign, const ${T} out_sign, const ${name}_geometry g)
{
    __global ${V} *const first = workspace + get_global_id(0) * 4 * (g.size + 1);
    __global ${V} *const second = first + 2 * (g.size + 1);
    __global ${V} *a, *b, *c;
    const long block_end = partition_begin(g.blocks, 1, get_global_id(0) + 1, get_global_size(0));
    for (long block = partition_begin(g.blocks, 1, get_global_id(0), get_global_size(0)); block < block_end; ++block) {
        const long group = block / g.tiles, column = block % g.tiles * ${lanes};
        const long count = g.length + g.real_post;
        const int active = min(${lanes}L, g.inner - column);
        long at[4][${lanes}], digit[${kept_dims}], rest = group * g.inner + column;
        long in = input_at + g.in.at, out = output_at + g.out.at;
        for (int d = 0; d < ${kept_dims}; ++d) {
            digit[d] = rest % g.kept[d];
            rest /= g.kept[d];
            in += digit[d] * g.kept_in[d];
            out += digit[d] * g.kept_out[d];
        }
        for (int k = 0; k < ${lanes}; ++k) {
            const long lane = column + min(k, active - 1);
            at[0][k] = in;
            at[1][k] = in + g.in.total - 2 * lane * g.in.mirror_step;
            at[2][k] = out;
            at[3][k] = out + g.out.total - 2 * lane * g.out.mirror_step;
            for (int d = 0; d < ${kept_dims} && k + 1 < active; ++d) {  // lanes that are not there repeat the last one
                in += g.kept_in[d];
                out += g.kept_out[d];
                if (++digit[d] < g.kept[d])
                    break;
                digit[d] = 0;
                in -= g.kept[d] * g.kept_in[d];
                out -= g.kept[d] * g.kept_out[d];
            }
        }
        a = first;
        b = second;
        {
            const ${name}_io *io = &g.in;
            const long end = g.length + g.real_pre, middle = min(end, io->mirror);
            ${move(f"load_{V}", 0, "input", "in_sign")}
        }
        if (g.real_pre) {
            ${name}_real_pre(a, b, real_pre, g.length);
            a = second;
            b = first;
        }
        for (long j = g.length; j < g.size; ++j)
            a[2 * j] = a[2 * j + 1] = (${V})(0);
        if (g.pre)
            ${name}_multiply(a, g.length, pre, g.pre_step, g.pre_lane, column, 1, 1);
        for (int again = 0; again <= g.mid; ++again) {
            if (again)
                ${name}_multiply(a, g.size, mid, g.mid_step, g.mid_lane, column, 1, -1);
            c = ${name}_passes(a, b, factors, &g);
            b = c == a ? b : a;
            a = c;
        }
        if (g.post)
            ${name}_multiply(a, g.length, post, 1, 0, 0, -1, 1);
        if (g.real_post) {
            ${name}_real_post(a, b, real_pre, g.length);
            c = a;
            a = b;
            b = c;
        }
        if (g.twiddle)
            ${name}_twiddle(a, count, block_twiddles + 2 * column / ${lanes} * count, lane_twiddles);
        {
            const ${name}_io *io = &g.out;
            const long end = count, middle = min(end, io->mirror);
            ${move(f"store_{V}", 2, "output", "out_sign")}
        }
    }
}
