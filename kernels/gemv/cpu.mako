## Matrix-vector product, schedule cpu: o = alpha * A @ x + beta * y.
##
## Algorithm   <name>_row, the dot variant, for contiguous rows: dot products along k, four rows at a time. <name>_col,
##             the axpy variant, for contiguous columns: adds up eight columns at a time.
## Operands    A (m, k), x (k), y and o (m), any strides; plan.mako. What is not contiguous is computed element by
##             element.
## Tiling      row: 4 rows x 2 vectors of `lanes`; col: blocks of `block` rows, whose sums are in private memory.
## NDRange     dimension 0 is a partition of the rows, dimension 1 is the part of k.
## Workspace   For each work-item a copy of x, if x is not contiguous (row); partial (split_k, m), if k is split.
<%page args="name, ctype, wide, itemsize, lanes, block, has_alpha, has_y, call"/>
<%namespace name="common" file="/gemv/common.mako"/>
<%include file="/gemv/store.mako"
          args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y, call=call"/>
<%
    vector = f"{ctype}{lanes}"
    reduce_to_4 = {16: "(v.s0123 + v.s4567) + (v.s89ab + v.scdef)", 8: "v.s0123 + v.s4567"}.get(lanes, "v")
%>
typedef ${vector} ${name}_vec __attribute__((aligned(${itemsize})));
typedef ${ctype}4 ${name}_vec4 __attribute__((aligned(${itemsize})));

<%def name="begin(variant)">
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
void ${name}_${variant}(${common.parameters()})
{
    const long part = get_global_id(1);
    const long m_begin = partition_begin(p.m, 4, get_global_id(0), get_global_size(0));
    const long m_end = partition_begin(p.m, 4, get_global_id(0) + 1, get_global_size(0));
    const long k_begin = partition_begin(p.k, ${lanes}, part, p.split_k);
    const long k_end = partition_begin(p.k, ${lanes}, part + 1, p.split_k);
    __global const ${ctype} *const a = A + s.a + p.a_start;
    __global const ${ctype} *x = X + s.x + p.x_start + k_begin * p.x_step;
    ${common.read_scalars()}
</%def>

// Dot products of `rows` rows with a contiguous x, `unroll` vectors at a time.
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
        ${vector} ${", ".join(f"s{r}_{u} = 0" for u in range(unroll))};
        % endfor
        for (; k + ${unroll * lanes} <= depth; k += ${unroll * lanes}) {
            % for u in range(unroll):
            const ${vector} x${u} = *(__global const ${name}_vec *)(x + k + ${u * lanes});
            % for r in range(rows):
            s${r}_${u} += *(__global const ${name}_vec *)(a${r} + k + ${u * lanes}) * x${u};
            % endfor
            % endfor
        }
        for (; k + ${lanes} <= depth; k += ${lanes}) {
            const ${vector} x0 = *(__global const ${name}_vec *)(x + k);
            % for r in range(rows):
            s${r}_0 += *(__global const ${name}_vec *)(a${r} + k) * x0;
            % endfor
        }
        % for r in range(rows):
        ${ctype}4 q${r} = 0;
        % endfor
        for (; k + 4 <= depth; k += 4) {
            const ${ctype}4 x0 = *(__global const ${name}_vec4 *)(x + k);
            % for r in range(rows):
            q${r} += *(__global const ${name}_vec4 *)(a${r} + k) * x0;
            % endfor
        }
        % for r in range(rows):
        {
            const ${vector} v = ${" + ".join(f"s{r}_{u}" for u in range(unroll))};
            q${r} += ${reduce_to_4};
        }
        % endfor
        % if rows == 4:
        ## Four sums at once take fewer shuffles than one by one, but Intel's compiler has a better way for doubles.
        #if ${itemsize} < 8 || defined(POCL_DEVICE_ADDRESS_BITS)
        const ${ctype}4 q01 = (${ctype}4)(q0.even, q1.even) + (${ctype}4)(q0.odd, q1.odd);
        const ${ctype}4 q23 = (${ctype}4)(q2.even, q3.even) + (${ctype}4)(q2.odd, q3.odd);
        const ${ctype}4 t = (${ctype}4)(q01.even, q23.even) + (${ctype}4)(q01.odd, q23.odd);
        % for r in range(rows):
        t${r} = t.s${r};
        % endfor
        #else
        % endif
        % for r in range(rows):
        t${r} = (q${r}.s0 + q${r}.s1) + (q${r}.s2 + q${r}.s3);
        % endfor
        % if rows == 4:
        #endif
        % endif
    }
    for (; k < depth; k++) {
        % for r in range(rows):
        t${r} += (${wide})a${r}[k * col] * x[k];
        % endfor
    }
    % for r in range(rows):
    sums[${r}] = t${r};
    % endfor
}
</%def>
${dots(4, 2)}
${dots(1, 8)}

${begin("row")}
    ${ctype} sums[4];
    if (p.packed_x_size) {
        __global ${ctype} *packed = workspace + p.packed_x_size * (part * get_global_size(0) + get_global_id(0));
        for (long k = 0; k < k_end - k_begin; k++)
            packed[k] = x[k * p.x_step];
        x = packed;
    }
    long i = m_begin;
    for (; i + 4 <= m_end; i += 4) {
        ${name}_dots4(a + i * p.a_row + k_begin * p.a_col, p.a_row, p.a_col, x, k_end - k_begin, sums);
        for (int r = 0; r < 4; r++) {
            ${common.store("i + r", "sums[r]")}
        }
    }
    for (; i < m_end; i++) {
        ${name}_dots1(a + i * p.a_row + k_begin * p.a_col, p.a_row, p.a_col, x, k_end - k_begin, sums);
        ${common.store("i", "sums[0]")}
    }
}

<%def name="columns(count)">
// sums += the next ${count} columns, times x.
static void ${name}_columns${count}(__global const ${ctype} *a, long row, long col, __global const ${ctype} *x,
                                    long step, long height, ${ctype} *sums)
{
    % for c in range(count):
    const ${wide} x${c} = x[${c} * step];
    __global const ${ctype} *a${c} = a + ${c} * col;
    % endfor
    long i = 0;
    % for width, vec in ((lanes, "vec"), (4, "vec4")):
<%  products = [f"*(__global const {name}_{vec} *)(a{c} + i) * ({ctype})x{c}" for c in range(count)] %>\
    for (; row == 1 && i + ${width} <= height; i += ${width})
        *(${name}_${vec} *)(sums + i) +=
            ${"\n            + ".join(products)};
    % endfor
    for (; i < height; i++)
        sums[i] += ${" + ".join(f"a{c}[i * row] * x{c}" for c in range(count))};
}
</%def>
${columns(8)}
${columns(1)}

<%def name="add_columns(count)">
            ${name}_columns${count}(a + m0 * p.a_row + k * p.a_col, p.a_row, p.a_col, x + (k - k_begin) * p.x_step,
                                    p.x_step, height, sums);
</%def>
${begin("col")}
    ${ctype} sums[${block}] __attribute__((aligned(64)));
    for (long m0 = m_begin; m0 < m_end; m0 += ${block}) {
        const long height = min(${block}L, m_end - m0);
        for (long i = 0; i < height; i++)
            sums[i] = 0;
        long k = k_begin;
        for (; k + 8 <= k_end; k += 8)
            ${add_columns(8)}
        for (; k < k_end; k++)
            ${add_columns(1)}
        for (long i = 0; i < height; i++) {
            ${common.store("m0 + i", "sums[i]")}
        }
    }
}
