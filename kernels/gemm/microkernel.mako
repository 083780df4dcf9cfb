## Micro-kernels of matrix products, schedule cpu. All kernels of a program share them.
##
## Algorithm   a register tile of mr x nr sums; each step along k multiplies a column of mr elements of A by a row of nr
##             of B.
## Operands    A with strides `row` and `col`; rows beyond `last_row` are not read. B: rows of nr elements, `b_row`
##             apart. sums: rows of nr elements, `sums_row` apart.
## Tiling      One function for each of `shapes`: (mr, half vectors of nr); nr = lanes * half_vectors / 2.
## Invariants  `accumulate` adds to what is in sums.
## Reference   BLIS (Van Zee and van de Geijn 2015). What reaches the speed of a BLAS: accumulators in named variables
##             (an array of them is spilled), operands read by dereferencing vectors, a*b+c (fma() and vloadn may be
##             calls), and registers of full width.
<%page args="micro, ctype, itemsize, lanes, shapes, prefetching=()"/>
<%
    line = 64 // itemsize  # elements of a cache line
    full_width = f"NOINLINE MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    vectors = max(half_vectors for _, half_vectors in shapes) // 2
%>
typedef ${ctype}${lanes} ${micro}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}${lanes // 2} ${micro}_half __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${micro}_vec4 __attribute__((aligned(${itemsize})));

<%include file="/gemm/packing.mako"
          args="name=micro, ctype=ctype, lanes=lanes, vectors=vectors, full_width=full_width"/>
% for mr, half_vectors, prefetches in [(*shape, False) for shape in shapes] + [(*shape, True) for shape in prefetching]:
<%
    J = range((half_vectors + 1) // 2)
    vec, type = ("vec", f"{ctype}{lanes}") if half_vectors > 1 else ("half", f"{ctype}{lanes // 2}")
%>
// sums (${mr} rows, ${half_vectors / 2} vectors) = A @ B
% if prefetches:
// ${line} rows at `later` are prefetched meanwhile, a cache line of one of them in each step along k.
% endif
static ${full_width} void ${micro}_multiply${mr}x${half_vectors}${"_prefetch" if prefetches else ""}(
    __global const ${ctype} *restrict a, long row, long col, int last_row,
    __global const ${ctype} *restrict b, long b_row, long depth,
    __global ${ctype} *restrict sums, long sums_row, int accumulate${
    f", __global const {ctype} *later, long later_row, long later_col" if prefetches else ""})
{
    % for i in range(mr):
    __global const ${ctype} *const a${i} = ${f"a{i - 1} + (last_row < {i} ? 0 : row)" if i else "a"};
    % for j in J:
    ${type} c${i}_${j} = 0;
    % endfor
    % endfor
    if (accumulate) {
        % for i in range(mr):
        % for j in J:
        c${i}_${j} = *(__global const ${micro}_${vec} *)(sums + ${i} * sums_row + ${j * lanes});
        % endfor
        % endfor
    }
    long a_at = 0;
    for (long k = 0; k < depth; k++) {
        % if prefetches:
        prefetch_later(later + (k & ${line - 1}) * later_row + (k & -${line}) * later_col);
        % endif
        % for j in J:
        const ${type} b${j} = *(__global const ${micro}_${vec} *)(b + ${j * lanes});
        % endfor
        % for i in range(mr):
        const ${type} x${i} = a${i}[a_at];
        % for j in J:
        c${i}_${j} = x${i} * b${j} + c${i}_${j};
        % endfor
        % endfor
        a_at += col;
        b += b_row;
    }
    % for i in range(mr):
    % for j in J:
    *(__global ${micro}_${vec} *)(sums + ${i} * sums_row + ${j * lanes}) = c${i}_${j};
    % endfor
    % endfor
}
% endfor
