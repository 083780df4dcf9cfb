## The input and output transforms of winograd_filters.mako: V = B.T x B and y = A.T M A, tile by tile.
##
## Algorithm   <name>_inputs: the rows of x that a row of tiles covers are transposed to vectors of channels,
##             transformed down each column, then along each tile. <name>_outputs: the other way round, and back to rows
##             of y.
## Operands    x and y with any strides; V[point, tile, channel], M[point, tile, feature]; structs:
##             winograd_filters.mako.
## Tiling      a vector is `lanes` channels, or features, of one pixel.
## NDRange     a partition of rows of tiles and blocks of `lanes` channels or features.
## Workspace   For each work-item the rows that a row of tiles covers, as vectors of channels.
<%page args="name, ctype, lanes, count, vec, size, kernel, input_matrix, output_matrix, further, offsets, statements"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%namespace name="winograd" file="/conv/winograd_transforms.mako"/>
<%namespace name="registers" file="/common/register_transpose.mako"/>
<% vector = f"{ctype}{lanes}" %>
## Row h of the image, transposed to vectors of channels, with the zeros around the image.
<%def name="load_row()">
            const long h = i * ${count} - p.pad[1] + r;
            const long stop = h < 0 || h >= p.image[1] ? low : high;
            __global ${vec} *const row = rows + r * row_length;
            for (long at = 0; at < low; at++)
                row[at] = 0;
            for (long at = low; at < stop; at += ${lanes}) {
                const ${vec}_mask ok = ${vec}_between(0, stop - at);
                long from = (t.first + n) * p.x.n + h * p.x.h + (at - p.pad[2]) * p.x.w;
                for (long l = 0; l < ${lanes}; l++) {
                    const long c = min(block * ${lanes} + l, channels - 1);
                    const ${vector} v = ${vec}_load(x, from + c * p.x.c, p.x.w, ok, p.x_low, p.x_high);
                    raw[l] = ok ? v : (${vector})(0);
                }
                ${registers.transpose(ctype, lanes, lambda l: f"raw[{l}]", lambda l: f"row[at + {l}]")}
            }
            for (long at = stop; at < t.width; at++)
                row[at] = 0;
</%def>
// V[point, tile, channel]
${kernel}
void ${name}_inputs(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *X, __global ${ctype} *V,
                    __global ${ctype} *workspace)
{
    const long channels = p.groups * p.c, blocks = (channels + ${lanes - 1}) / ${lanes};
    const long total = t.images * t.rows * blocks;
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long low = max(p.pad[2], 0L), high = clamp(p.image[2] + p.pad[2], low, t.width);
    __global ${vec} *const rows = (__global ${vec} *)(workspace + t.workspace_size * get_global_id(0));
    ${vec} raw[${lanes}];
    const long row_length = t.width + ${lanes};
    __global const ${ctype} *const x = X + s.x;
    for (long unit = unit_begin; unit < unit_end; unit++) {
        const long block = unit % blocks, i = unit / blocks % t.rows, n = unit / blocks / t.rows;
        for (long r = 0; r < ${size}; r++) {
            ${load_row()}
        }
        for (long at = 0; at < t.width; at++) {
            __global ${vec} *const column = rows + at;
            ${winograd.transform(input_matrix, lambda i: f"column[{i} * row_length]",
                                 lambda i: f"column[{i} * row_length]")}
        }
        __global ${ctype} *v = V + (n * t.rows + i) * t.cols * t.v_tile + block * ${lanes};
        for (long j = 0; j < t.cols; j++, v += t.v_tile)
            for (long r = 0; r < ${size}; r++) {
                __global const ${vec} *const row = rows + r * row_length + j * ${count};
                __global ${ctype} *const to = v + r * ${size} * t.v_point;
                ${winograd.transform(input_matrix, lambda i: f"row[{i}]",
                                     lambda i: f"*(__global {vec} *)(to + {i} * t.v_point)")}
            }
    }
}

% if statements:
${epilogue.declarations(lanes)}
% endif
// Row i of the tiles of an image, and of y, for `depth` features of group g from number `feature` on. m points to
// M[point, tile, feature] of the first tile.
static void ${name}_transform_output(const conv_plan *p, const ${name}_tiles *t, __global const ${ctype} *m, long image,
                                     long i, long g, long feature, long depth, __global ${ctype} *Y, long start,
                                     __global ${vec} *rows${
                                     capture(epilogue.parameters, 'value') if statements else ""})
{
    ${vec} raw[${lanes}];
    const long row_length = t->width + ${lanes}, height = min(${count}L, p->out[1] - i * ${count});
    for (long j = 0; j < t->cols; j++, m += t->m_tile) {
        ${vec} part[${count * size}];
        for (int c = 0; c < ${size}; c++) {
            __global const ${ctype} *const from = m + c * t->m_point;
            ${winograd.transform(output_matrix,
                                 lambda i: f"*(__global const {vec} *)(from + {i * size} * t->m_point)",
                                 lambda i: f"part[{i * size} + c]")}
        }
        for (int r = 0; r < ${count}; r++) {
            __global ${vec} *const to = rows + r * row_length + j * ${count};
            ${winograd.transform(output_matrix, lambda i: f"part[r * {size} + {i}]", lambda i: f"to[{i}]")}
        }
    }
    const long from = t->feature + feature;
    __global ${ctype} *y =
        Y + start + (t->first + image) * p->y.n + g * p->y.g + from * p->y.m + i * ${count} * p->y.h;
    for (long r = 0; r < height; r++, y += p->y.h)
        for (long at = 0; at < p->out[2]; at += ${lanes}) {
            ${registers.transpose(ctype, lanes, lambda l: f"rows[r * row_length + at + {l}]", lambda l: f"raw[{l}]")}
            % if statements:
            const long count = min(${lanes}L, p->out[2] - at), first = g * p->m + from;
            for (long l = 0; l < depth; l++)
                if (count == ${lanes} && p->y.w == 1)
                    ${epilogue.apply("raw[l]", "f->", "first + l", "(y - Y) + l * p->y.m + at", vec, vector)}
                else
                    ${epilogue.apply_some("raw[l]", "f->", "first + l",
                                          lambda e: f"(y - Y) + l * p->y.m + (at + {e}) * p->y.w", "count",
                                          vector, vector)}
            % endif
            for (long l = 0; l < depth; l++)
                ${vec}_store(raw[l], y + l * p->y.m + at * p->y.w, p->y.w, p->out[2] - at);
        }
}

// y of M[point, tile, feature]
${kernel}
void ${name}_outputs(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *M, __global ${ctype} *Y,
                     __global ${ctype} *workspace${epilogue.parameters() if statements else ""})
{
    const long blocks = (t.features + ${lanes - 1}) / ${lanes}, total = t.images * t.rows * p.groups * blocks;
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${vec} *const rows = (__global ${vec} *)(workspace + t.workspace_size * get_global_id(0));
    for (long unit = unit_begin; unit < unit_end; unit++) {
        const long feature = unit % blocks * ${lanes}, g = unit / blocks % p.groups, row = unit / blocks / p.groups;
        ${name}_transform_output(&p, &t, M + row * t.cols * t.m_tile + g * t.m_group + feature, row / t.rows,
                                 row % t.rows, g, feature, min(${lanes}L, t.features - feature), Y, s.y, rows${
                                 epilogue.arguments() if statements else ""});
    }
}
