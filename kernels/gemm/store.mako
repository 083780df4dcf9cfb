## Stores of the tiles of matrix products, schedule cpu: alpha and beta. Kernels of a program share them.
##
## Algorithm   <store>_tile writes O = alpha * tile + beta * C for the first block along k, O += alpha * tile for later
##             ones. <store>_scale writes the same into the tile itself, for an epilogue.
## Operands    tile: rows of `nr` elements. O and C: any strides, of the plan.
## Tiling      Vectors where columns of O and C are contiguous, else element by element.
<%page args="store, micro, ctype, wide, itemsize, lanes, mr, vectors, has_alpha, has_c, call"/>
<%
    nr = lanes * vectors
    at = {"o": "i * p->o.row + j * p->o.col", "tile": f"i * {nr} + j"}
%>
${call.c_typedef(f"{store}_call", "what may change from call to call: offsets, and scalars that are given by value")}

<%def name="element(type, vec, to)">
            ${type} value = *(__global const ${vec} *)(tile + ${at["tile"]});
            % if has_alpha:
            value = s->alpha * value;
            % endif
            if (!is_first)
                value += *(__global const ${vec} *)(o + ${at["o"]});
            % if has_c:
            else if (s->beta != 0)  // beta = 0 must not let a NaN of C through
                value += (${type})s->beta * *(__global const ${vec} *)(c + i * p->c.row + j * p->c.col);
            % endif
            *(__global ${vec} *)(${to} + ${at[to]}) = value;
</%def>

% for suffix, to in (("tile", "o"), ("scale", "tile")):
static NOINLINE MIN_VECTOR_WIDTH(${8 * itemsize * lanes}) void ${store}_${suffix}(
    __global ${ctype} *tile, const gemm_plan *p, const ${store}_call *s, long height, long width, int is_first,
    __global const ${ctype} *c, __global ${ctype} *o)
{
    const int is_contiguous = p->o.col == 1${" && (p->c.col == 1 || s->beta == 0)" if has_c else ""};
    for (int i = 0; i < height; i++) {
        int j = 0;
        % for step, vec in ((lanes, "vec"), (4, "vec4")):
        for (; is_contiguous && j + ${step} <= width; j += ${step}) {
            ${element(f"{ctype}{step}", f"{micro}_{vec}", to)}
        }
        % endfor
        for (; j < width; j++) {
            ${element(wide, ctype, to)}
        }
    }
}
% endfor
