## Matrix product, schedule cpu: each work-item packs blocks of A and B into its scratch space, as panels `rows` and `cols`
## wide, and multiplies panel by panel with a register tile. What reaches the speed of a BLAS: accumulators in named variables
## (an array of them is spilled), operands read by dereferencing vectors, and a*b+c (fma() and vloadn may be calls).
<%page args="name, ctype, wide, itemsize, lanes, rows, vectors, has_alpha, has_c"/>
<%
    cols = lanes * vectors
    J = range(vectors)
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_c else [])
%>
typedef ${ctype}${lanes} ${name}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${name}_vec4 __attribute__((aligned(${itemsize})));

typedef struct {  // what may change from call to call: offsets, and scalars that are given by value
    long a, b, c, o, alpha_at, beta_at;
    ${ctype} alpha, beta;
} ${name}_call;

<%def name="pack(which, width)">
// Copy `count` rows (of A; columns of B) of `depth` elements to panels of ${width}; the last one is filled up with zeros.
static void ${name}_pack_${which}(__global const ${ctype} *x, long across, long along, long count, long depth,
                                  __global ${ctype} *to)
{
    for (long left = count; left > 0; left -= ${width}, x += ${width} * across, to += ${width} * depth) {
        if (left < ${width}) {
            for (long k = 0; k < depth; k++)
                for (int i = 0; i < ${width}; i++)
                    to[k * ${width} + i] = i < left ? x[i * across + k * along] : 0;
        } else if (across == 1) {
            for (long k = 0; k < depth; k++) {
                % for i in range(0, width, 4):
                *(__global ${name}_vec4 *)(to + k * ${width} + ${i}) = *(__global const ${name}_vec4 *)(x + k * along + ${i});
                % endfor
            }
        } else {
            for (int i = 0; i < ${width}; i += 4) {
                __global const ${ctype} *y = x + i * across;
                __global ${ctype} *out = to + i;
                long k = 0;
                if (along == 1) {
                    for (; k + 4 <= depth; k += 4, y += 4, out += ${4 * width}) {
                        % for r in range(4):
                        const ${ctype}4 y${r} = *(__global const ${name}_vec4 *)(y + ${r} * across);
                        % endfor
                        % for r in range(4):
                        *(__global ${name}_vec4 *)(out + ${r * width}) = (${ctype}4)(y0.s${r}, y1.s${r}, y2.s${r}, y3.s${r});
                        % endfor
                    }
                }
                for (; k < depth; k++, y += along, out += ${width})
                    *(__global ${name}_vec4 *)out = (${ctype}4)(y[0], y[across], y[2 * across], y[3 * across]);
            }
        }
    }
}
</%def>
${pack("a", rows)}
${pack("b", cols)}

<%def name="multiply(rows, lanes, vectors, J, suffix='')">
// tile = (panel of A) @ (panel of B), for the vectors J of the panel of B
static void ${name}_multiply${suffix}(__global const ${ctype} *restrict a, __global const ${ctype} *restrict b, long depth,
                             ${ctype} *restrict tile)
{
    % for i in range(rows):
    ${ctype}${lanes} ${", ".join(f"c{i}_{j} = 0" for j in J)};
    % endfor
    for (long k = 0; k < depth; k++, a += ${rows}, b += ${vectors * lanes}) {
        % for j in J:
        const ${ctype}${lanes} b${j} = *(__global const ${name}_vec *)(b + ${j * lanes});
        % endfor
        % for i in range(rows):
        { const ${ctype}${lanes} x = a[${i}]; ${" ".join(f"c{i}_{j} = x * b{j} + c{i}_{j};" for j in J)} }
        % endfor
    }
    % for i in range(rows):
    ${" ".join(f"*({name}_vec *)(tile + {(i * vectors + j) * lanes}) = c{i}_{j};" for j in J)}
    % endfor
}
</%def>
${multiply(rows, lanes, vectors, J)}

