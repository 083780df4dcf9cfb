## The second stage of a matrix-vector product whose k was split: add up the parts.
<%page args="name, ctype, wide, has_alpha, has_y, cpu"/>
<%include file="/gemv/store.mako" args="name=name, ctype=ctype, wide=wide, has_alpha=has_alpha, has_y=has_y"/>
<%
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_y else [])
%>
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))" if cpu else ""}
void ${name}(gemv_plan p, ${name}_call s, __global const ${ctype} *Y, __global ${ctype} *O,
                      __global const ${ctype} *partial${"".join(f", __global const {ctype} *{v}" for v in scalars)})
{
    % for v in scalars:
    if (${v})
        s.${v} = ${v}[s.${v}_at];
    % endfor
    for (long i = get_global_id(0); i < p.m; i += get_global_size(0)) {
        ${wide} sum = 0;
        for (long part = 0; part < p.splits; part++)
            sum += partial[part * p.m + i];
        ${name}_store(&p, &s, i, sum, Y, O);
    }
}
