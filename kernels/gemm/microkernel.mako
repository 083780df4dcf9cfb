## Register tiles of matrix products, schedule cpu, and the panels that they read. All kernels of a program share them.
## What reaches the speed of a BLAS: accumulators in named variables (an array of them is spilled), operands read by
## dereferencing vectors, a*b+c (fma() and vloadn may be calls), and registers of full width, for which compilers must be asked.
<%page args="tiles, ctype, itemsize, lanes, sizes, ahead=()"/>
<%
    line = 64 // itemsize
    full_width = f"GEMM_APART GEMM_VECTORS({8 * itemsize * lanes})"
%>
typedef ${ctype}${lanes} ${tiles}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}${lanes // 2} ${tiles}_half __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${tiles}_vec4 __attribute__((aligned(${itemsize})));

<%include file="/gemm/packing.mako" args="name=tiles, ctype=ctype, lanes=lanes, vectors=max(halves for _, halves in sizes) // 2, full_width=full_width"/>
% for height, halves, fetches in [(*size, False) for size in sizes] + [(*size, True) for size in ahead]:
<%
    J = range((halves + 1) // 2)
    vec, type = ("vec", f"{ctype}{lanes}") if halves > 1 else ("half", f"{ctype}{lanes // 2}")
%>
// sums = ${height} rows of A, of which there is the `last`, @ ${halves / 2} vectors of columns of B; or `more` of these sums
% if fetches:
// Meanwhile ${line} rows at `soon` are fetched, a cache line of one of them for each step along k.
% endif
static ${full_width} void ${tiles}_multiply${height}x${halves}${"_ahead" if fetches else ""}(__global const ${ctype} *restrict a, long row, long col, int last,
    __global const ${ctype} *restrict b, long step, long depth, __global ${ctype} *restrict sums, long next, int more${
    f", __global const {ctype} *soon, long soon_row, long soon_col" if fetches else ""})
{
    % for i in range(height):
    __global const ${ctype} *const a${i} = ${f"a{i - 1} + (last < {i} ? 0 : row)" if i else "a"};
    ${type} ${", ".join(f"c{i}_{j} = 0" for j in J)};
    % endfor
    if (more) {
        % for i in range(height):
        ${" ".join(f"c{i}_{j} = *(__global const {tiles}_{vec} *)(sums + {i} * next + {j * lanes});" for j in J)}
        % endfor
    }
    long along = 0;
    for (long k = 0; k < depth; k++, along += col, b += step) {
        % if fetches:
        prefetch_later(soon + (k & ${line - 1}) * soon_row + (k & -${line}) * soon_col);
        % endif
        % for j in J:
        const ${type} b${j} = *(__global const ${tiles}_${vec} *)(b + ${j * lanes});
        % endfor
        % for i in range(height):
        { const ${type} x = a${i}[along]; ${" ".join(f"c{i}_{j} = x * b{j} + c{i}_{j};" for j in J)} }
        % endfor
    }
    % for i in range(height):
    ${" ".join(f"*(__global {tiles}_{vec} *)(sums + {i} * next + {j * lanes}) = c{i}_{j};" for j in J)}
    % endfor
}
% endfor
