## Winograd's convolution where there are few tiles: filters are transformed a block of channels at a time and multiplied at once, and
## so are sums transformed back, while all that is still in the cache of the core that made it.
<%page args="name, ctype, itemsize, lanes, panel, tiles, rows, size, kernel, further, statements"/>
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%
    vectors, points = panel // lanes, size * size
    heights = [rows, rows // 2] if rows >= 8 else [rows]
%>
// M[point, tile, feature] = V @ U, or M += V @ U, for `count` tiles, `depth` channels and one panel of features
static void ${name}_multiply(const ${name}_tiles *t, __global const ${ctype} *v, __global const ${ctype} *u, __global ${ctype} *m,
                             long count, long depth, int first)
{
    for (int point = 0; point < ${points}; point++, v += t->v_point, u += t->u_point, m += t->m_point)
    for (long i = 0; i < count; i += ${rows}) {
        const int height = count - i > ${heights[-1]} ? ${rows} : ${heights[-1]};
        switch (height) {
        % for height in heights:
        case ${height}: ${tiles}_multiply${height}x${2 * vectors}(v + i * t->v_tile, t->v_tile, 1, ${height - 1}, u, ${panel}, depth, m + i * ${panel}, ${panel}, !first); break;
        % endfor
        }
    }
}

${kernel}
void ${name}_fused(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *W, __global const ${ctype} *V, __global ${ctype} *Y,
                   __global ${ctype} *scratch${epilogue.parameters() if statements else ""})
{
    const long panels = t.m_group / ${panel}, total = p.groups * panels, across = t.images * t.rows;
    const long first = conv_share(across, 1, get_global_id(1), get_global_size(1));
    const long last = conv_share(across, 1, get_global_id(1) + 1, get_global_size(1));
    const long end = conv_share(total, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${ctype} *const u = scratch + t.scratch * (get_global_id(1) * get_global_size(0) + get_global_id(0));
    __global ${ctype} *const m = u + ${points} * t.u_point;
    __global conv_${ctype}${lanes} *const rows = (__global conv_${ctype}${lanes} *)(m + ${points} * t.m_point);
    for (long unit = conv_share(total, 1, get_global_id(0), get_global_size(0)); unit < end; unit++) {
        const long g = unit / panels, feature = unit % panels * ${panel}, features = min(${panel}L, t.features - feature);
        __global const ${ctype} *const w = W + s.w + g * p.w[0] + (t.feature + feature) * p.w[1];
        __global const ${ctype} *const v = V + first * t.cols * t.v_tile + g * p.c;
        for (long c = 0; c < p.c; c += t.depth) {
            const long depth = min(t.depth, p.c - c);
            ${name}_transform_filters(&p, w + c * p.w[2], features, depth, u, t.u_point);
            ${name}_multiply(&t, v + c, u, m, (last - first) * t.cols, depth, c == 0);
        }
        for (long row = first; row < last; row++)
        for (long at = 0; at < features; at += ${lanes})
            ${name}_transform_output(&p, &t, m + (row - first) * t.cols * ${panel} + at, row / t.rows, row % t.rows, g,
                feature + at, min(${lanes}L, features - at), Y, s.y, rows${epilogue.arguments() if statements else ""});
    }
}
