## Rank-one update: o = A + alpha * outer(x, y).
##
## Operands    A and o (m, n), x (m), y (n), any strides; alpha by value, or on the device if the pointer is not null.
## NDRange     dimension 1 is rows, dimension 0 is columns. Schedule cpu: a partition of the rows; vectors along
##             contiguous columns. Schedule simt: work-items loop element by element, so that neighbours stay together.
<%page args="name, ctype, wide, itemsize, lanes, cpu, plan, call"/>
<%include file="/common/partition.mako"/>\
typedef ${ctype}${lanes} ${name}_vec __attribute__((aligned(${itemsize})));

${plan.c_typedef(f"{name}_plan")}
${call.c_typedef(f"{name}_call")}

% if cpu:
__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${ctype}${lanes})))
% endif
__kernel void ${name}(${name}_plan p, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *X,
                      __global const ${ctype} *Y, __global ${ctype} *O, __global const ${ctype} *alpha)
{
    if (alpha)
        s.alpha = alpha[s.alpha_at];
    % if cpu:
    const long m_begin = partition_begin(p.m, 1, get_global_id(1), get_global_size(1));
    const long m_end = partition_begin(p.m, 1, get_global_id(1) + 1, get_global_size(1));
    const int is_contiguous = p.a_col == 1 && p.y_step == 1 && p.o_col == 1;
    % else:
    const long m_begin = get_global_id(1), m_end = p.m;
    % endif
    for (long i = m_begin; i < m_end; i += ${"1" if cpu else "get_global_size(1)"}) {
        const ${wide} x = (${wide})s.alpha * X[s.x + i * p.x_step];
        __global const ${ctype} *a = A + s.a + i * p.a_row;
        __global const ${ctype} *y = Y + s.y;
        __global ${ctype} *o = O + s.o + i * p.o_row;
        % if cpu:
        long j = 0;
        for (; is_contiguous && j + ${lanes} <= p.n; j += ${lanes})
            *(__global ${name}_vec *)(o + j) =
                *(__global const ${name}_vec *)(a + j) + (${ctype})x * *(__global const ${name}_vec *)(y + j);
        for (; j < p.n; j++)
        % else:
        for (long j = get_global_id(0); j < p.n; j += get_global_size(0))
        % endif
            o[j * p.o_col] = a[j * p.a_col] + x * y[j * p.y_step];
    }
}
