## Convolutions by Fourier transforms, either schedule: what happens between the transforms, and after them.
##
## Algorithm   <name>_product: spectra of y as sums over k of spectra of x times those of w, frequency by frequency.
##             <name>_store: the elements of the transformed tiles that are wanted, to y.
## Operands    spectra are contiguous: X[g, b, k, row], W[g, m, k, row], Y[g, m, b, row], where b is an image and a
##             tile of it; rows of `row` numbers hold real and imaginary part in turn. Z[g, m, n, tile, element].
##     <name>_sizes: groups, m, b, k; row; frequencies of a row in use, in whole vectors
##     <name>_tiles: images, groups, m; per dimension: positions of y, tiles, positions of a tile, extent of Z, first
##             element that is wanted; strides of y
## Tiling      <name>_product: accumulators of `rows` channels m and `columns` of b. On schedule cpu, work-items take
##             `chunk` frequencies at a time, so that W stays in the cache.
## NDRange     schedule cpu: partitions of chunks, groups and blocks of m; of rows of y. Schedule simt: work-items loop
##             over frequencies and blocks, and over elements of y; neighbours take neighbours.
## Reference   routines/conv/fourier.py.
<%page args="name, ctype, lanes, rows, columns, chunk, sizes, tiles, is_simt"/>
<%
    vector, pair = (ctype, f"{ctype}2") if is_simt else (f"{ctype}{lanes}", f"conv_{ctype}{lanes}")
    attributes = "" if is_simt else f"__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint({vector})))"
    R, C, step = range(rows), range(columns), 1 if is_simt else lanes
%>
<%include file="/common/partition.mako"/>
${sizes.c_typedef(f"{name}_sizes")}
${tiles.c_typedef(f"{name}_tiles")}

<%def name="load(name, at)">
            % if is_simt:
            const ${pair} ${name} = vload2(0, ${at});
            const ${vector} ${name}_re = ${name}.x, ${name}_im = ${name}.y;
            % else:
            const ${vector} ${name}_low = *(__global const ${pair} *)(${at});
            const ${vector} ${name}_high = *(__global const ${pair} *)(${at} + ${lanes});
            const ${vector} ${name}_re = (${vector})(${name}_low.even, ${name}_high.even);
            const ${vector} ${name}_im = (${vector})(${name}_low.odd, ${name}_high.odd);
            % endif
</%def>
% if not is_simt:
typedef ${vector} ${pair} __attribute__((aligned(sizeof(${ctype}))));
% endif

// Channels m to m + ${rows - 1} and b to b + ${columns - 1}, at ${step} frequencies.
static inline void ${name}_block(const ${name}_sizes *p, __global const ${ctype} *X, __global const ${ctype} *W,
                                 __global ${ctype} *Y, long m, long b, ${ctype} scale)
{
    % for i in R:
    __global const ${ctype} *w${i} = W + min(m + ${i}, p->m - 1) * p->k * p->row;
    % endfor
    % for j in C:
    __global const ${ctype} *x${j} = X + min(b + ${j}, p->b - 1) * p->k * p->row;
    % endfor
    % for i in R:
    % for j in C:
    ${vector} re${i}_${j} = 0, im${i}_${j} = 0;
    % endfor
    % endfor
    for (long k = 0; k < p->k * p->row; k += p->row) {
        % for j in C:
        ${load(f"u{j}", f"x{j} + k")}
        % endfor
        % for i in R:
        {
            ${load("v", f"w{i} + k")}
            % for j in C:
            re${i}_${j} += u${j}_re * v_re;
            im${i}_${j} += u${j}_re * v_im;
            re${i}_${j} -= u${j}_im * v_im;
            im${i}_${j} += u${j}_im * v_re;
            % endfor
        }
        % endfor
    }
    % for i in R:
    % for j in C:
    if (m + ${i} < p->m && b + ${j} < p->b) {
        __global ${ctype} *y = Y + ((m + ${i}) * p->b + b + ${j}) * p->row;
        const ${vector} re = re${i}_${j} * scale, im = im${i}_${j} * scale;
        % if is_simt:
        vstore2((${pair})(re, im), 0, y);
        % else:
        ${vector} low, high;
        low.even = re.lo;
        low.odd = im.lo;
        high.even = re.hi;
        high.odd = im.hi;
        *(__global ${pair} *)y = low;
        *(__global ${pair} *)(y + ${lanes}) = high;
        % endif
    }
    % endfor
    % endfor
}

