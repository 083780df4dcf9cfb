## Panels of kernels/conv/implicit_gemm.mako and their product.
<%def name="pack(which, width)">
// Copy `count` rows (of A; columns of B) of `depth` elements to panels of ${width}; the last one is filled up with zeros.
static void ${name}_pack_${which}(__global const ${ctype} *x, long across, long along, long count, long depth,
                                  __global ${ctype} *to)
{
    for (long left = count; left > 0; left -= ${width}, x += ${width} * across, to += ${width} * depth) {
        if (left < ${width}) {
            for (long k = 0; k < depth; k++)
                for (int i = 0; i < ${width}; i++)
                    to[k * ${width} + i] = i < left ? x[i * across + k * along] : 0;
        } else if (across == 1) {
            for (long k = 0; k < depth; k++) {
                % for i in range(0, width, 4):
                *(__global ${name}_vec4 *)(to + k * ${width} + ${i}) = *(__global const ${name}_vec4 *)(x + k * along + ${i});
                % endfor
            }
        } else {
            for (int i = 0; i < ${width}; i += 4) {
                __global const ${ctype} *y = x + i * across;
                __global ${ctype} *out = to + i;
                long k = 0;
                if (along == 1) {
                    for (; k + 4 <= depth; k += 4, y += 4, out += ${4 * width}) {
                        % for r in range(4):
                        const ${ctype}4 y${r} = *(__global const ${name}_vec4 *)(y + ${r} * across);
                        % endfor
                        % for r in range(4):
                        *(__global ${name}_vec4 *)(out + ${r * width}) = (${ctype}4)(y0.s${r}, y1.s${r}, y2.s${r}, y3.s${r});
                        % endfor
                    }
                }
                for (; k < depth; k++, y += along, out += ${width})
                    *(__global ${name}_vec4 *)out = (${ctype}4)(y[0], y[across], y[2 * across], y[3 * across]);
            }
        }
    }
}
</%def>
<%def name="multiply(rows, lanes, vectors, J, suffix='')">
// tile = (panel of A) @ (panel of B), for the vectors J of the panel of B
static CONV_VECTORS(${8 * itemsize * lanes}) void ${name}_multiply${suffix}(__global const ${ctype} *restrict a, __global const ${ctype} *restrict b, long depth,
                             ${ctype} *restrict tile)
{
    % for i in range(rows):
    ${ctype}${lanes} ${", ".join(f"c{i}_{j} = 0" for j in J)};
    % endfor
    for (long k = 0; k < depth; k++, a += ${rows}, b += ${vectors * lanes}) {
        % for j in J:
        const ${ctype}${lanes} b${j} = *(__global const ${name}_vec *)(b + ${j * lanes});
        % endfor
        % for i in range(rows):
        { const ${ctype}${lanes} x = a[${i}]; ${" ".join(f"c{i}_{j} = x * b{j} + c{i}_{j};" for j in J)} }
        % endfor
    }
    % for i in range(rows):
    ${" ".join(f"*({name}_vec *)(tile + {(i * vectors + j) * lanes}) = c{i}_{j};" for j in J)}
    % endfor
}
</%def>
