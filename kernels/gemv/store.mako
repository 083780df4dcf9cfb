## The end of a matrix-vector product: alpha and beta, shared by the kernels of both schedules.
<%page args="name, ctype, wide, has_alpha, has_y"/>
typedef struct {  // what may change from call to call: offsets, and scalars that are given by value
    long a, x, y, o, alpha_at, beta_at;
    ${ctype} alpha, beta;
} ${name}_call;

static void ${name}_store(const gemv_plan *p, const ${name}_call *s, long i, ${wide} v, __global const ${ctype} *Y,
                          __global ${ctype} *O)
{
    % if has_alpha:
    v = s->alpha * v;
    % endif
    % if has_y:
    if (s->beta != 0)  // beta = 0 must not let a NaN of y through
        v += (${wide})s->beta * Y[s->y + p->y_start + i * p->y_step];
    % endif
    O[s->o + p->o_start + i * p->o_step] = v;
}
