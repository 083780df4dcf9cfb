## Packing of panels and micro-kernels of implicit_gemm.mako.
##
## Panels of A have `mr` rows, those of B `nr` columns; element i of step k is packed[k * width + i].
## The defs use the arguments of the template that calls them.
<%namespace name="pack_rows" file="/common/pack_rows.mako"/>
<%def name="pack(which, width, function)">
// Copy `count` rows (of A; columns of B) of `depth` elements to panels; the last one is filled up with zeros.
${function} void ${name}_pack_${which}(__global const ${ctype} *x, long across, long along, long count, long depth,
                                  __global ${ctype} *packed)
{
    for (long left = count; left > 0; left -= ${width}) {
        if (left < ${width}) {
            for (long k = 0; k < depth; k++)
                for (int i = 0; i < ${width}; i++)
                    packed[k * ${width} + i] = i < left ? x[i * across + k * along] : 0;
        } else if (across == 1) {
            for (long k = 0; k < depth; k++) {
                % for i in range(0, width, 4):
                *(__global ${name}_vec4 *)(packed + k * ${width} + ${i}) =
                    *(__global const ${name}_vec4 *)(x + k * along + ${i});
                % endfor
            }
        } else {
            for (int i = 0; i < ${width}; i += 4) {
                ${pack_rows.rows(ctype, f"{name}_vec4", width)}
            }
        }
        x += ${width} * across;
        packed += ${width} * depth;
    }
}
</%def>
<%def name="multiply(mr, lanes, vectors, J, function, suffix='')">
// tile = (panel of A) @ (panel of B), for the vectors J of the panel of B.
${function} void ${name}_multiply${suffix}(
    __global const ${ctype} *restrict a, __global const ${ctype} *restrict b, long depth, ${ctype} *restrict tile)
{
    % for i in range(mr):
    % for j in J:
    ${ctype}${lanes} c${i}_${j} = 0;
    % endfor
    % endfor
    for (long k = 0; k < depth; k++) {
        % for j in J:
        const ${ctype}${lanes} b${j} = *(__global const ${name}_vec *)(b + ${j * lanes});
        % endfor
        % for i in range(mr):
        const ${ctype}${lanes} a${i} = a[${i}];
        % for j in J:
        c${i}_${j} = a${i} * b${j} + c${i}_${j};
        % endfor
        % endfor
        a += ${mr};
        b += ${vectors * lanes};
    }
    % for i in range(mr):
    % for j in J:
    *(${name}_vec *)(tile + ${(i * vectors + j) * lanes}) = c${i}_${j};
    % endfor
    % endfor
}
</%def>
