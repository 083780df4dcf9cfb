## Convolution as a matrix product, schedule cpu: as kernels/gemm/cpu.mako, but the panels of B, whose columns are output positions and whose
## rows are channels and taps, are gathered from x while they are packed. `gather` says along which of the two x is contiguous.
<%page args="name, ctype, itemsize, lanes, rows, vectors, gather, further=(), statements=''"/>
<%namespace name="panels" file="/conv/packing.mako"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="parts" file="/conv/store.mako"/>
<%
    cols, vec = lanes * vectors, f"conv_{ctype}{lanes}"
    J = range(vectors)
%>
typedef ${ctype}${lanes} ${name}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${name}_vec4 __attribute__((aligned(${itemsize})));
${panels.pack("a", rows)}
// Pack `count` rows of w for k in [k0, k0 + depth), as panels that lie `apart`: in long runs of one stride where there are
// such, else one by one.
static void ${name}_weights(const conv_plan *p, __global const ${ctype} *w, long count, long k0, long depth,
                            __global ${ctype} *panel, long apart)
{
    const long taps[3] = {p->taps[0], p->taps[1], p->taps[2]};
    for (long i = 0; i < count; i += ${rows}, w += ${rows} * p->w[1], panel += apart) {
        __global ${ctype} *to = panel;
        const long height = min(${rows}L, count - i);
        for (long k = 0, run; p->w_inner && k < depth; k += run, to += run * ${rows}) {
            const long at = (k0 + k) % p->w_inner;
            run = min(depth - k, p->w_inner - at);
            ${name}_pack_a(w + (k0 + k) / p->w_inner * p->w_outer + at * p->w_step, p->w[1], p->w_step, height, run, to);
        }
        conv_index t = conv_split(k0, taps);
        for (long k = 0; !p->w_inner && k < depth; k++, to += ${rows}, conv_advance(&t, 1, taps)) {
            __global const ${ctype} *v = w + t.outer * p->w[2] + conv_at(p->w, t);
            % for r in range(0, rows, 4):
            *(__global ${name}_vec4 *)(to + ${r}) =
                (${ctype}4)(${", ".join(f"v[min({r + i}L, height - 1) * p->w[1]]" for i in range(4))});
            % endfor
        }
    }
}
<%include file="/conv/iterate_${gather}.mako" args="name=name, ctype=ctype, lanes=lanes, cols=cols, vec=vec"/>
${panels.multiply(rows, lanes, vectors, J)}
${panels.multiply(rows, lanes, vectors, range(1), "_narrow")}
% if statements:
${epilogue.declarations(lanes)}
% endif
${parts.store(lanes, vectors, statements)}
${parts.columns(lanes, vectors)}
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) CONV_VECTORS(${8 * itemsize * lanes})
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *scratch${epilogue.parameters() if statements else ""})
{
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2);
    const long n = p.batch * p.out[0] * p.out[1] * p.out[2], k = p.c * p.taps[0] * p.taps[1] * p.taps[2];
    const long m0 = conv_share(p.m, ${rows}, y, ny), m1 = conv_share(p.m, ${rows}, y + 1, ny);
    const long n0 = conv_share(n, ${cols}, x, nx), n1 = conv_share(n, ${cols}, x + 1, nx);
    __global ${ctype} *const packed_a = scratch + p.scratch * ((z * ny + y) * nx + x);
    __global ${ctype} *const packed_b = packed_a + p.m_block * p.k_block;
    const long w_step = p.w_step == 1 && !p.w_outer ? p.k_block : p.k_step;  // rows that are contiguous are read whole
    ${ctype} tile[${rows * cols}] __attribute__((aligned(64)));
    long at[${cols}];
    int unit[${vectors}];
    for (long b = conv_share(p.groups * p.parts, 1, z, nz); b < conv_share(p.groups * p.parts, 1, z + 1, nz); b++)
    for (long jc = n0; jc < n1; jc += p.n_block) {
        const long g = b % p.groups, part = b / p.groups;
        const long k0 = conv_share(k, p.k_block, part, p.parts), k1 = conv_share(k, p.k_block, part + 1, p.parts);
        __global const ${ctype} *const x_g = X + s.x + g * p.x[1], *const w_g = W + s.w + g * p.w[0];
        __global ${ctype} *const y_g = Y + s.y + g * p.y[1] + part * p.y_part;
        for (long kc = k0; kc < k1 || kc == k0; kc += p.k_block) {  // once at least: the sum over no k is zero
            const long nb = min(p.n_block, n1 - jc), kb = min(p.k_block, k1 - kc);
            // A few channels at a time: their rows of x are read as far as all panels reach, before the next ones.
            for (long i = 0; i < kb; i += p.k_step)
                for (long j = 0; j < nb; j += ${cols})
                    ${name}_gather(&p, x_g, jc + j, min(${cols}L, nb - j), kc + i, min(p.k_step, kb - i),
                                   packed_b + j * kb + i * ${cols});
            for (long ic = m0; ic < m1; ic += p.m_block) {
                const long mb = min(p.m_block, m1 - ic);
                for (long i = 0; i < kb; i += w_step)
                    ${name}_weights(&p, w_g + ic * p.w[1], mb, kc + i, min(w_step, kb - i), packed_a + i * ${rows}, kb * ${rows});
                for (long j = 0; j < nb; j += ${cols}) {
                    const long width = min(${cols}L, nb - j);
                    ${name}_columns(&p, jc + j, width, at, unit);
                    for (long i = 0; i < mb; i += ${rows}) {
                        if (width > ${lanes})
                            ${name}_multiply(packed_a + i * kb, packed_b + j * kb, kb, tile);
                        else
                            ${name}_multiply_narrow(packed_a + i * kb, packed_b + j * kb, kb, tile);
                        ${name}_store(tile, at, unit, p.y[2], min(${rows}L, mb - i), width, kc == k0, y_g + (ic + i) * p.y[2]${
                                       ", kc + p.k_block >= k1, g * p.m + ic + i, y_g + (ic + i) * p.y[2] - Y" + capture(epilogue.arguments) if statements else ""});
                    }
                }
            }
        }
    }
}
