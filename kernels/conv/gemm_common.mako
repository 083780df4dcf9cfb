## Text that the convolutions as matrix products share on schedule cpu (implicit_gemm.mako, im2col_gemm.mako): y (m, n)
## is A = w (m, k) times B = x (k, n), for each group. The defs use the arguments of the template that calls them.

## The ranges of rows, of columns, and of groups and parts of k (b) of this work-item. Columns are divided in units of
## `column_unit`. n and k are the sizes of the product.
<%def name="work_item_ranges(column_unit)">
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2);
    const long n = p.batch * p.out[0] * p.out[1] * p.out[2], k = p.c * p.taps[0] * p.taps[1] * p.taps[2];
    const long m_begin = partition_begin(p.m, ${mr}, y, ny), m_end = partition_begin(p.m, ${mr}, y + 1, ny);
    const long n_begin = partition_begin(n, ${column_unit}, x, nx);
    const long n_end = partition_begin(n, ${column_unit}, x + 1, nx);
    const long b_begin = partition_begin(p.groups * p.split_k, 1, z, nz);
    const long b_end = partition_begin(p.groups * p.split_k, 1, z + 1, nz);
</%def>

## Group g and part of number b: its range of k, and where its operands begin; nc columns from n0 on.
<%def name="block_operands()">
            const long g = b % p.groups, part = b / p.groups, nc = min(p.nc, n_end - n0);
            const long k_begin = partition_begin(k, p.kc, part, p.split_k);
            const long k_end = partition_begin(k, p.kc, part + 1, p.split_k);
            __global const ${ctype} *const x_g = X + s.x + g * p.x.g;
            __global const ${ctype} *const w_g = W + s.w + g * p.w.g;
            __global ${ctype} *const y_g = Y + s.y + g * p.y.g + part * p.partial_stride;
</%def>
