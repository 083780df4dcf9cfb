## The two products of pair.mako with a block of rows, for a matrix with contiguous rows.
##
## Algorithm   Z = A @ x, the dot variant, four rows at a time; g += A.T @ z, the axpy variant, four vectors of columns
##             at a time.
## Operands    a: `count` rows of k columns, `row` apart. Vectors of the first `whole_rows` rows may reach into rows
##             behind them.
## Invariants  Rows that are equal have equal products, wherever they are: all sums have one order.
<%page args="name, ctype, wide"/>
<%
    vector = f"{ctype}{wide}"
    reduce_to_4 = {16: "(v.s0123 + v.s4567) + (v.s89ab + v.scdef)", 8: "v.s0123 + v.s4567"}.get(wide, "v")
    mask = {"float": "int", "double": "long"}[ctype] + str(wide)
    R = range(4)
%>
typedef ${vector} ${name}_wide __attribute__((aligned(sizeof(${ctype}))));

static inline ${ctype}4 ${name}_fold(const ${vector} v)
{
    return ${reduce_to_4};
}

// The elements of a row from column j on, and zeros.
static inline ${vector} ${name}_tail(__global const ${ctype} *a, const long j, const long k)
{
    const ${mask} lane = (${mask})(${", ".join(map(str, range(wide)))});
    return lane < (${mask})(k - j) ? *(__global const ${name}_wide *)(a + j) : (${vector})(0);
}

// z = A @ x; behind x there are zeros
static void ${name}_product(__global const ${ctype} *a, const long row, const long col, __global const ${ctype} *x,
                            const long k, const long count, const long whole_rows, __global ${ctype} *z)
{
    const long columns = k / ${wide} * ${wide};
    long i = 0;
    for (; i + 4 <= whole_rows; i += 4) {
        __global const ${ctype} *const b = a + i * row;
        % for r in R:
        ${vector} s${r} = 0;
        % endfor
        for (long j = 0; j < columns; j += ${wide}) {
            const ${vector} v = *(__global const ${name}_wide *)(x + j);
            % for r in R:
            s${r} += *(__global const ${name}_wide *)(b + ${r} * row + j) * v;
            % endfor
        }
        if (columns < k) {
            const ${vector} v = *(__global const ${name}_wide *)(x + columns);
            % for r in R:
            s${r} += ${name}_tail(b + ${r} * row, columns, k) * v;
            % endfor
        }
        % for r in R:
        const ${ctype}4 q${r} = ${name}_fold(s${r});
        % endfor
        const ${ctype}4 q01 = (${ctype}4)(q0.even, q1.even) + (${ctype}4)(q0.odd, q1.odd);
        const ${ctype}4 q23 = (${ctype}4)(q2.even, q3.even) + (${ctype}4)(q2.odd, q3.odd);
        put_${ctype}4((${ctype}4)(q01.even, q23.even) + (${ctype}4)(q01.odd, q23.odd), z + i);
    }
    for (; i < count; ++i) {
        ${vector} s = 0;
        for (long j = 0; j < columns; j += ${wide})
            s += *(__global const ${name}_wide *)(a + i * row + j) * *(__global const ${name}_wide *)(x + j);
        if (columns < k) {
            ${ctype} tail[${wide}] __attribute__((aligned(sizeof(${vector}))));
            for (int c = 0; c < ${wide}; ++c)
                tail[c] = columns + c < k ? a[i * row + columns + c] : 0;
            s += *(${vector} *)tail * *(__global const ${name}_wide *)(x + columns);
        }
        const ${ctype}4 q = ${name}_fold(s);
        z[i] = (q.s0 + q.s1) + (q.s2 + q.s3);
    }
}

// g += A.T @ z
static void ${name}_transposed(__global const ${ctype} *a, const long row, const long col, __global const ${ctype} *z,
                               const long k, const long count, const long whole_rows, __global ${ctype} *g)
{
    const long columns = k / ${wide} * ${wide};
    long j = 0;
    for (; j + ${4 * wide} <= columns; j += ${4 * wide}) {
        % for u in range(4):
        ${vector} s${u} = *(__global const ${name}_wide *)(g + j + ${u * wide});
        % endfor
        for (long i = 0; i < count; ++i) {
            % for u in range(4):
            s${u} += *(__global const ${name}_wide *)(a + i * row + j + ${u * wide}) * z[i];
            % endfor
        }
        % for u in range(4):
        *(__global ${name}_wide *)(g + j + ${u * wide}) = s${u};
        % endfor
    }
    for (; j < k; j += ${wide}) {
        const long rows = j < columns ? count : max(0L, whole_rows);
        % for r in R:
        ${vector} s${r} = 0;
        % endfor
        long i = 0;
        if (j < columns)
            for (; i + 4 <= rows; i += 4) {
                % for r in R:
                s${r} += *(__global const ${name}_wide *)(a + (i + ${r}) * row + j) * z[i + ${r}];
                % endfor
            }
        else
            for (; i + 4 <= rows; i += 4) {
                % for r in R:
                s${r} += ${name}_tail(a + (i + ${r}) * row, j, k) * z[i + ${r}];
                % endfor
            }
        *(__global ${name}_wide *)(g + j) += (s0 + s1) + (s2 + s3);
        for (; i < count; ++i)
            for (long c = j; c < min(k, j + ${wide}); ++c)
                g[c] += a[i * row + c] * z[i];
    }
}
