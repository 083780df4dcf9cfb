## The input and output transforms of winograd_filters.mako: V = B.T x B and y = A.T M A, tile by tile.
##
## Algorithm   <name>_inputs: the rows of x that a row of tiles covers are transposed to vectors of channels,
##             transformed down each column, then along each tile. <name>_outputs: the other way round, and back to rows
##             of y.
## Operands    x and y with any strides; V[point, tile, channel], M[point, tile, feature]; structs:
##             winograd_filters.mako. vec is the type of vectors at any address, size the pixels along a side of a tile
##             of x, count those of y; `kernel` and `function` begin a kernel and a function
##             with their attributes.
## Tiling      a vector is `lanes` channels, or features, of one pixel.
## NDRange     a partition of rows of tiles and blocks of `lanes` channels or features.
## Workspace   For each work-item the rows that a row of tiles covers, as vectors of channels.
<%page args="name, ctype, lanes, count, vec, size, kernel, function, input_matrix, output_matrix, further, offsets,
             statements"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="winograd" file="/conv/winograd_transforms.mako"/>
<%namespace name="registers" file="/common/register_transpose.mako"/>
<%
    vector = f"{ctype}{lanes}"
    # Names that an epilogue reads: parameters of kernels and functions, and what kernels and functions pass on.
    kernel_further = epilogue.parameters(name, ctype, further) if statements else ""
    function_further = epilogue.parameters(name, ctype, further, by_pointer=True) if statements else ""
    further_arguments = epilogue.arguments(further) if statements else ""
    same_further = epilogue.arguments(further, is_pointer=True) if statements else ""
%>
// Row h of image n, transposed to vectors of channels from `channel` on: the image is in low <= at < high, zeros are
// around it.
${function} void ${name}_load_row(const conv_plan *p, __global const ${ctype} *x, long n, long h, long channel,
                                  long low, long high, long width, __global ${vec} *row)
{
    const long stop = h < 0 || h >= p->image[1] ? low : high, last_channel = p->groups * p->c - 1;
    ${vec} raw[${lanes}];
    for (long at = 0; at < low; at++)
        row[at] = 0;
    for (long at = low; at < stop; at += ${lanes}) {
        const ${vec}_mask ok = ${vec}_between(0, stop - at);
        const long from = n * p->x.n + h * p->x.h + (at - p->pad[2]) * p->x.w;
        for (long l = 0; l < ${lanes}; l++) {
            const long c = min(channel + l, last_channel);
            const ${vector} v = ${vec}_load(x, from + c * p->x.c, p->x.w, ok, p->x_low, p->x_high);
            raw[l] = ok ? v : (${vector})(0);
        }
        ${registers.transpose(ctype, lanes, "raw[{l}]", "row[at + {l}]")}
    }
    for (long at = stop; at < width; at++)
        row[at] = 0;
}

// V[point, tile, channel]
${kernel}
void ${name}_inputs(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *X, __global ${ctype} *V,
                    __global ${ctype} *workspace)
{
    const long blocks = (p.groups * p.c + ${lanes - 1}) / ${lanes}, total = t.images * t.rows * blocks;
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long low = max(p.pad[2], 0L), high = clamp(p.image[2] + p.pad[2], low, t.width);
    const long row_length = t.width + ${lanes};
    __global ${vec} *const rows = (__global ${vec} *)(workspace + t.workspace_size * get_global_id(0));
    for (long unit = unit_begin; unit < unit_end; unit++) {
        const long block = unit % blocks, i = unit / blocks % t.rows, n = unit / blocks / t.rows;
        for (long r = 0; r < ${size}; r++)
            ${name}_load_row(&p, X + s.x, t.first + n, i * ${count} - p.pad[1] + r, block * ${lanes}, low, high,
                             t.width, rows + r * row_length);
        for (long at = 0; at < t.width; at++) {
            __global ${vec} *const column = rows + at;
            ${winograd.transform(input_matrix, vector, "column[{i} * row_length]", "column[{i} * row_length]")}
        }
        __global ${ctype} *v = V + (n * t.rows + i) * t.cols * t.v_tile + block * ${lanes};
        for (long j = 0; j < t.cols; j++, v += t.v_tile)
            for (long r = 0; r < ${size}; r++) {
                __global const ${vec} *const row = rows + r * row_length + j * ${count};
                __global ${ctype} *const to = v + r * ${size} * t.v_point;
                ${winograd.transform(input_matrix, vector, "row[{i}]", f"*(__global {vec} *)(to + {{i}} * t.v_point)")}
            }
    }
}

