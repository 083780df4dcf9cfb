## Algorithm   Transposes a block of `lanes` rows of few elements in registers. The elements of the block are `tile`
##             vectors in a row. To sort the even elements before the odd ones rotates the bits of their numbers (row
##             before column) by one; as many steps as a column number has bits put the column before the row.
## Operands    p: rows `step` elements apart, or (transpose_gather) at p + rows[l]; t: one vector for each column.
## Invariants  A row that is shorter than a vector of `tile` elements is read with what follows it, unless that may not
##             exist (is_whole, or beyond `last`). transpose_store writes such excess too, and the next row repairs it.
##             With a name of an address space, t is there, and need not be aligned.
## Reference   Bit-rotation shuffle (perfect unshuffle): D. E. Knuth, The Art of Computer Programming 4A, 7.1.3.
<%page args="dtype, lanes, tile, is_gathered_tile, space=''"/>\
<%!
import numpy as np

from pytensor_cl.codegen.dtypes import access_name, ctype, vector_type
%>\
<%
T, V, P = ctype(dtype), vector_type(dtype, lanes), vector_type(dtype, tile)
A = f"{access_name(dtype, lanes)}_{tile}{space}"
column, inlining = (f"{space} dense_{A}", "__attribute__((noinline))") if space else (V, "inline")
rounds, rows = tile.bit_length() - 1, lanes // tile
many = tile == lanes
%>\
<%def name="each(text)" filter="trim">
% for v in range(tile):
        ${text.replace("#", str(v))}
% endfor
</%def>\
typedef ${V} dense_${A} __attribute__((aligned(${np.dtype(dtype).itemsize})));
typedef ${P} row_${A} __attribute__((aligned(${np.dtype(dtype).itemsize})));
/* Column k to t[k]. A row that is shorter than a vector of `tile` elements is read with what follows it, unless that
   may not exist. */
% for gathered in (False, True) if is_gathered_tile else (False,):
static ${inlining} void transpose_${'gather' if gathered else 'load'}_${A}(${column} *t, __global const ${T} *p,
    const long ${'*rows' if gathered else 'step'}, const int n,
    const int is_whole${', const long last' if gathered else ''})
{
% if many:
    for (int c = 0; c < n; c += ${tile}) {
        const int at = min(c, max(n - ${tile}, 0));
% else:
    {
        const int at = 0;
% endif
        __global const ${T} *q = p + at;
        ${V} ${", ".join(f"a{v}" for v in range(tile))};
        if (n < ${tile} && !is_whole) {
            ${T} lane[${lanes * tile}] __attribute__((aligned(sizeof(${V}))));
            for (int l = 0; l < ${lanes}; ++l)
% if gathered:
                if (rows[l] < last)
                    *(row_${A} *)(lane + l * ${tile}) = *(__global const row_${A} *)(q + rows[l]); else
% endif
                for (int k = 0; k < ${tile}; ++k)
                    lane[l * ${tile} + k] = q[${'rows[l]' if gathered else 'l * step'} + min(k, n - 1)];
            ${each(f"a# = *(({V} *)lane + #);")}
% if not many and not gathered:
        } else if (step == ${tile}) {
            ${each(f"a# = *(__global const dense_{A} *)(q + # * {lanes});")}
% endif
        } else {
% for v in range(tile):
<%
    starts = [f"rows[{v * rows + r}]" if gathered else f"{v * rows + r} * step" for r in range(rows)]
%>\
            a${v} = (${V})(${", ".join(f"*(__global const row_{A} *)(q + {start})" for start in starts)});
% endfor
        }
% for _ in range(rounds):
        {
% for v in range(tile):
<% half, first = ("odd", 2 * v - tile) if 2 * v >= tile else ("even", 2 * v) %>\
            const ${V} b${v} = (${V})(a${first}.${half}, a${first + 1}.${half});
% endfor
            ${each("a# = b#;")}
        }
% endfor
        ${each("t[at + #] = a#;")}
    }
}
% endfor

/* t[k] to column k. A row may write past its end: the next row, which is stored later, corrects that. The last row
   writes no more than it has. */
static ${inlining} void transpose_store_${A}(const ${column} *t, __global ${T} *p, const long step, const int n)
{
% if many:
    for (int c = 0; c < n; c += ${tile}) {
        const int at = min(c, max(n - ${tile}, 0));
% else:
    {
        const int at = 0;
% endif
        __global ${T} *q = p + at;
        ${V} ${", ".join(f"a{v} = t[at + {v}]" for v in range(tile))};
% for _ in range(rounds):
        {
            ${V} ${", ".join(f"b{v}" for v in range(tile))};
% for v in range(tile):
            b${v}.even = a${v // 2}.${("lo", "hi")[v % 2]}; b${v}.odd = a${v // 2 + tile // 2}.${("lo", "hi")[v % 2]};
% endfor
            ${each("a# = b#;")}
        }
% endfor
% if not many:
        if (step == ${tile}) {
            ${each(f"*(__global dense_{A} *)(q + # * {lanes}) = a#;")}
            return;
        }
% endif
<%
    pieces = [
        f"a{v}" + ("" if many else f".s{''.join(f'{r * tile + k:x}' for k in range(tile))}")
        for v in range(tile)
        for r in range(rows)
    ]
%>\
% for l, piece in enumerate(pieces[:-1]):
        *(__global row_${A} *)(q + ${l} * step) = ${piece};
% endfor
        ${T} lane[${tile}] __attribute__((aligned(sizeof(${P}))));
        *(${P} *)lane = ${pieces[-1]};
        if (n >= ${tile})
            *(__global row_${A} *)(q + ${lanes - 1} * step) = ${pieces[-1]};
        else for (int k = 0; k < n; ++k)
            q[${lanes - 1} * step + k] = lane[k];
    }
}
