## Winograd's convolution where there are few tiles, for winograd_filters.mako.
##
## Algorithm   The filters of a block of channels are transformed (U) and multiplied at once, M += V @ U; after the last
##             block the sums are transformed back. U and M stay in the cache of the core that computes them.
## Operands    W and Y with any strides; V[point, tile, channel] from <name>_inputs; structs: winograd_filters.mako;
##             `kernel` and `function`: winograd_images.mako.
## Tiling      Blocks of t.depth channels; panels of `panel` features; micro-kernels of mr tiles x `panel` features.
## NDRange     dimension 0 is a partition of groups and panels of features, dimension 1 of the rows of tiles.
## Workspace   For each work-item U of a block of channels, then M, then the rows of one output transform.
<%page args="name, ctype, itemsize, lanes, panel, micro, mr, size, kernel, function, further, offsets, statements"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%
    vectors, points = panel // lanes, size * size
    heights = [mr, mr // 2] if mr >= 8 else [mr]
%>
// M[point, tile, feature] = V @ U, or M += V @ U, for `count` tiles, `depth` channels and one panel of features.
${function} void ${name}_multiply(const ${name}_tiles *t, __global const ${ctype} *v, __global const ${ctype} *u,
                             __global ${ctype} *m, long count, long depth, int is_first)
{
    for (int point = 0; point < ${points}; point++) {
        for (long i = 0; i < count; i += ${mr}) {
            const int height = count - i > ${heights[-1]} ? ${mr} : ${heights[-1]};
            switch (height) {
            % for height in heights:
            case ${height}:
                ${micro}_multiply${height}x${2 * vectors}(v + i * t->v_tile, t->v_tile, 1, ${height - 1}, u, ${panel},
                                                          depth, m + i * ${panel}, ${panel}, !is_first);
                break;
            % endfor
            }
        }
        v += t->v_point;
        u += t->u_point;
        m += t->m_point;
    }
}

${kernel}
void ${name}_fused(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *W, __global const ${ctype} *V,
                   __global ${ctype} *Y, __global ${ctype} *workspace${
                   epilogue.parameters(name, ctype, further) if statements else ""})
{
    const long panels = t.m_group / ${panel}, total = p.groups * panels, rows_of_tiles = t.images * t.rows;
    const long first = partition_begin(rows_of_tiles, 1, get_global_id(1), get_global_size(1));
    const long last = partition_begin(rows_of_tiles, 1, get_global_id(1) + 1, get_global_size(1));
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    const long item = get_global_id(1) * get_global_size(0) + get_global_id(0);
    __global ${ctype} *const u = workspace + t.workspace_size * item;
    __global ${ctype} *const m = u + ${points} * t.u_point;
    __global conv_${ctype}${lanes} *const rows = (__global conv_${ctype}${lanes} *)(m + ${points} * t.m_point);
    for (long unit = unit_begin; unit < unit_end; unit++) {
        const long g = unit / panels, feature = unit % panels * ${panel};
        const long features = min(${panel}L, t.features - feature);
        __global const ${ctype} *const w = W + s.w + g * p.w.g + (t.feature + feature) * p.w.m;
        __global const ${ctype} *const v = V + first * t.cols * t.v_tile + g * p.c;
        for (long c = 0; c < p.c; c += t.depth) {
            const long depth = min(t.depth, p.c - c);
            ${name}_transform_filters(&p, w + c * p.w.c, features, depth, u, t.u_point);
            ${name}_multiply(&t, v + c, u, m, (last - first) * t.cols, depth, c == 0);
        }
        for (long row = first; row < last; row++)
            for (long at = 0; at < features; at += ${lanes})
                ${name}_transform_output(&p, &t, m + (row - first) * t.cols * ${panel} + at, row / t.rows, row % t.rows,
                                         g, feature + at, min(${lanes}L, features - at), Y, s.y, rows${
                                         epilogue.arguments(further) if statements else ""});
    }
}
