## Stores of tiles whose rows are channels of y and whose columns are output pixels, schedule cpu.
##
## Operands    tile: rows of lanes * vectors elements. column_offsets: where the columns are in y; is_contiguous: for
##             each vector of columns, whether they are in order.
## The defs take the arguments of the template that calls them; `function` begins a function.
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%def name="store(name, ctype, lanes, vectors, further, statements, function)">
<%
    nr, J = lanes * vectors, range(vectors)
    vector = f"{ctype}{lanes}"
    own = f", int is_last, long channel, long start{epilogue.parameters(name, ctype, further, by_pointer=True)}"
%>
// y = tile, or y += tile when it is not the first block along k; the epilogue is applied to the last one.
${function} void ${name}_store(${ctype} *tile, const long *column_offsets, const int *is_contiguous, long row,
                               long height, long width, int is_first, __global ${ctype} *o${own if statements else ""})
{
    for (long i = 0; i < height; i++) {
        % for j in J:
        if (is_contiguous[${j}]) {
            __global ${name}_vec *const to = (__global ${name}_vec *)(o + column_offsets[${j * lanes}]);
            ${vector} v = *(const ${name}_vec *)(tile + ${j * lanes});
            % if statements:
            v = is_first ? v : *to + v;
            if (is_last)
                ${epilogue.apply(name, ctype, further, "v", "f->", "channel + i",
                                 f"start + i * row + column_offsets[{j * lanes}]", f"{name}_vec", vector)}
            *to = v;
            % else:
            *to = is_first ? v : *to + v;
            % endif
        } else if (width > ${j * lanes}) {
            const long stop = min(width, ${(j + 1) * lanes}L);
            % if statements:
            for (long l = ${j * lanes}; l < stop; l++)
                tile[l] = is_first ? tile[l] : o[column_offsets[l]] + tile[l];
            if (is_last) {
                ${vector} v = *(const ${name}_vec *)(tile + ${j * lanes});
                ${epilogue.apply_some(name, ctype, further, "v", "f->", "channel + i",
                                      lambda l: f"start + i * row + column_offsets[{j * lanes} + {l}]",
                                      f"stop - {j * lanes}", vector, vector)}
                *(${name}_vec *)(tile + ${j * lanes}) = v;
            }
            for (long l = ${j * lanes}; l < stop; l++)
                o[column_offsets[l]] = tile[l];
            % else:
            for (long l = ${j * lanes}; l < stop; l++)
                o[column_offsets[l]] = is_first ? tile[l] : o[column_offsets[l]] + tile[l];
            % endif
        }
        % endfor
        o += row;
        tile += ${nr};
    }
}
</%def>

<%def name="columns(name, lanes, vectors, function)">
// Where columns n0.. of y are, and which vectors of them are contiguous.
${function} void ${name}_columns(const conv_plan *p, long n0, long width, long *column_offsets, int *is_contiguous)
{
    const long out[3] = {p->out[0], p->out[1], p->out[2]};
    conv_index q = conv_unravel(n0, out);
    for (long l = 0; l < width; l++) {
        column_offsets[l] = q.outer * p->y.n + conv_offset(p->y.d, p->y.h, p->y.w, q);
        conv_advance(&q, 1, out);
    }
    for (int j = 0; j < ${vectors}; j++) {
        is_contiguous[j] = width >= (j + 1) * ${lanes};
        for (int l = j * ${lanes} + 1; is_contiguous[j] && l < (j + 1) * ${lanes}; l++)
            is_contiguous[j] = column_offsets[l] == column_offsets[l - 1] + 1;
    }
}
</%def>