<%def name="element(type, vec)">
            ${type} v = *(const ${vec} *)(tile + i * ${cols} + j);
            % if has_alpha:
            v = s->alpha * v;
            % endif
            if (!first)
                v += *(__global const ${vec} *)(o + i * p->o.row + j * p->o.col);
            % if has_c:
            else if (s->beta != 0)  // beta = 0 must not let a NaN of C through
                v += (${type})s->beta * *(__global const ${vec} *)(c + i * p->c.row + j * p->c.col);
            % endif
            *(__global ${vec} *)(o + i * p->o.row + j * p->o.col) = v;
</%def>
// O = alpha * tile + beta * C, or O += alpha * tile when it is not the `first` along k
static void ${name}_store(const ${ctype} *tile, const gemm_plan *p, const ${name}_call *s, long height, long width, int first,
                          __global const ${ctype} *c, __global ${ctype} *o)
{
    const int unit = p->o.col == 1${" && (p->c.col == 1 || s->beta == 0)" if has_c else ""};
    for (int i = 0; i < height; i++) {
        int j = 0;
        for (; unit && j + ${lanes} <= width; j += ${lanes}) {
            ${element(f"{ctype}{lanes}", f"{name}_vec")}
        }
        for (; j < width; j++) {
            ${element(wide, ctype)}
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}(gemm_plan p, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *B,
             __global const ${ctype} *C, __global ${ctype} *O, __global ${ctype} *scratch${
             "".join(f", __global const {ctype} *{x}" for x in scalars)})
{
    const long x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    const long nx = get_global_size(0), ny = get_global_size(1), nz = get_global_size(2);
    const long m0 = gemm_share(p.m, ${rows}, y, ny), m1 = gemm_share(p.m, ${rows}, y + 1, ny);
    const long n0 = gemm_share(p.n, ${cols}, x, nx), n1 = gemm_share(p.n, ${cols}, x + 1, nx);
    __global ${ctype} *const packed_a = scratch + p.scratch * ((z * ny + y) * nx + x);
    __global ${ctype} *const packed_b = packed_a + p.m_block * p.k_block;
    ${ctype} tile[${rows * cols}] __attribute__((aligned(64)));
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
    for (long batch = gemm_share(p.batches, 1, z, nz); batch < gemm_share(p.batches, 1, z + 1, nz); batch++) {
        __global const ${ctype} *const a = A + s.a + gemm_start(&p.a, p.shape, batch);
        __global const ${ctype} *const b = B + s.b + gemm_start(&p.b, p.shape, batch);
        __global const ${ctype} *const c = ${"C + s.c + gemm_start(&p.c, p.shape, batch)" if has_c else "C"};
        __global ${ctype} *const o = O + s.o + gemm_start(&p.o, p.shape, batch);
        for (long jc = n0; jc < n1; jc += p.n_block)
        for (long kc = 0; kc < p.k || kc == 0; kc += p.k_block) {  // once at least: k = 0 leaves beta * C
            const long nb = min(p.n_block, n1 - jc), kb = min(p.k_block, p.k - kc);
            ${name}_pack_b(b + kc * p.b.row + jc * p.b.col, p.b.col, p.b.row, nb, kb, packed_b);
            for (long ic = m0; ic < m1; ic += p.m_block) {
                const long mb = min(p.m_block, m1 - ic);
                ${name}_pack_a(a + ic * p.a.row + kc * p.a.col, p.a.row, p.a.col, mb, kb, packed_a);
                for (long j = 0; j < nb; j += ${cols})
                for (long i = 0; i < mb; i += ${rows}) {
                    ${name}_multiply(packed_a + i * kb, packed_b + j * kb, kb, tile);
                    ${name}_store(tile, &p, &s, min(${rows}L, mb - i), min(${cols}L, nb - j), kc == 0,
                                  c${" + (ic + i) * p.c.row + (jc + j) * p.c.col" if has_c else ""},
                                  o + (ic + i) * p.o.row + (jc + j) * p.o.col);
                }
            }
        }
    }
}
