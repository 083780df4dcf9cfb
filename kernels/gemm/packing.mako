## Packing of a panel of A or B, schedule cpu.
##
## Algorithm   Copies `count` rows of A (columns of B) with `depth` elements along k each. In the packed panel the
##             elements of one k are neighbours: element i of step k is packed[k * width + i].
## Operands    x with strides `across` (from row to row of A, from column to column of B) and `along` (along k).
## Invariants  Width is a multiple of 4 and at least count; elements from count to width are zero.
<%page args="name, ctype, lanes, vectors, full_width"/>
<%namespace name="pack" file="/common/pack_rows.mako"/>
static ${full_width} void ${name}_pack(__global const ${ctype} *x, long across, long along, long count, long depth,
                                       __global ${ctype} *packed, long width)
{
    long i = 0;
    % for step, vec, parts in ((lanes * vectors, "vec", vectors), (lanes, "vec", 1), (4, "vec4", 1)):
    for (; across == 1 && i + ${step} <= count; i += ${step})
        for (long k = 0; k < depth; k++) {
            __global ${name}_${vec} *const to = (__global ${name}_${vec} *)(packed + k * width + i);
            __global const ${name}_${vec} *const from = (__global const ${name}_${vec} *)(x + k * along + i);
            % for j in range(parts):
            to[${j}] = from[${j}];
            % endfor
        }
    % endfor
    for (; i + 4 <= count; i += 4) {
        ${pack.rows(ctype, f"{name}_vec4", "width")}
    }
    for (; i < count || i % 4; i++)
        for (long k = 0; k < depth; k++)
            packed[k * width + i] = i < count ? x[i * across + k * along] : 0;
    for (; i < width; i += 4)
        for (long k = 0; k < depth; k++)
            *(__global ${name}_vec4 *)(packed + k * width + i) = 0;
}
