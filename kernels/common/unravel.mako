## Coordinates of a linear index in C order, and the offsets of arrays at these coordinates.
## Arguments of the defs: dims (numbers of the dimensions, the outermost first), index (C type), rest (variable with the
## linear index, which ends as 0 or, with a single dimension, unchanged), shape (C expression with {} for the
## dimension), offsets (pairs of a variable and the C expression of its stride, with {} for the dimension).
<%def name="unravel(dims, index, rest, shape, offsets)">
% for d in reversed(dims):
        {
            const ${index} i = ${f"{rest} % {shape.format(d)}" if d else rest};
    % if d:
            ${rest} /= ${shape.format(d)};
    % endif
    % for offset, stride in offsets:
            ${offset} += i * ${stride.format(d)};
    % endfor
        }
% endfor
</%def>
