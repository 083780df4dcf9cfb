## The second stage of a matrix product whose k was split: add up the parts.
<%page args="name, ctype, wide, has_alpha, has_c"/>
<%
    scalars = (["alpha"] if has_alpha else []) + (["beta"] if has_c else [])
%>
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void ${name}_finish(gemm_plan p, ${name}_call s, __global const ${ctype} *C, __global ${ctype} *O,
                    __global const ${ctype} *scratch${"".join(f", __global const {ctype} *{x}" for x in scalars)})
{
    const long first = gemm_share(p.m, 1, get_global_id(0), get_global_size(0));
    const long last = gemm_share(p.m, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${ctype} *const o = O + s.o + p.o.start;
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
    for (long i = first; i < last; i++)
    for (long j = 0; j < p.n; j++) {
        ${wide} v = 0;
        for (long part = 0; part < p.splits; part++)
            v += scratch[p.partial + (part * p.m + i) * p.n + j];
        % if has_alpha:
        v = s.alpha * v;
        % endif
        % if has_c:
        if (s.beta != 0)  // beta = 0 must not let a NaN of C through
            v += (${wide})s.beta * C[s.c + p.c.start + i * p.c.row + j * p.c.col];
        % endif
        o[i * p.o.row + j * p.o.col] = v;
    }
}
