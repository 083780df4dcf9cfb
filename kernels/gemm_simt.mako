## Matrix product, schedule simt: a work-group computes a square tile of the output, each work-item 4 x 4 elements of it that
## lie a group's width apart (so that neighbours write neighbours). A and B pass through local memory, any strides.
<%page args="name, ctype, wide, index, group, step, has_alpha, has_c, inputs=(), repeated=(), outputs=(), statements=''"/>
<%namespace name="epilogue" file="gemm_epilogue.mako"/>
<%namespace name="each" file="epilogue.mako"/>
<%
    tile = 4 * group
    R = range(4)
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_c else [])
%>
typedef struct {  // what may change from call to call: offsets, and scalars that are given by value
    long a, b, c, o, alpha_at, beta_at;
    ${ctype} alpha, beta;
} ${name}_call;
% if outputs:
${epilogue.declarations(1)}
static void ${name}_put(${wide} i0, const ${name}_matrices *at, long i, long j, long to)
{
    ${each.pointers("i", "j", "to")}
    ${each.apply(1)}
}
% endif

<%def name="load(to, source, across, along, count)">
        // Neighbouring work-items read neighbouring elements, whichever way these lie.
        for (int e = item; e < ${tile * step}; e += ${group * group}) {
            const int i = ${along} == 1 ? e / ${step} : e % ${tile}, k = ${along} == 1 ? e % ${step} : e / ${tile};
            ${to}[k][i] = i < ${count} && k0 + k < p.k ? ${source}[i * ${across} + k * ${along}] : 0;
        }
        ${source} += ${step} * (long)${along};
</%def>
__kernel __attribute__((reqd_work_group_size(${group}, ${group}, 1)))
void ${name}(gemm_plan p${f', {name}_further further' if outputs else ''}, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *B,
             __global const ${ctype} *C, __global ${ctype} *O, __global ${ctype} *scratch${
             "".join(f", __global const {ctype} *{x}" for x in scalars)}${each.parameters() if outputs else ""})
{
    __local ${ctype} tile_a[${step}][${tile + 1}], tile_b[${step}][${tile + 1}];
    const int tx = get_local_id(0), ty = get_local_id(1), item = ty * ${group} + tx;
    const long across = (p.n + ${tile - 1}) / ${tile};
    const long m0 = get_group_id(0) / across * ${tile}, n0 = get_group_id(0) % across * ${tile};
    const long height = p.m - m0, width = p.n - n0;
    const ${index} a_row = p.a.row, a_col = p.a.col, b_row = p.b.row, b_col = p.b.col;
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
    for (long batch = get_group_id(1); batch < p.batches; batch += get_num_groups(1)) {
        __global const ${ctype} *a = A + s.a + gemm_start(&p.a, p.shape, batch) + m0 * p.a.row;
        __global const ${ctype} *b = B + s.b + gemm_start(&p.b, p.shape, batch) + n0 * p.b.col;
        % for i in R:
        ${wide} ${", ".join(f"c{i}_{j} = 0" for j in R)};
        % endfor
        for (long k0 = 0; k0 < p.k; k0 += ${step}) {
            ${load("tile_a", "a", "a_row", "a_col", "height")}
            ${load("tile_b", "b", "b_col", "b_row", "width")}
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int k = 0; k < ${step}; k++) {
                const ${wide} ${", ".join(f"b{j} = tile_b[k][tx + {j * group}]" for j in R)};
                % for i in R:
                { const ${wide} x = tile_a[k][ty + ${i * group}]; ${" ".join(f"c{i}_{j} += x * b{j};" for j in R)} }
                % endfor
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        % if outputs:
        ${epilogue.place("batch")}
        % else:
        __global ${ctype} *o = O + s.o + gemm_start(&p.o, p.shape, batch) + m0 * p.o.row + n0 * p.o.col;
        % endif
        % if has_c:
        __global const ${ctype} *c = C + s.c + gemm_start(&p.c, p.shape, batch) + m0 * p.c.row + n0 * p.c.col;
        % endif
        % for i in R:
        % for j in R:
        {
            const long i = ty + ${i * group}, j = tx + ${j * group};
            if (i < height && j < width) {
                ${wide} i0 = ${"s.alpha * " if has_alpha else ""}c${i}_${j};
                % if has_c:
                if (s.beta != 0)  // beta = 0 must not let a NaN of C through
                    i0 += (${wide})s.beta * c[i * p.c.row + j * p.c.col];
                % endif
                % if outputs:
                ${name}_put(i0, at, m0 + i, n0 + j, (m0 + i) * p.o.row + (n0 + j) * p.o.col);
                % else:
                o[i * p.o.row + j * p.o.col] = i0;
                % endif
            }
        }
        % endfor
        % endfor
    }
}
