## Units of work of schedule simt: `lanes` elements of one row (a row is along the last dimension), so that the position
## of the row is computed once for several elements, which are in flight together. The elements are neighbours where
## vectors are moved, else 2^bits apart, so that neighbouring work-items take neighbouring elements. The struct `p` has
## the members of routines/base/units.py, and shape.
<%!
def log2(n):
    return n.bit_length() - 1
%>
## Begins a loop over the units (the caller closes it) and declares: rest, the number of the row; column, the first
## element in it; spread, the distance to the next one; end, the length of a row. `is_vector`: a C condition.
<%def name="loop(index, lanes, last, is_vector)">
    const int is_vector = ${is_vector};
    const uint bits = is_vector ? 0 : p.bits;
    const u${index} across = is_vector ? p.vectors_across : p.across;
    const u${index} units = is_vector ? p.vectors : p.units;
    const u${index} spread = (u${index})1 << bits;
    const u${index} end = p.shape[${last}];
    for (u${index} n = get_global_id(0); n < units; n += get_global_size(0)) {
        u${index} block = n >> bits;
        u${index} rest = 0;
        if (p.dims > 1) {
            rest = block / across;
            block -= rest * across;
        }
        const u${index} column = (block << (bits + ${log2(lanes)})) + (n & (spread - 1));
</%def>

## Adds to the offsets (pairs of a variable and the C expression of its stride, with {} for the dimension) where the row
## `rest` of the first `dims` dimensions is; assigns its coordinates to variables, if their stem is given. No division
## is made for outer dimensions that were merged with others.
<%def name="rows(index, dims, offsets, coordinate=None)">
% for d in reversed(range(dims)):
        {
            const u${index} place = rest;
    % if d:
            rest = 0;
            if (p.dims > ${dims - d + 1}) {
                rest = place / p.shape[${d}];
            }
            const ${index} i = place - rest * p.shape[${d}];
    % else:
            const ${index} i = place;
    % endif
    % if coordinate:
            ${coordinate}${d} = i;
    % endif
    % for offset, stride in offsets:
            ${offset} += i * ${stride.format(d)};
    % endfor
        }
% endfor
</%def>

## The element `q` of the unit in its row; past the end the last one, so that no rare value is computed.
<%def name="place(q)" buffered="True" filter="trim">
min(column + ${q} * spread, end - 1)
</%def>
