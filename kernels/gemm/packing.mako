## Packing of a panel of A or B, schedule cpu.
##
## Algorithm: copies `count` rows of A (columns of B) with `depth` elements along k each. In the packed panel the
##     elements of one k are neighbours: element i of step k is packed[k * width + i].
## Operands: x with strides `across` (from row to row of A, from column to column of B) and `along` (along k).
## Invariants: width is a multiple of 4 and at least count; elements from count to width are zero.
<%page args="name, ctype, lanes, vectors, full_width"/>
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
    // Four rows at a time: blocks of 4 x 4 are transposed in registers.
    for (; i + 4 <= count; i += 4) {
        __global const ${ctype} *from = x + i * across;
        __global ${ctype} *to = packed + i;
        long k = 0;
        for (; along == 1 && k + 4 <= depth; k += 4) {
            % for r in range(4):
            const ${ctype}4 row${r} = *(__global const ${name}_vec4 *)(from + ${r} * across);
            % endfor
            % for r in range(4):
            *(__global ${name}_vec4 *)(to + ${r} * width) = (${ctype}4)(row0.s${r}, row1.s${r}, row2.s${r}, row3.s${r});
            % endfor
            from += 4;
            to += 4 * width;
        }
        for (; k < depth; k++) {
            *(__global ${name}_vec4 *)to = (${ctype}4)(from[0], from[across], from[2 * across], from[3 * across]);
            from += along;
            to += width;
        }
    }
    for (; i < count || i % 4; i++)
        for (long k = 0; k < depth; k++)
            packed[k * width + i] = i < count ? x[i * across + k * along] : 0;
    for (; i < width; i += 4)
        for (long k = 0; k < depth; k++)
            *(__global ${name}_vec4 *)(packed + k * width + i) = 0;
}
