## Convolution as an implicit matrix product, schedule cpu: the five loops of kernels/gemm/cpu.mako, with panels of B
##     that are gathered from x while they are packed.
##
## Algorithm   A is w (m, k), B is x (k, n), y is (m, n), for each group; k is a channel and a filter tap, n an image
##             and an output pixel. `gather` is the iterator over B: iterate_rows.mako or iterate_columns.mako.
## Operands    x, w and y with any strides; plan.mako.
## Tiling      Blocks of mc rows, nc columns and kc elements along k; register tiles of mr x (lanes * vectors) sums.
## NDRange     dimension 0 is a partition of the columns, dimension 1 of the rows, dimension 2 of the groups and parts
##             of k.
## Workspace   For each work-item the packed A (mc, kc), then the packed B (kc, nc).
## Invariants  B is packed once for a block of columns; the sum over no k is zero.
## Reference   BLIS (Van Zee and van de Geijn 2015), with im2col on the way (cuDNN, Chetlur et al. 2014).
<%page args="name, ctype, itemsize, lanes, mr, vectors, gather, further=(), offsets=None, statements=''"/>
<%namespace name="product" file="/conv/gemm_common.mako"/>
<%namespace name="packing" file="/conv/packing.mako"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="stores" file="/conv/store.mako"/>
<%
    nr, vec = lanes * vectors, f"conv_{ctype}{lanes}"
    function = f"static NOINLINE MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
%>
typedef ${ctype}${lanes} ${name}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${name}_vec4 __attribute__((aligned(${itemsize})));
${packing.pack("a", mr, function)}
// Pack `count` rows of w for k in [k0, k0 + depth), as panels that are `panel_stride` apart: in long runs of one stride
// where there are such, else element by element.
${function} void ${name}_pack_a_block(const conv_plan *p, __global const ${ctype} *w, long count, long k0, long depth,
                                 __global ${ctype} *packed, long panel_stride)
{
    const long taps[3] = {p->taps[0], p->taps[1], p->taps[2]};
    for (long i = 0; i < count; i += ${mr}) {
        __global ${ctype} *to = packed;
        const long height = min(${mr}L, count - i);
        for (long k = 0, run; p->w_inner && k < depth; k += run) {
            const long inner = (k0 + k) % p->w_inner;
            run = min(depth - k, p->w_inner - inner);
            __global const ${ctype} *const from = w + (k0 + k) / p->w_inner * p->w_outer + inner * p->w_step;
            ${name}_pack_a(from, p->w.m, p->w_step, height, run, to);
            to += run * ${mr};
        }
        conv_index t = conv_unravel(k0, taps);
        for (long k = 0; !p->w_inner && k < depth; k++) {
            __global const ${ctype} *v = w + t.outer * p->w.c + conv_offset(p->w.d, p->w.h, p->w.w, t);
            % for r in range(0, mr, 4):
            *(__global ${name}_vec4 *)(to + ${r}) =
                (${ctype}4)(${", ".join(f"v[min({r + i}L, height - 1) * p->w.m]" for i in range(4))});
            % endfor
            to += ${mr};
            conv_advance(&t, 1, taps);
        }
        w += ${mr} * p->w.m;
        packed += panel_stride;
    }
}
<%include file="/conv/iterate_${gather}.mako"
          args="name=name, ctype=ctype, lanes=lanes, nr=nr, vec=vec, function=function"/>
${packing.multiply(mr, lanes, vectors, range(vectors), function)}
${packing.multiply(mr, lanes, vectors, range(1), function, "_narrow")}
% if statements:
${epilogue.declarations(name, ctype, lanes, further, offsets, statements)}
% endif
${stores.store(name, ctype, lanes, vectors, further, statements, function)}
${stores.columns(name, lanes, vectors, function)}
## A few channels at a time: their rows of x are read as far as all panels reach, before the next ones.
<%def name="pack_b_block()">
            for (long i = 0; i < kc; i += p.k_step)
                for (long j0 = 0; j0 < nc; j0 += ${nr})
                    ${name}_pack_b(&p, x_g, n0 + j0, min(${nr}L, nc - j0), k0 + i, min(p.k_step, kc - i),
                                   packed_b + j0 * kc + i * ${nr});
</%def>
<%def name="pack_a()">
                for (long i = 0; i < kc; i += w_step)
                    ${name}_pack_a_block(&p, w_g + m0 * p.w.m, mc, k0 + i, min(w_step, kc - i), packed_a + i * ${mr},
                                         kc * ${mr});
</%def>
<%def name="multiply()">
                        if (width > ${lanes})
                            ${name}_multiply(packed_a + i0 * kc, packed_b + j0 * kc, kc, tile);
                        else
                            ${name}_multiply_narrow(packed_a + i0 * kc, packed_b + j0 * kc, kc, tile);
</%def>
<%def name="store_tile()">
                        __global ${ctype} *const to = y_g + (m0 + i0) * p.y.m;
                        ${name}_store(tile, column_offsets, is_contiguous, p.y.m, min(${mr}L, mc - i0), width,
                                      k0 == k_begin, to
                                      % if statements:
                                      , k0 + p.kc >= k_end, g * p.m + m0 + i0, to - Y${epilogue.arguments(further)}
                                      % endif
                                      );
</%def>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
MIN_VECTOR_WIDTH(${8 * itemsize * lanes})
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W, __global ${ctype} *Y,
             __global ${ctype} *workspace${epilogue.parameters(name, ctype, further) if statements else ""})
{
    ${product.work_item_ranges(nr)}
    __global ${ctype} *const packed_a = workspace + p.workspace_size * ((z * ny + y) * nx + x);
    __global ${ctype} *const packed_b = packed_a + p.mc * p.kc;
    const long w_step = p.w_step == 1 && !p.w_outer ? p.kc : p.k_step;  // rows that are contiguous are read whole
    ${ctype} tile[${mr * nr}] __attribute__((aligned(64)));
    long column_offsets[${nr}];
    int is_contiguous[${vectors}];
    for (long b = b_begin; b < b_end; b++)
        for (long n0 = n_begin; n0 < n_end; n0 += p.nc) {
            ${product.block_operands()}
            for (long k0 = k_begin; k0 < k_end || k0 == k_begin; k0 += p.kc) {  // once at least
                const long kc = min(p.kc, k_end - k0);
                ${pack_b_block()}
                for (long m0 = m_begin; m0 < m_end; m0 += p.mc) {
                    const long mc = min(p.mc, m_end - m0);
                    ${pack_a()}
                    for (long j0 = 0; j0 < nc; j0 += ${nr}) {
                        const long width = min(${nr}L, nc - j0);
                        ${name}_columns(&p, n0 + j0, width, column_offsets, is_contiguous);
                        for (long i0 = 0; i0 < mc; i0 += ${mr}) {
                            ${multiply()}
                            ${store_tile()}
                        }
                    }
                }
            }
        }
}
