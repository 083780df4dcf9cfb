## Arguments and stores of the matrix-vector products of both schedules. The defs use the arguments of the template
## that calls them.
<%namespace name="arguments" file="/common/device_scalars.mako"/>
<%!
    def scalars(has_alpha, has_y):
        return ["alpha"] * has_alpha + ["beta"] * has_y
%>
<%def name="parameters()">gemv_plan p, ${name}_call s, __global const ${ctype} *A,
    __global const ${ctype} *X, __global const ${ctype} *Y, __global ${ctype} *O, __global ${ctype} *partial,
    __global ${ctype} *workspace${arguments.parameters(ctype, scalars(has_alpha, has_y))}</%def>
<%def name="read_scalars()">
    ${arguments.load(scalars(has_alpha, has_y))}
</%def>
## Stores the sum of row i, or of a part of it.
<%def name="store(i, sum)">
            if (p.split_k > 1)
                partial[part * p.m + ${i}] = ${sum};
            else
                ${name}_store(&p, &s, ${i}, ${sum}, Y, O);
</%def>
