## The two products of pair.mako with a block of rows, for a matrix with contiguous columns.
##
## Algorithm   Z = A @ x, the axpy variant, eight columns at a time; g += A.T @ z, a dot product for each column.
## Operands    a: `rows` rows of k columns that are `col` apart. Arguments that pair_row.mako needs alone are unused.
<%page args="name, ctype, wide"/>
<%
    vector = f"{ctype}{wide}"
    R = range(4)
%>
typedef ${vector} ${name}_wide __attribute__((aligned(sizeof(${ctype}))));

<%def name="columns(count)">
<%  products = [f"*(__global const {name}_wide *)(a + (j + {c}) * col + i) * x[j + {c}]" for c in range(count)] %>\
        long i = 0;
        for (; i + ${wide} <= rows; i += ${wide})
            *(__global ${name}_wide *)(z + i) +=
                ${"\n                + ".join(products)};
        for (; i < rows; ++i)
            z[i] += ${"\n                + ".join(f"a[(j + {c}) * col + i] * x[j + {c}]" for c in range(count))};
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
        __global const ${ctype} *const column = a + j * col;
        % for r in R:
        ${vector} s${r} = 0;
        % endfor
        long i = 0;
        for (; i + ${4 * wide} <= rows; i += ${4 * wide}) {
            % for r in R:
            s${r} += *(__global const ${name}_wide *)(column + i + ${r * wide})
                * *(__global const ${name}_wide *)(z + i + ${r * wide});
            % endfor
        }
        for (; i + ${wide} <= rows; i += ${wide})
            s0 += *(__global const ${name}_wide *)(column + i) * *(__global const ${name}_wide *)(z + i);
        const ${vector} s = (s0 + s1) + (s2 + s3);
        ${ctype} sum = ${" + ".join(f"s.s{c:x}" for c in range(wide))};
        for (; i < rows; ++i)
            sum += column[i] * z[i];
        g[j] += sum;
    }
}
