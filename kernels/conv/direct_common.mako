## Text that the direct convolutions share (direct.mako, depthwise.mako): the loops over channels and filter taps of a
## tile of output pixels whose first pixel has its first tap at (d0, h0, w0) of x. `lo` and `hi` bound the taps along a
## row that meet x in every lane of the tile. The defs use the arguments of the template that calls them; `vec` is the
## prefix of conv/vector_types.mako.

## The place in x of the first tap of the first output pixel (d, h, w) of a tile, and the sums of the tile.
<%def name="begin_tile(d, h, w, rows, columns, vector)">
        const long d0 = ${d} * p.stride[0] - p.pad[0];
        const long h0 = ${h} * p.stride[1] - p.pad[1];
        const long w0 = ${w} * p.stride[2] - p.pad[2];
        % for i in rows:
        % for j in columns:
        ${vector} c${i}_${j} = 0;
        % endfor
        % endfor
        long lo = 0, hi = 0;
        if (step == 1)
            conv_inner_taps(&p, w0, w0 + ${lanes * len(columns) - 1}, &lo, &hi);
</%def>

## The body for each row of taps: `row` is where it begins in x, `filter` where it begins in w, h its row of x.
## `filters` points to the filters of the tile; `begin` is added to both; `is_wanted` ends the loop before it begins.
<%def name="filter_rows(filters, row_begin='', filter_begin='', is_wanted='')">
        for (long c = 0; c < p.c${is_wanted}; c++)
            for (long td = 0; td < p.taps[0]; td++) {
                const long d = d0 + td * p.dilation[0];
                if (d < 0 || d >= p.image[0])
                    continue;
                long row = n * p.x.n + g * p.x.g + c * p.x.c + d * p.x.d + h0 * p.x.h${row_begin}, h = h0;
                __global const ${ctype} *filter = ${filters} + c * p.w.c + td * p.w.d${filter_begin};
                for (long th = 0; th < p.taps[1]; th++, h += p.dilation[1], row += tap_row, filter += p.w.h) {
                    ${caller.body()}
                }
            }
</%def>

## The body for each column of taps that meets x in some lanes only: `v<j>` is the column of x of the first lane of
## vector j, `last<j>` that of its last lane, `ok<j>` says which lanes meet x. They depend on the tap along the row
## only.
<%def name="outer_columns(columns, vec)">
        for (long t = lo > 0 ? 0 : hi; t < p.taps[2]; t = t + 1 == lo ? hi : t + 1) {
            % for j in columns:
            const long v${j} = w0 + t * dw + ${j * lanes} * p.stride[2], last${j} = v${j} + ${lanes - 1} * p.stride[2];
            const ${vec}_mask ok${j} = ${vec}_inside(v${j}, p.stride[2], p.image[2]);
            % endfor
            ${caller.body()}
        }
</%def>

## Vector j of x in the row that begins at `row`; lanes outside of x may have any value.
<%def name="load_outer(vec, j, row)" buffered="True" filter="trim">
${vec}_load(x, ${row} + v${j} * p.x.w, step, ok${j}, p.x_low, p.x_high)
</%def>
