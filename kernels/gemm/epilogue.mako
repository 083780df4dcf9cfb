## Matrix products whose elements go through a function before they are stored.
## The defs see the arguments of the template that calls them.
<%namespace name="epilogue" file="/common/epilogue.mako"/>

<%def name="declarations(lanes)">
${epilogue.declarations(lanes)}
typedef struct { gemm_operand in[${max(1, len(inputs))}]; } ${name}_further;
</%def>

## Where the further arrays' matrices of a batch begin.
<%def name="place(batch)">
        const ${name}_matrices matrices = {
% for k in range(1, len(inputs) + 1):
<% x = f"further.in[{k - 1}]" %>\
            I${k} + starts.in[${k - 1}] + gemm_start(&${x}, p.shape, ${batch}), ${x}.row, ${x}.col,
% endfor
% for k in range(len(outputs)):
            O${k} + starts.out[${k}] + gemm_start(&p.o, p.shape, ${batch}),
% endfor
        }, *const at = &matrices;
</%def>

<%def name="rows(lanes, cols, tiles, ctype, top='')">
            ${epilogue.pointers("i0", "j0 + j", "i0 * row + (j0 + j) * col")}
            for (int i = 0; i < height; i++) {
                const ${ctype}${lanes} i0 = *(__global const ${tiles}_vec *)(tile + i * ${cols} + j);
                ${epilogue.apply(lanes, "col", top)}
                ${epilogue.next_row("row")}
            }
</%def>
## Schedule cpu: store rows of a tile; unless it is the `last` along k, only the sums.
<%def name="stores(ctype, lanes, cols, tiles, store, full_width, has_alpha)">
// The tile begins in row i0 and column j0.
static GEMM_APART ${full_width} void ${name}_apply(__global const ${ctype} *tile, const gemm_plan *p, long height, long width,
    const ${name}_matrices *at, long i0, long j0)
{
    const long row = p->o.row, col = p->o.col;
    int j = 0;
    if (col == 1${epilogue.is_unit()})
        for (; j + ${lanes} <= width; j += ${lanes}) {
            ${rows(lanes, cols, tiles, ctype)}
        }
    for (; j < width; j += ${lanes}) {
        const int top = min(${lanes}, (int)width - j) - 1;
        ${rows(lanes, cols, tiles, ctype, "top")}
    }
}

static void ${name}_store(__global ${ctype} *tile, const gemm_plan *p, const ${store}_call *s, long height, long width, int first,
    __global const ${ctype} *c, __global ${ctype} *o, int last, const ${name}_matrices *at, long i0, long j0)
{
    if (!last) {
        ${store}_put(tile, p, s, height, width, first, c, o);
        return;
    }
    if (${"1" if has_alpha else "!first"})
        ${store}_complete(tile, p, s, height, width, first, c, o);
    ${name}_apply(tile, p, height, width, at, i0, j0);
}
</%def>
