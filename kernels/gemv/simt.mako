## Matrix-vector product, schedule simt: `_row` gives each row to a work-group that reduces in local memory (rows
## contiguous), `_col` gives each row to a work-item (columns contiguous, or short rows). Dimension 1 is the part of k.
<%page args="name, ctype, wide, group, has_alpha, has_y"/>
<%include file="/gemv/store.mako" args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y"/>
<%
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_y else [])
%>
<%def name="signature(suffix)">
__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}_${suffix}(gemv_plan p, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *X,
                       __global const ${ctype} *Y, __global ${ctype} *O, __global ${ctype} *partial,
                       __global ${ctype} *scratch${"".join(f", __global const {ctype} *{v}" for v in scalars)})
{
    const long part = get_group_id(1);
    const long k0 = gemv_share(p.k, ${group}, part, p.splits), k1 = gemv_share(p.k, ${group}, part + 1, p.splits);
    __global const ${ctype} *const a = A + s.a + p.a_start;
    __global const ${ctype} *const x = X + s.x + p.x_start;
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
${signature("row")}
    __local ${ctype} sums[${group}];
    const int item = get_local_id(0);
    for (long i = get_group_id(0); i < p.m; i += get_num_groups(0)) {
        ${wide} sum = 0;
        for (long k = k0 + item; k < k1; k += ${group})
            sum += (${wide})a[i * p.a_row + k * p.a_col] * x[k * p.x_step];
        sums[item] = sum;
        for (int reach = ${group // 2}; reach > 0; reach /= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < reach)
                sums[item] += sums[item + reach];
        }
        if (item == 0) {
            ${put("i", "sums[0]")}
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

${signature("col")}
    for (long i = get_global_id(0); i < p.m; i += get_global_size(0)) {
        ${wide} sum = 0;
        for (long k = k0; k < k1; k++)
            sum += (${wide})a[i * p.a_row + k * p.a_col] * x[k * p.x_step];
        ${put("i", "sum")}
    }
}
