## Schedule cpu: what becomes of a tile. `to` says what is written: the output (o), or the tile itself (tile).
<%page args="name, tiles, ctype, wide, lanes, cols, full_width, has_alpha, has_c, suffix, to"/>
<%
    at = {"o": "i * p->o.row + j * p->o.col", "tile": f"i * {cols} + j"}
    space = {"o": "__global ", "tile": ""}[to]
%>
<%def name="element(type, vec)">
            ${type} v = *(const ${vec} *)(tile + ${at["tile"]});
            % if has_alpha:
            v = s->alpha * v;
            % endif
            if (!first)
                v += *(__global const ${vec} *)(o + ${at["o"]});
            % if has_c:
            else if (s->beta != 0)  // beta = 0 must not let a NaN of C through
                v += (${type})s->beta * *(__global const ${vec} *)(c + i * p->c.row + j * p->c.col);
            % endif
            *(${space}${vec} *)(${to} + ${at[to]}) = v;
</%def>
// alpha * tile + beta * C, or what is there + alpha * tile when it is not the `first` along k
static ${full_width} void ${name}_${suffix}(${ctype} *tile, const gemm_plan *p, const ${name}_call *s, long height,
    long width, int first, __global const ${ctype} *c, __global ${ctype} *o)
{
    const int unit = p->o.col == 1${" && (p->c.col == 1 || s->beta == 0)" if has_c else ""};
    for (int i = 0; i < height; i++) {
        int j = 0;
        % for step, vec in ((lanes, "vec"), (4, "vec4")):
        for (; unit && j + ${step} <= width; j += ${step}) {
            ${element(f"{ctype}{step}", f"{tiles}_{vec}")}
        }
        % endfor
        for (; j < width; j++) {
            ${element(wide, ctype)}
        }
    }
}
