## Epilogue of a matrix product: see common/epilogue.mako.
##
## Operands    Further matrices (m, n) with any strides and the batch dimensions of the product; results have the
##             strides of O.
## The defs use the arguments of the template that calls them.
<%namespace name="epilogue" file="/common/epilogue.mako"/>

<%def name="declarations(lanes)">
${epilogue.declarations(lanes)}
typedef struct {
    gemm_operand in[${max(1, len(inputs))}];
} ${name}_operands;
</%def>

## `at`: where the matrices of a batch index begin.
<%def name="matrices(batch)">
        const ${name}_matrices matrices = {
% for k in range(len(inputs)):
<% operand = f"operands.in[{k}]" %>\
            I${k + 1} + starts.in[${k}] + gemm_start(&${operand}, p.batch_shape, ${batch}),
            ${operand}.row, ${operand}.col,
% endfor
% for k in range(len(outputs)):
            O${k} + starts.out[${k}] + gemm_start(&p.o, p.batch_shape, ${batch}),
% endfor
        };
        const ${name}_matrices *const at = &matrices;
</%def>

<%def name="rows(lanes, nr, micro, ctype, last_lane='')">
            ${epilogue.pointers("i0", "j0 + j", "i0 * row + (j0 + j) * col")}
            for (int i = 0; i < height; i++) {
                const ${ctype}${lanes} i0 = *(__global const ${micro}_vec *)(tile + i * ${nr} + j);
                ${epilogue.apply(lanes, "col", last_lane)}
                ${epilogue.next_row("row")}
            }
</%def>
## Schedule cpu. <name>_apply: the function of a tile, which begins in row i0 and column j0. <name>_store: the same in
## the last block along k; before that the sums are stored.
<%def name="stores(ctype, lanes, nr, micro, store, full_width, has_alpha)">
static NOINLINE ${full_width} void ${name}_apply(
    __global const ${ctype} *tile, const gemm_plan *p, long height, long width,
    const ${name}_matrices *at, long i0, long j0)
{
    const long row = p->o.row, col = p->o.col;
    int j = 0;
    if (col == 1${epilogue.is_contiguous()})
        for (; j + ${lanes} <= width; j += ${lanes}) {
            ${rows(lanes, nr, micro, ctype)}
        }
    for (; j < width; j += ${lanes}) {
        const int last_lane = min(${lanes}, (int)width - j) - 1;
        ${rows(lanes, nr, micro, ctype, "last_lane")}
    }
}

static void ${name}_store(
    __global ${ctype} *tile, const gemm_plan *p, const ${store}_call *s, long height, long width, int is_first,
    __global const ${ctype} *c, __global ${ctype} *o, int is_last, const ${name}_matrices *at, long i0, long j0)
{
    if (!is_last) {
        ${store}_tile(tile, p, s, height, width, is_first, c, o);
        return;
    }
    if (${"1" if has_alpha else "!is_first"})
        ${store}_scale(tile, p, s, height, width, is_first, c, o);
    ${name}_apply(tile, p, height, width, at, i0, j0);
}
</%def>
