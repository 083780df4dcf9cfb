## Gradients of a convolution's weights, schedule cpu: x is unfolded, or read in place where kernels have one tap, so that sums go along
## its rows; dy is turned. Of conv_plan, w is the gradient and y is dy; of conv_call, w is dy and y is the gradient.
<%page args="name, ctype, itemsize, lanes, tiles, rows, vectors"/>
<%namespace name="turned" file="/conv/transposed.mako"/>
<%namespace name="parts" file="/conv/winograd_transforms.mako"/>
<%
    cols, vec, heights = lanes * vectors, f"conv_{ctype}{lanes}", [rows, rows // 2] if rows >= 8 else [rows]
    full_width = f"CONV_VECTORS({8 * itemsize * lanes})"
%>
<%include file="/conv/im2col.mako" args="name=name, ctype=ctype, lanes=lanes, vec=vec"/>
${turned.products(vec, heights, cols, full_width)}
// T[column, m - m0] = dy, for `count` columns, which are positions of all images, from j0 on.
static ${full_width} void ${name}_turn(const conv_plan *p, __global const ${ctype} *y, long j0, long count, long m0, long m1, __global ${ctype} *T,
                                       long apart)
{
    const long positions = p->out[0] * p->out[1] * p->out[2];
    for (long j = 0, run; j < count; j += run, T += run * apart) {
        const long n = (j0 + j) / positions, q = (j0 + j) % positions;
        run = min(positions - q, count - j);
        for (long i = m0; i < m1; i += ${lanes}) {
            __global const ${ctype} *const from = y + n * p->y[0] + i * p->y[2] + q;
            const long last = p->m - 1 - i;
            for (long l = 0; run >= ${lanes} && l < run; l += ${lanes}) {
                const long at = min(l, run - ${lanes});  // the last vector may overlap the one before
                __global ${ctype} *const to = T + at * apart + i - m0;
                ${parts.turn(lambda l: f"*(__global const {vec} *)(from + min({l}L, last) * p->y[2] + at)", lambda l: f"*(__global {vec} *)(to + {l} * apart)")}
            }
            for (long l = 0; run < ${lanes} && l < run; l++)
                for (long r = 0; r < ${lanes}; r++)
                    T[l * apart + i - m0 + r] = from[min(r, last) * p->y[2] + l];
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) ${full_width}
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *Y, __global ${ctype} *W, __global ${ctype} *scratch)
{
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2);
    const long k = p.c * p.taps[0] * p.taps[1] * p.taps[2], positions = p.out[0] * p.out[1] * p.out[2], n = p.batch * positions;
    const long units = k / ${lanes}, r0 = units * x / nx * ${lanes}, r1 = x + 1 == nx ? k : units * (x + 1) / nx * ${lanes};
    const long m0 = conv_share(p.m, ${lanes}, y, ny), m1 = conv_share(p.m, ${lanes}, y + 1, ny);
    const long apart = p.n_block + ${lanes}, wide = p.k_block, in_place = p.k_step;
    __global ${ctype} *const T = scratch + p.scratch * ((z * ny + y) * nx + x), *const matrix = T + p.n_block * wide;
    for (long b = conv_share(p.groups * p.parts, 1, z, nz); b < conv_share(p.groups * p.parts, 1, z + 1, nz); b++) {
        const long g = b % p.groups, part = b / p.groups;
        const long j0 = conv_share(n, p.n_block, part, p.parts), j1 = conv_share(n, p.n_block, part + 1, p.parts);
        __global const ${ctype} *const x_g = X + s.x + g * p.x[1], *const y_g = Y + s.w + g * p.y[1];
        __global ${ctype} *const w = W + s.y + part * p.y_part + g * p.w[0] + m0 * p.w[1];
        for (long j = j0, nb; j < j1; j += nb) {
            nb = min(p.n_block, j1 - j);
            nb = in_place ? min(nb, positions - j % positions) : nb;
            ${name}_turn(&p, y_g, j, nb, m0, m1, T, wide);
            for (long r = r0, count; r < r1; r += count) {
                count = r1 - r <= p.m_block + ${lanes} ? r1 - r : p.m_block;  // no few rows are left
                if (!in_place)
                    ${name}_unfold(&p, x_g, j, nb, r, count, matrix, apart);
                ${name}_products(in_place ? x_g + j / positions * p.x[0] + r * p.x[2] + j % positions : matrix, in_place ? p.x[2] : apart, 1,
                    T, wide, count, m1 - m0, nb, w + r, p.w[1], j == j0);
            }
        }
    }
}
