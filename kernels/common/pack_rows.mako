## Packing of four rows of a matrix for the panels of a matrix product, schedule cpu.
##
## Algorithm   `rows` copies `depth` elements of each of the four rows from x + i * across; element k of row number i
##             goes to packed[k * width + i], so that what one step along k needs are neighbours. Where the rows are
##             contiguous, blocks of 4 x 4 are transposed in registers.
## Operands    x with strides `across` (from row to row) and `along` (along a row).
## The variables x, across, along, depth, packed and i are those of the caller; `width` is a constant or a variable.
<%def name="rows(ctype, vec4, width)">
        __global const ${ctype} *from = x + i * across;
        __global ${ctype} *to = packed + i;
        long k = 0;
        for (; along == 1 && k + 4 <= depth; k += 4) {
            % for r in range(4):
            const ${ctype}4 row${r} = *(__global const ${vec4} *)(from + ${r} * across);
            % endfor
            % for r in range(4):
            *(__global ${vec4} *)(to + ${r} * ${width}) = (${ctype}4)(row0.s${r}, row1.s${r}, row2.s${r}, row3.s${r});
            % endfor
            from += 4;
            to += 4 * ${width};
        }
        for (; k < depth; k++) {
            *(__global ${vec4} *)to = (${ctype}4)(from[0], from[across], from[2 * across], from[3 * across]);
            from += along;
            to += ${width};
        }
</%def>
