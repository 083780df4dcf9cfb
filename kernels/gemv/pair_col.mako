## The two products of kernels/gemv/pair.mako with a block of rows of a matrix whose columns are contiguous.
<%page args="name, ctype, wide"/>
<% W = f"{ctype}{wide}" %>
typedef ${W} ${name}_wide __attribute__((aligned(sizeof(${ctype}))));


<%def name="columns(count)">
        long i = 0;
        for (; i + ${wide} <= rows; i += ${wide})
            *(__global ${name}_wide *)(z + i) += ${" + ".join(f"*(__global const {name}_wide *)(a + (j + {c}) * col + i) * x[j + {c}]" for c in range(count))};
        for (; i < rows; ++i)
            z[i] += ${" + ".join(f"a[(j + {c}) * col + i] * x[j + {c}]" for c in range(count))};
</%def>

// z = A @ x
static void ${name}_product(__global const ${ctype} *a, const long row, const long col, __global const ${ctype} *x,
                            const long k, const long rows, const long whole_rows, __global ${ctype} *z)
{
    for (long i = 0; i < rows; ++i)
        z[i] = 0;
    long j = 0;
    for (; j + 8 <= k; j += 8) {
        ${columns(8)}
    }
    for (; j < k; ++j) {
        ${columns(1)}
    }
}

// g += A.T @ z
static void ${name}_transposed(__global const ${ctype} *a, const long row, const long col, __global const ${ctype} *z,
                               const long k, const long rows, const long whole_rows, __global ${ctype} *g)
{
    for (long j = 0; j < k; ++j) {
        __global const ${ctype} *const b = a + j * col;
        ${W} ${", ".join(f"s{r} = 0" for r in range(4))};
        long i = 0;
        for (; i + ${4 * wide} <= rows; i += ${4 * wide}) {
            ${" ".join(f"s{r} += *(__global const {name}_wide *)(b + i + {r * wide}) * *(__global const {name}_wide *)(z + i + {r * wide});" for r in range(4))}
        }
        for (; i + ${wide} <= rows; i += ${wide})
            s0 += *(__global const ${name}_wide *)(b + i) * *(__global const ${name}_wide *)(z + i);
        const ${W} s = (s0 + s1) + (s2 + s3);
        ${ctype} sum = ${" + ".join(f"s.s{c:x}" for c in range(wide))};
        for (; i < rows; ++i)
            sum += b[i] * z[i];
        g[j] += sum;
    }
}
