## What the matrix products of schedule simt share. The defs see the arguments of the template that calls them.
<%namespace name="epilogue" file="/gemm/epilogue.mako"/>
<%namespace name="each" file="/common/epilogue.mako"/>
<%!
    def scalars(has_alpha, has_c):
        return ["alpha"] * has_alpha + ["beta"] * has_c
%>
<%def name="declarations()">
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

// alpha times a sum of all k, and beta times an element of C.
static ${wide} ${name}_scaled(${wide} sum, const gemm_plan *p, const ${name}_call *s, long i, long j, __global const ${ctype} *c)
{
    ${"sum *= s->alpha;" if has_alpha else ""}
    % if has_c:
    if (s->beta != 0)  // beta = 0 must not let a NaN of C through
        sum += (${wide})s->beta * c[i * p->c.row + j * p->c.col];
    % endif
    return sum;
}
</%def>

## What a kernel takes.
<%def name="parameters()">gemm_plan p${f", {name}_further further" if outputs else ""}, ${name}_call s, __global const ${ctype} *A, __global const ${ctype} *B,
             __global const ${ctype} *C, __global ${ctype} *O, __global ${ctype} *scratch${
             "".join(f", __global const {ctype} *{x}" for x in scalars(has_alpha, has_c))}${each.parameters() if outputs else ""}</%def>

<%def name="read_scalars()">
    % for x in scalars(has_alpha, has_c):
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
</%def>

## Opens the walk over products, or over the parts of the sums of a single one. The tile is reckoned from the same number, though it
## stays the same: else all that depends on it is worked out before the walk, and held in registers that the sums need.
<%def name="parts(step, rows, columns)">
    const ${index} tiles = get_num_groups(0), across = (p.n + ${columns - 1}) / ${columns};
    const ${index} units = tiles * p.batches * p.splits, next_unit = tiles * get_num_groups(1);
    for (${index} unit = get_group_id(0) + tiles * get_group_id(1); unit < units; unit += next_unit) {
        const ${index} part = unit / tiles;
        const ${index} at_tile = unit % tiles, m0 = at_tile / across * ${rows}, n0 = at_tile % across * ${columns};
        const ${index} height = p.m - m0, width = p.n - n0;
        const ${index} batch = p.splits > 1 ? 0 : part;
        const ${index} k_first = p.splits > 1 ? gemm_share(p.k, ${step}, part, p.splits) : 0;
        const ${index} k_end = p.splits > 1 ? gemm_share(p.k, ${step}, part + 1, p.splits) : p.k;
</%def>

## Where the results of a product begin.
<%def name="results()">
        % if outputs:
        ${epilogue.place("batch")}
        % else:
        __global ${ctype} *o = O + s.o + gemm_start(&p.o, p.shape, batch);
        % endif
        __global const ${ctype} *c = ${"C + s.c + gemm_start(&p.c, p.shape, batch)" if has_c else "C"};
</%def>

## Stores a sum at row i and column j of the product.
<%def name="store(sum, i, j)">
<% scaled, to = f"{name}_scaled({sum}, &p, &s, {i}, {j}, c)", f"{i} * p.o.row + {j} * p.o.col" %>
                if (p.splits > 1)
                    scratch[(part * p.m + ${i}) * p.n + ${j}] = ${sum};
                else
                    ${f"{name}_put({scaled}, at, {i}, {j}, {to})" if outputs else f"o[{to}] = {scaled}"};
</%def>

## The second stage of a product whose k was split: add up the parts, in order.
<%def name="finish()">
% if not outputs:

__kernel void ${name}_finish(gemm_plan p, ${name}_call s, __global const ${ctype} *C, __global ${ctype} *O,
                    __global const ${ctype} *scratch${"".join(f", __global const {ctype} *{x}" for x in scalars(has_alpha, has_c))})
{
    ${read_scalars()}
    const long size = p.m * p.n;
    for (long n = get_global_id(0); n < size; n += get_global_size(0)) {
        ${wide} sum = 0;
        for (long part = 0; part < p.splits; part++)
            sum += scratch[part * size + n];
        const long i = n / p.n, j = n % p.n;
        O[s.o + p.o.start + i * p.o.row + j * p.o.col] = ${name}_scaled(sum, &p, &s, i, j, ${"C + s.c + p.c.start" if has_c else "C"});
    }
}
% endif
</%def>
