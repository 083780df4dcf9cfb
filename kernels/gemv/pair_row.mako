## The two products of kernels/gemv/pair.mako with a block of rows that are contiguous.
<%page args="name, ctype, wide"/>
<%
    W = f"{ctype}{wide}"
    fold = {16: "(v.s0123 + v.s4567) + (v.s89ab + v.scdef)", 8: "v.s0123 + v.s4567"}.get(wide, "v")
    mask = {"float": "int", "double": "long"}[ctype]
%>
typedef ${W} ${name}_wide __attribute__((aligned(sizeof(${ctype}))));

static inline ${ctype}4 ${name}_fold(const ${W} v) { return ${fold}; }

// What is in a row from column j on, and zeros.
static inline ${W} ${name}_end(__global const ${ctype} *a, const long j, const long k)
{
    const ${mask}${wide} lane = (${mask}${wide})(${", ".join(map(str, range(wide)))});
    return lane < (${mask}${wide})(k - j) ? *(__global const ${name}_wide *)(a + j) : (${W})(0);
}

// z = A @ x; behind x there are zeros
static void ${name}_product(__global const ${ctype} *a, const long row, const long col, __global const ${ctype} *x,
                            const long k, const long count, const long whole_rows, __global ${ctype} *z)
{
    const long columns = k / ${wide} * ${wide};
    long i = 0;
    for (; i + 4 <= whole_rows; i += 4) {
        __global const ${ctype} *const b = a + i * row;
        ${W} ${", ".join(f"s{r} = 0" for r in range(4))};
        for (long j = 0; j < columns; j += ${wide}) {
            const ${W} v = *(__global const ${name}_wide *)(x + j);
            ${" ".join(f"s{r} += *(__global const {name}_wide *)(b + {r} * row + j) * v;" for r in range(4))}
        }
        if (columns < k) {
            const ${W} v = *(__global const ${name}_wide *)(x + columns);
            ${" ".join(f"s{r} += {name}_end(b + {r} * row, columns, k) * v;" for r in range(4))}
        }
        const ${ctype}4 ${", ".join(f"q{r} = {name}_fold(s{r})" for r in range(4))};
        const ${ctype}4 u = (${ctype}4)(q0.even, q1.even) + (${ctype}4)(q0.odd, q1.odd);
        const ${ctype}4 v = (${ctype}4)(q2.even, q3.even) + (${ctype}4)(q2.odd, q3.odd);
        put_${ctype}4((${ctype}4)(u.even, v.even) + (${ctype}4)(u.odd, v.odd), z + i);
    }
    for (; i < count; ++i) {  // in the same order: rows that are equal have equal products, wherever they are
        ${W} s = 0;
        for (long j = 0; j < columns; j += ${wide})
            s += *(__global const ${name}_wide *)(a + i * row + j) * *(__global const ${name}_wide *)(x + j);
        if (columns < k) {
            ${ctype} end[${wide}] __attribute__((aligned(sizeof(${W}))));
            for (int c = 0; c < ${wide}; ++c)
                end[c] = columns + c < k ? a[i * row + columns + c] : 0;
            s += *(${W} *)end * *(__global const ${name}_wide *)(x + columns);
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
        ${W} ${", ".join(f"s{u} = *(__global const {name}_wide *)(g + j + {u * wide})" for u in range(4))};
        for (long i = 0; i < count; ++i) {
            ${" ".join(f"s{u} += *(__global const {name}_wide *)(a + i * row + j + {u * wide}) * z[i];" for u in range(4))}
        }
        ${" ".join(f"*(__global {name}_wide *)(g + j + {u * wide}) = s{u};" for u in range(4))}
    }
    for (; j < k; j += ${wide}) {
        const long rows = j < columns ? count : max(0L, whole_rows);
        ${W} ${", ".join(f"s{r} = 0" for r in range(4))};
        long i = 0;
        if (j < columns)
            for (; i + 4 <= rows; i += 4) {
                ${" ".join(f"s{r} += *(__global const {name}_wide *)(a + (i + {r}) * row + j) * z[i + {r}];" for r in range(4))}
            }
        else
            for (; i + 4 <= rows; i += 4) {
                ${" ".join(f"s{r} += {name}_end(a + (i + {r}) * row, j, k) * z[i + {r}];" for r in range(4))}
            }
        *(__global ${name}_wide *)(g + j) += (s0 + s1) + (s2 + s3);
        for (; i < count; ++i)
            for (long c = j; c < min(k, j + ${wide}); ++c)
                g[c] += a[i * row + c] * z[i];
    }
}
