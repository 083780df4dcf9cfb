## Register tiles of matrix products, schedule cpu, and the panels that they read. All kernels of a program share them.
## What reaches the speed of a BLAS: accumulators in named variables (an array of them is spilled), operands read by
## dereferencing vectors, a*b+c (fma() and vloadn may be calls), and registers of full width, for which compilers must be asked.
<%page args="tiles, ctype, itemsize, lanes, rows, vectors"/>
<%
    cols = lanes * vectors
    heights = [rows, rows // 2] if rows >= 8 else [rows]
    full_width = f"GEMM_APART GEMM_VECTORS({8 * itemsize * lanes})"
%>
typedef ${ctype}${lanes} ${tiles}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${tiles}_vec4 __attribute__((aligned(${itemsize})));

<%include file="gemm_pack.mako" args="name=tiles, ctype=ctype, lanes=lanes, full_width=full_width"/>
% for height in heights:
% for count in range(1, vectors + 1):
<% J = range(count) %>
// sums = ${height} rows of A @ ${count} vectors of columns of B
static ${full_width} void ${tiles}_multiply${height}x${count}(__global const ${ctype} *restrict a, long row, long col,
    __global const ${ctype} *restrict b, long step, long depth, ${ctype} *restrict sums)
{
    % for i in range(height):
    ${ctype}${lanes} ${", ".join(f"c{i}_{j} = 0" for j in J)};
    % endfor
    for (long k = 0; k < depth; k++, a += col, b += step) {
        % for j in J:
        const ${ctype}${lanes} b${j} = *(__global const ${tiles}_vec *)(b + ${j * lanes});
        % endfor
        % for i in range(height):
        { const ${ctype}${lanes} x = a[${i} * row]; ${" ".join(f"c{i}_{j} = x * b{j} + c{i}_{j};" for j in J)} }
        % endfor
    }
    % for i in range(height):
    ${" ".join(f"*({tiles}_vec *)(sums + {i * cols + j * lanes}) = c{i}_{j};" for j in J)}
    % endfor
}
% endfor
% endfor