// The pixels of a row of tiles, as vectors of features, from m: M[point, tile, feature] of the first tile.
static void ${name}_transform_tiles(const ${name}_tiles *t, __global const ${ctype} *m, __global ${vec} *rows,
                                    long row_length)
{
    for (long j = 0; j < t->cols; j++, m += t->m_tile) {
        ${vec} part[${count * size}];
        for (int c = 0; c < ${size}; c++) {
            __global const ${ctype} *const from = m + c * t->m_point;
            ${winograd.transform(output_matrix, vector,
                                 f"*(__global const {vec} *)(from + {{i}} * {size} * t->m_point)",
                                 f"part[{{i}} * {size} + c]")}
        }
        for (int r = 0; r < ${count}; r++) {
            __global ${vec} *const to = rows + r * row_length + j * ${count};
            ${winograd.transform(output_matrix, vector, f"part[r * {size} + {{i}}]", "to[{i}]")}
        }
    }
}

% if statements:
${epilogue.declarations(name, ctype, lanes, further, offsets, statements)}
// The epilogue of up to ${lanes} pixels of a row, from element `start` of Y on, of `depth` features from `feature` on.
static void ${name}_finish(const conv_plan *p, ${vec} *raw, long pixels, long depth, long feature,
                           long start${function_further})
{
    for (long l = 0; l < depth; l++)
        if (pixels >= ${lanes} && p->y.w == 1)
            ${epilogue.apply(name, ctype, further, "raw[l]", "f->", "feature + l", "start + l * p->y.m", vec, vector)}
        else
            ${epilogue.apply_some(name, ctype, further, "raw[l]", "f->", "feature + l",
                                  lambda e: f"start + l * p->y.m + {e} * p->y.w", f"min({lanes}L, pixels)",
                                  vector, vector)}
}

% endif
// Row i of the tiles of an image, and of y, for `depth` features of group g from number `feature` on. m points to
// M[point, tile, feature] of the first tile.
${function} void ${name}_transform_output(const conv_plan *p, const ${name}_tiles *t, __global const ${ctype} *m,
                                          long image, long i, long g, long feature, long depth,
                                          __global ${ctype} *Y, long start, __global ${vec} *rows${function_further})
{
    const long row_length = t->width + ${lanes}, height = min(${count}L, p->out[1] - i * ${count});
    const long first = t->feature + feature;  // in the group
    ${name}_transform_tiles(t, m, rows, row_length);
    start += (t->first + image) * p->y.n + g * p->y.g + first * p->y.m + i * ${count} * p->y.h;
    for (long r = 0; r < height; r++, start += p->y.h)
        for (long at = 0; at < p->out[2]; at += ${lanes}) {
            const long pixels = p->out[2] - at;
            ${vec} raw[${lanes}];
            ${registers.transpose(ctype, lanes, "rows[r * row_length + at + {l}]", "raw[{l}]")}
            % if statements:
            ${name}_finish(p, raw, pixels, depth, g * p->m + first, start + at * p->y.w${same_further});
            % endif
            for (long l = 0; l < depth; l++)
                ${vec}_store(raw[l], Y + start + l * p->y.m + at * p->y.w, p->y.w, pixels);
        }
}

// y of M[point, tile, feature]
${kernel}
void ${name}_outputs(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *M, __global ${ctype} *Y,
                     __global ${ctype} *workspace${kernel_further})
{
    const long blocks = (t.features + ${lanes - 1}) / ${lanes}, total = t.images * t.rows * p.groups * blocks;
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${vec} *const rows = (__global ${vec} *)(workspace + t.workspace_size * get_global_id(0));
    for (long unit = unit_begin; unit < unit_end; unit++) {
        const long feature = unit % blocks * ${lanes}, g = unit / blocks % p.groups, row = unit / blocks / p.groups;
        ${name}_transform_output(&p, &t, M + row * t.cols * t.m_tile + g * t.m_group + feature, row / t.rows,
                                 row % t.rows, g, feature, min(${lanes}L, t.features - feature), Y, s.y,
                                 rows${further_arguments});
    }
}
