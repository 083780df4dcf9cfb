## Panels of a matrix product, schedule cpu.
<%page args="name, ctype, lanes, vectors, full_width"/>
// Copy `count` rows (of A; columns of B) of `depth` elements to a panel of `width` (in fours), which is filled up with zeros.
static ${full_width} void ${name}_pack(__global const ${ctype} *x, long across, long along, long count, long depth,
                                       __global ${ctype} *to, long width)
{
    long i = 0;
    % for step, vec, parts in ((lanes * vectors, "vec", vectors), (lanes, "vec", 1), (4, "vec4", 1)):
    for (; across == 1 && i + ${step} <= count; i += ${step})
        for (long k = 0; k < depth; k++) {
            __global ${name}_${vec} *const out = (__global ${name}_${vec} *)(to + k * width + i);
            __global const ${name}_${vec} *const in = (__global const ${name}_${vec} *)(x + k * along + i);
            ${" ".join(f"out[{j}] = in[{j}];" for j in range(parts))}
        }
    % endfor
    for (; i + 4 <= count; i += 4) {
        __global const ${ctype} *y = x + i * across;
        __global ${ctype} *out = to + i;
        long k = 0;
        for (; along == 1 && k + 4 <= depth; k += 4, y += 4, out += 4 * width) {
            % for r in range(4):
            const ${ctype}4 y${r} = *(__global const ${name}_vec4 *)(y + ${r} * across);
            % endfor
            % for r in range(4):
            *(__global ${name}_vec4 *)(out + ${r} * width) = (${ctype}4)(y0.s${r}, y1.s${r}, y2.s${r}, y3.s${r});
            % endfor
        }
        for (; k < depth; k++, y += along, out += width)
            *(__global ${name}_vec4 *)out = (${ctype}4)(y[0], y[across], y[2 * across], y[3 * across]);
    }
    for (; i < count || i % 4; i++)
        for (long k = 0; k < depth; k++)
            to[k * width + i] = i < count ? x[i * across + k * along] : 0;
    for (; i < width; i += 4)
        for (long k = 0; k < depth; k++)
            *(__global ${name}_vec4 *)(to + k * width + i) = 0;
}
