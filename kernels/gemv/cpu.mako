## Matrix-vector product, schedule cpu: a work-item takes a block of rows and a part of k. `_row` forms dot products along k
## (rows contiguous), `_col` adds up columns (columns contiguous); both take any strides, then element by element.
<%page args="name, ctype, wide, itemsize, lanes, block, has_alpha, has_y"/>
<%include file="/gemv/store.mako" args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y"/>
<%
    V = f"{ctype}{lanes}"
    fold = {16: "(v.s0123 + v.s4567) + (v.s89ab + v.scdef)", 8: "v.s0123 + v.s4567"}.get(lanes, "v")
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_y else [])
%>
typedef ${V} ${name}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${name}_vec4 __attribute__((aligned(${itemsize})));

<%def name="signature(suffix)">
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}_${suffix}(gemv_plan p, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *X,
                       __global const ${ctype} *Y, __global ${ctype} *O, __global ${ctype} *partial,
                       __global ${ctype} *scratch${"".join(f", __global const {ctype} *{v}" for v in scalars)})
{
    const long part = get_global_id(1);
    const long m0 = gemv_share(p.m, 4, get_global_id(0), get_global_size(0));
    const long m1 = gemv_share(p.m, 4, get_global_id(0) + 1, get_global_size(0));
    const long k0 = gemv_share(p.k, ${lanes}, part, p.splits), k1 = gemv_share(p.k, ${lanes}, part + 1, p.splits);
    __global const ${ctype} *const a = A + s.a + p.a_start;
    __global const ${ctype} *x = X + s.x + p.x_start + k0 * p.x_step;
    % for v in scalars:
    if (${v})
        s.${v} = ${v}[s.${v}_at];
    % endfor
</%def>
<%def name="put(i, value)">
            if (p.splits > 1)
                partial[part * p.m + ${i}] = ${value};
            else
                ${name}_store(&p, &s, ${i}, ${value}, Y, O);
</%def>

// Sums of `rows` rows along k, `unroll` vectors at a time
<%def name="dots(rows, unroll)">
static void ${name}_dots${rows}(__global const ${ctype} *a, long row, long col, __global const ${ctype} *x, long depth,
                                ${ctype} *sums)
{
    % for r in range(rows):
    ${wide} t${r} = 0;
    __global const ${ctype} *a${r} = a + ${r} * row;
    % endfor
    long k = 0;
    if (col == 1) {
        % for r in range(rows):
        ${V} ${", ".join(f"s{r}_{u} = 0" for u in range(unroll))};
        % endfor
        for (; k + ${unroll * lanes} <= depth; k += ${unroll * lanes}) {
            % for u in range(unroll):
            { const ${V} v = *(__global const ${name}_vec *)(x + k + ${u * lanes});
              ${" ".join(f"s{r}_{u} += *(__global const {name}_vec *)(a{r} + k + {u * lanes}) * v;" for r in range(rows))} }
            % endfor
        }
        for (; k + ${lanes} <= depth; k += ${lanes}) {
            const ${V} v = *(__global const ${name}_vec *)(x + k);
            ${" ".join(f"s{r}_0 += *(__global const {name}_vec *)(a{r} + k) * v;" for r in range(rows))}
        }
        ${ctype}4 ${", ".join(f"q{r} = 0" for r in range(rows))};
        for (; k + 4 <= depth; k += 4) {
            const ${ctype}4 v = *(__global const ${name}_vec4 *)(x + k);
            ${" ".join(f"q{r} += *(__global const {name}_vec4 *)(a{r} + k) * v;" for r in range(rows))}
        }
        % for r in range(rows):
        { const ${V} v = ${" + ".join(f"s{r}_{u}" for u in range(unroll))};
          q${r} += ${fold}; }
        % endfor
        % if rows == 4:
        ## Four sums at once take fewer shuffles than one by one, but Intel's compiler has a better way for doubles.
        #if ${itemsize} < 8 || defined(POCL_DEVICE_ADDRESS_BITS)
        const ${ctype}4 u = (${ctype}4)(q0.even, q1.even) + (${ctype}4)(q0.odd, q1.odd), v = (${ctype}4)(q2.even, q3.even) + (${ctype}4)(q2.odd, q3.odd);
        const ${ctype}4 t = (${ctype}4)(u.even, v.even) + (${ctype}4)(u.odd, v.odd);
        ${" ".join(f"t{r} = t.s{r};" for r in range(rows))}
        #else
        % endif
        ${" ".join(f"t{r} = (q{r}.s0 + q{r}.s1) + (q{r}.s2 + q{r}.s3);" for r in range(rows))}
        % if rows == 4:
        #endif
        % endif
    }
    for (; k < depth; k++) {
        ${" ".join(f"t{r} += ({wide})a{r}[k * col] * x[k];" for r in range(rows))}
    }
    ${" ".join(f"sums[{r}] = t{r};" for r in range(rows))}
}
</%def>
${dots(4, 2)}
${dots(1, 8)}

${signature("row")}
    ${ctype} sums[4];
    if (p.packed) {
        __global ${ctype} *copy = scratch + p.packed * (part * get_global_size(0) + get_global_id(0));
        for (long k = 0; k < k1 - k0; k++)
            copy[k] = x[k * p.x_step];
        x = copy;
    }
    long i = m0;
    for (; i + 4 <= m1; i += 4) {
        ${name}_dots4(a + i * p.a_row + k0 * p.a_col, p.a_row, p.a_col, x, k1 - k0, sums);
        for (int r = 0; r < 4; r++) {
            ${put("i + r", "sums[r]")}
        }
    }
    for (; i < m1; i++) {
        ${name}_dots1(a + i * p.a_row + k0 * p.a_col, p.a_row, p.a_col, x, k1 - k0, sums);
        ${put("i", "sums[0]")}
    }
}

<%def name="columns(count)">
// sums += the next ${count} columns, times x
static void ${name}_columns${count}(__global const ${ctype} *a, long row, long col, __global const ${ctype} *x, long step,
                                    long height, ${ctype} *sums)
{
    % for c in range(count):
    const ${wide} x${c} = x[${c} * step];
    __global const ${ctype} *a${c} = a + ${c} * col;
    % endfor
    long i = 0;
    % for width, vec in ((lanes, "vec"), (4, "vec4")):
    for (; row == 1 && i + ${width} <= height; i += ${width})
        *(${name}_${vec} *)(sums + i) += ${" + ".join(f"*(__global const {name}_{vec} *)(a{c} + i) * ({ctype})x{c}" for c in range(count))};
    % endfor
    for (; i < height; i++)
        sums[i] += ${" + ".join(f"a{c}[i * row] * x{c}" for c in range(count))};
}
</%def>
${columns(8)}
${columns(1)}

${signature("col")}
    ${ctype} sums[${block}] __attribute__((aligned(64)));
    for (long i0 = m0; i0 < m1; i0 += ${block}) {
        const long height = min(${block}L, m1 - i0);
        for (long i = 0; i < height; i++)
            sums[i] = 0;
        long k = k0;
        for (; k + 8 <= k1; k += 8)
            ${name}_columns8(a + i0 * p.a_row + k * p.a_col, p.a_row, p.a_col, x + (k - k0) * p.x_step, p.x_step, height, sums);
        for (; k < k1; k++)
            ${name}_columns1(a + i0 * p.a_row + k * p.a_col, p.a_row, p.a_col, x + (k - k0) * p.x_step, p.x_step, height, sums);
        for (long i = 0; i < height; i++) {
            ${put("i0 + i", "sums[i]")}
        }
    }
}
