## What becomes of the tiles of matrix products, schedule cpu; with and without alpha and C. Kernels of a program share it.
<%page args="store, tiles, ctype, wide, itemsize, lanes, rows, vectors, has_alpha, has_c"/>
<%
    cols = lanes * vectors
    at = {"o": "i * p->o.row + j * p->o.col", "tile": f"i * {cols} + j"}
%>
typedef struct {  // what may change from call to call: offsets, and scalars that are given by value
    long a, b, c, o, alpha_at, beta_at;
    ${ctype} alpha, beta;
} ${store}_call;

<%def name="element(type, vec, to)">
            ${type} v = *(__global const ${vec} *)(tile + ${at["tile"]});
            % if has_alpha:
            v = s->alpha * v;
            % endif
            if (!first)
                v += *(__global const ${vec} *)(o + ${at["o"]});
            % if has_c:
            else if (s->beta != 0)  // beta = 0 must not let a NaN of C through
                v += (${type})s->beta * *(__global const ${vec} *)(c + i * p->c.row + j * p->c.col);
            % endif
            *(__global ${vec} *)(${to} + ${at[to]}) = v;
</%def>

% for suffix, to in (("put", "o"), ("complete", "tile")):
// ${to} = alpha * tile + beta * C, or alpha * tile + what o is when it is not the `first` along k
static GEMM_APART GEMM_VECTORS(${8 * itemsize * lanes}) void ${store}_${suffix}(__global ${ctype} *tile, const gemm_plan *p,
    const ${store}_call *s, long height, long width, int first, __global const ${ctype} *c, __global ${ctype} *o)
{
    const int unit = p->o.col == 1${" && (p->c.col == 1 || s->beta == 0)" if has_c else ""};
    for (int i = 0; i < height; i++) {
        int j = 0;
        % for step, vec in ((lanes, "vec"), (4, "vec4")):
        for (; unit && j + ${step} <= width; j += ${step}) {
            ${element(f"{ctype}{step}", f"{tiles}_{vec}", to)}
        }
        % endfor
        for (; j < width; j++) {
            ${element(wide, ctype, to)}
        }
    }
}
% endfor
