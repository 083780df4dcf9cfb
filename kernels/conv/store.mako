## How the kernels that compute tiles of rows and of columns, which are positions, store them. The defs see the arguments of the
## template that calls them: name, ctype, further, statements.
<%namespace name="epilogue" file="/conv/epilogue.mako"/>
<%def name="store(lanes, vectors, statements)">
<% cols, J = lanes * vectors, range(vectors) %>
// Columns `at` of O = tile, or O += tile when it is not the `first` along k.
static void ${name}_store(${ctype} *tile, const long *at, const int *unit, long row, long height, long width, int first,
                          __global ${ctype} *o${f", int last, long channel, long start{capture(epilogue.parameters, 'value')}" if statements else ""})
{
    for (long i = 0; i < height; i++, o += row, tile += ${cols}) {
        % for j in J:
        if (unit[${j}]) {
            __global ${name}_vec *const to = (__global ${name}_vec *)(o + at[${j * lanes}]);
            ${ctype}${lanes} v = *(const ${name}_vec *)(tile + ${j * lanes});
            % if statements:
            v = first ? v : *to + v;
            if (last)
                ${epilogue.apply("v", "f->", "channel + i", f"start + i * row + at[{j * lanes}]", f"{name}_vec", f"{ctype}{lanes}")}
            *to = v;
            % else:
            *to = first ? v : *to + v;
            % endif
        } else if (width > ${j * lanes}) {
            const long stop = min(width, ${(j + 1) * lanes}L);
            % if statements:
            for (long l = ${j * lanes}; l < stop; l++)
                tile[l] = first ? tile[l] : o[at[l]] + tile[l];
            if (last) {
                ${ctype}${lanes} v = *(const ${name}_vec *)(tile + ${j * lanes});
                ${epilogue.apply_some("v", "f->", "channel + i", lambda l: f"start + i * row + at[{j * lanes} + {l}]", f"stop - {j * lanes}", f"{ctype}{lanes}", f"{ctype}{lanes}")}
                *(${name}_vec *)(tile + ${j * lanes}) = v;
            }
            % endif
            for (long l = ${j * lanes}; l < stop; l++)
                o[at[l]] = ${"tile[l]" if statements else "first ? tile[l] : o[at[l]] + tile[l]"};
        }
        % endfor
    }
}
</%def>

<%def name="columns(lanes, vectors)">
// Where columns j0.. of the output lie, and which vectors of them lie in order.
static void ${name}_columns(const conv_plan *p, long j0, long width, long *at, int *unit)
{
    const long shape[3] = {p->out[0], p->out[1], p->out[2]};
    conv_index q = conv_split(j0, shape);
    for (long l = 0; l < width; l++, conv_advance(&q, 1, shape))
        at[l] = q.outer * p->y[0] + conv_at(p->y, q);
    for (int j = 0; j < ${vectors}; j++) {
        unit[j] = width >= (j + 1) * ${lanes};
        for (int l = j * ${lanes} + 1; unit[j] && l < (j + 1) * ${lanes}; l++)
            unit[j] = at[l] == at[l - 1] + 1;
    }
}
</%def>