__kernel ${attributes}
void ${name}_product(const ${name}_sizes p, __global const ${ctype} *X, __global const ${ctype} *W,
                     __global ${ctype} *Y, const ${ctype} scale)
{
    const long blocks = (p.m + ${rows - 1}) / ${rows};
    % if is_simt:
    const long across = (p.b + ${columns - 1}) / ${columns}, total = p.groups * blocks * across * p.frequencies;
    for (long e = get_global_id(0); e < total; e += get_global_size(0)) {
        const long f = 2 * (e % p.frequencies), block = e / p.frequencies, b = block % across * ${columns};
        const long g = block / across / blocks, m = block / across % blocks * ${rows};
        ${name}_block(&p, X + g * p.b * p.k * p.row + f, W + g * p.m * p.k * p.row + f, Y + g * p.m * p.b * p.row + f,
                      m, b, scale);
    }
    % else:
    const long each = p.groups * blocks, total = (p.frequencies + ${chunk - 1}) / ${chunk} * each;
    const long end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    for (long unit = partition_begin(total, 1, get_global_id(0), get_global_size(0)); unit < end; ++unit) {
        const long begin = unit / each * ${chunk}, g = unit % each / blocks, m = unit % blocks * ${rows};
        __global const ${ctype} *x = X + g * p.b * p.k * p.row, *w = W + g * p.m * p.k * p.row;
        __global ${ctype} *y = Y + g * p.m * p.b * p.row;
        for (long b = 0; b < p.b; b += ${columns})
            for (long f = 2 * begin; f < 2 * min(begin + ${chunk}, p.frequencies); f += ${2 * lanes})
                ${name}_block(&p, x + f, w + f, y + f, m, b, scale);
    }
    % endif
}

__kernel ${attributes}
void ${name}_store(const ${name}_tiles p, __global const ${ctype} *Z, __global ${ctype} *Y, const long start)
{
    const long rows = p.images * p.groups * p.m * p.out[0] * p.out[1];
    % if is_simt:
    for (long e = get_global_id(0); e < rows * p.out[2]; e += get_global_size(0)) {
        const long q2 = e % p.out[2];
        long left = e / p.out[2];
    % else:
    const long end = partition_begin(rows, 1, get_global_id(0) + 1, get_global_size(0));
    for (long row = partition_begin(rows, 1, get_global_id(0), get_global_size(0)); row < end; ++row) {
        long left = row;
    % endif
        const long q1 = left % p.out[1];
        left /= p.out[1];
        const long q0 = left % p.out[0];
        left /= p.out[0];
        const long m = left % p.m, g = left / p.m % p.groups, n = left / p.m / p.groups;
        const long t0 = q0 / p.block[0], t1 = q1 / p.block[1];
        const long tile = (((g * p.m + m) * p.images + n) * p.tiles[0] + t0) * p.tiles[1] + t1;
        const long inside = (q0 - t0 * p.block[0] + p.first[0]) * p.extent[1] + q1 - t1 * p.block[1] + p.first[1];
        const long size = p.extent[0] * p.extent[1] * p.extent[2];
        __global const ${ctype} *z = Z + tile * p.tiles[2] * size + inside * p.extent[2] + p.first[2];
        __global ${ctype} *y = Y + start + n * p.step[0] + g * p.step[1] + m * p.step[2] + q0 * p.step[3]
            + q1 * p.step[4];
    % if is_simt:
        y[q2 * p.step[5]] = z[q2 / p.block[2] * size + q2 % p.block[2]];
    }
    % else:
        for (long q2 = 0; q2 < p.out[2]; q2 += p.block[2], z += size) {
            const long count = min(p.block[2], p.out[2] - q2);
            if (p.step[5] == 1)
                for (long i = 0; i < count; ++i)
                    y[q2 + i] = z[i];
            else
                for (long i = 0; i < count; ++i)
                    y[(q2 + i) * p.step[5]] = z[i];
        }
    }
    % endif
}
