## Store of a matrix-vector product: o[i] = alpha * sum + beta * y[i], and the struct of offsets and scalars.
<%page args="name, ctype, wide, has_alpha, has_y, call"/>
${call.c_typedef(f"{name}_call", "what may change from call to call: offsets, and scalars that are given by value")}

static void ${name}_store(const gemv_plan *p, const ${name}_call *s, long i, ${wide} sum, __global const ${ctype} *Y,
                          __global ${ctype} *O)
{
    % if has_alpha:
    sum = s->alpha * sum;
    % endif
    % if has_y:
    if (s->beta != 0)  // beta = 0 must not let a NaN of y through
        sum += (${wide})s->beta * Y[s->y + p->y_start + i * p->y_step];
    % endif
    O[s->o + p->o_start + i * p->o_step] = sum;
}
