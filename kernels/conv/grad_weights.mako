## Gradient of a convolution's weights as a matrix product, schedule cpu.
##
## Algorithm   Dw = (im2col(x) @ dy.T).T: a block of x is copied to a matrix (im2col.mako), or read in place where
##             filters have one tap; a block of dy is transposed.
## Operands    Of conv_plan, w is the gradient and y is dy; of conv_call, w is dy and y is the gradient.
## Tiling      Blocks of mc rows of the matrix (channels and taps), nc output pixels; kc is the row length of the
##             transposed dy; with k_step x is read in place.
## NDRange     dimension 0 is a partition of the rows of the matrix, dimension 1 of the channels of dy, dimension 2 of
##             the groups and parts of the output pixels.
## Workspace   For each work-item the transposed dy (nc, kc), then the matrix (mc + lanes, nc + lanes).
<%page args="name, ctype, itemsize, lanes, micro, mr, vectors"/>
<%namespace name="transposed" file="/conv/transposed.mako"/>
<%namespace name="registers" file="/common/register_transpose.mako"/>
<%
    nr, vec = lanes * vectors, f"conv_{ctype}{lanes}"
    heights = [mr, mr // 2] if mr >= 8 else [mr]
    full_width = f"MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    function = f"static NOINLINE {full_width}"
%>
<%include file="/conv/im2col.mako" args="name=name, ctype=ctype, lanes=lanes, vec=vec, function=function"/>
${transposed.products(vec, heights, nr, function)}
// T[column, m - m0] = dy, for `count` columns, which are output pixels of all images, from n0 on.
${function} void ${name}_transpose(const conv_plan *p, __global const ${ctype} *y, long n0, long count,
                                            long m0, long m_end, __global ${ctype} *T, long t_row)
{
    const long pixels = p->out[0] * p->out[1] * p->out[2];
    for (long j = 0, run; j < count; j += run) {
        const long n = (n0 + j) / pixels, q = (n0 + j) % pixels;
        run = min(pixels - q, count - j);
        for (long i = m0; i < m_end; i += ${lanes}) {
            __global const ${ctype} *const from = y + n * p->y.n + i * p->y.m + q;
            const long last = p->m - 1 - i;
            for (long l = 0; run >= ${lanes} && l < run; l += ${lanes}) {
                const long at = min(l, run - ${lanes});  // the last vector may overlap the one before
                __global ${ctype} *const to = T + at * t_row + i - m0;
                ${registers.transpose(ctype, lanes,
                                      f"*(__global const {vec} *)(from + min({{l}}L, last) * p->y.m + at)",
                                      f"*(__global {vec} *)(to + {{l}} * t_row)")}
            }
            for (long l = 0; run < ${lanes} && l < run; l++)
                for (long r = 0; r < ${lanes}; r++)
                    T[l * t_row + i - m0 + r] = from[min(r, last) * p->y.m + l];
        }
        T += run * t_row;
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes}))) ${full_width}
void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *Y, __global ${ctype} *W,
             __global ${ctype} *workspace)
{
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2);
    const long k = p.c * p.taps[0] * p.taps[1] * p.taps[2];
    const long pixels = p.out[0] * p.out[1] * p.out[2], n = p.batch * pixels;
    const long units = k / ${lanes};
    const long r_begin = units * x / nx * ${lanes}, r_end = x + 1 == nx ? k : units * (x + 1) / nx * ${lanes};
    const long m_begin = partition_begin(p.m, ${lanes}, y, ny), m_end = partition_begin(p.m, ${lanes}, y + 1, ny);
    const long matrix_row = p.nc + ${lanes}, t_row = p.kc, is_in_place = p.k_step;
    __global ${ctype} *const T = workspace + p.workspace_size * ((z * ny + y) * nx + x);
    __global ${ctype} *const matrix = T + p.nc * t_row;
    const long b_begin = partition_begin(p.groups * p.split_k, 1, z, nz);
    const long b_end = partition_begin(p.groups * p.split_k, 1, z + 1, nz);
    for (long b = b_begin; b < b_end; b++) {
        const long g = b % p.groups, part = b / p.groups;
        const long n_begin = partition_begin(n, p.nc, part, p.split_k);
        const long n_end = partition_begin(n, p.nc, part + 1, p.split_k);
        __global const ${ctype} *const x_g = X + s.x + g * p.x.g;
        __global const ${ctype} *const y_g = Y + s.w + g * p.y.g;
        __global ${ctype} *const w = W + s.y + part * p.partial_stride + g * p.w.g + m_begin * p.w.m;
        for (long n0 = n_begin, nc; n0 < n_end; n0 += nc) {
            nc = min(p.nc, n_end - n0);
            nc = is_in_place ? min(nc, pixels - n0 % pixels) : nc;
            ${name}_transpose(&p, y_g, n0, nc, m_begin, m_end, T, t_row);
            for (long r = r_begin, count; r < r_end; r += count) {
                count = r_end - r <= p.mc + ${lanes} ? r_end - r : p.mc;  // no few rows are left
                if (!is_in_place)
                    ${name}_im2col(&p, x_g, n0, nc, r, count, matrix, matrix_row);
                __global const ${ctype} *const rows =
                    is_in_place ? x_g + n0 / pixels * p.x.n + r * p.x.c + n0 % pixels : matrix;
                ${name}_products(rows, is_in_place ? p.x.c : matrix_row, 1, T, t_row, count, m_end - m_begin, nc,
                                 w + r, p.w.m, n0 == n_begin);
            }
        }
    }
}
