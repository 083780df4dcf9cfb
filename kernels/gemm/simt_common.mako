## Parts of the matrix products of schedule simt: arguments, the loop over tiles, the main loop's multiply-adds, stores.
## The defs use the arguments of the template that calls them.
<%namespace name="gemm_epilogue" file="/gemm/epilogue.mako"/>
<%namespace name="epilogue" file="/common/epilogue.mako"/>
<%namespace name="arguments" file="/common/device_scalars.mako"/>
<%!
    def scalars(has_alpha, has_c):
        return ["alpha"] * has_alpha + ["beta"] * has_c
%>
<%def name="declarations()">
${call.c_typedef(f"{name}_call", "what may change from call to call: offsets, and scalars that are given by value")}
% if outputs:
${gemm_epilogue.declarations(1)}
static void ${name}_store(${wide} i0, const ${name}_matrices *at, long i, long j, long to)
{
    ${epilogue.pointers("i", "j", "to")}
    ${epilogue.apply(1)}
}
% endif

// alpha * sum + beta * C[i, j]
static ${wide} ${name}_scaled(
    ${wide} sum, const gemm_plan *p, const ${name}_call *s, long i, long j, __global const ${ctype} *c)
{
    % if has_alpha:
    sum *= s->alpha;
    % endif
    % if has_c:
    if (s->beta != 0)  // beta = 0 must not let a NaN of C through
        sum += (${wide})s->beta * c[i * p->c.row + j * p->c.col];
    % endif
    return sum;
}
</%def>

## Arguments of a kernel.
<%def name="parameters()">gemm_plan p${f", {name}_operands operands" if outputs else ""}, ${name}_call s,
    __global const ${ctype} *A, __global const ${ctype} *B, __global const ${ctype} *C, __global ${ctype} *O,
    __global ${ctype} *workspace${arguments.parameters(ctype, scalars(has_alpha, has_c))}${
    epilogue.parameters() if outputs else ""}</%def>

<%def name="read_scalars()">
    ${arguments.load(scalars(has_alpha, has_c))}
</%def>

## Opens the loop over tiles of all products, or of all parts of a split product. The tile is computed from the same
## number, though it stays the same: else all that depends on it is hoisted out of the loop, and held in registers that
## the sums need.
<%def name="for_each_tile(step, rows, columns)">
    const ${index} tiles = get_num_groups(0), tiles_per_row = (p.n + ${columns - 1}) / ${columns};
    const ${index} units = tiles * p.batch_count * p.split_k, next_unit = tiles * get_num_groups(1);
    for (${index} unit = get_group_id(0) + tiles * get_group_id(1); unit < units; unit += next_unit) {
        const ${index} part = unit / tiles;
        const ${index} tile = unit % tiles, m0 = tile / tiles_per_row * ${rows}, n0 = tile % tiles_per_row * ${columns};
        const ${index} height = p.m - m0, width = p.n - n0;
        const ${index} batch = p.split_k > 1 ? 0 : part;
        const ${index} k_begin = p.split_k > 1 ? partition_begin(p.k, ${step}, part, p.split_k) : 0;
        const ${index} k_end = p.split_k > 1 ? partition_begin(p.k, ${step}, part + 1, p.split_k) : p.k;
</%def>

## The places where the matrices of C and of the output begin.
<%def name="output_pointers()">
        % if outputs:
        ${gemm_epilogue.matrices("batch")}
        % else:
        __global ${ctype} *o = O + s.o + gemm_start(&p.o, p.batch_shape, batch);
        % endif
        % if has_c:
        __global const ${ctype} *c = C + s.c + gemm_start(&p.c, p.batch_shape, batch);
        % else:
        __global const ${ctype} *c = C;
        % endif
</%def>

## Stores a sum at row i and column j of the product, or as a partial sum.
<%def name="store(sum, i, j)">
<%
    scaled = f"{name}_scaled({sum}, &p, &s, {i}, {j}, c)"
    to = f"{i} * p.o.row + {j} * p.o.col"
%>
                if (p.split_k > 1)
                    workspace[(part * p.m + ${i}) * p.n + ${j}] = ${sum};
                else
                    % if outputs:
                    ${name}_store(${scaled}, at, ${i}, ${j}, ${to});
                    % else:
                    o[${to}] = ${scaled};
                    % endif
</%def>

## Second launch of a split-K product: add up the partial sums (split_k, m, n), in order.
<%def name="finish()">
% if not outputs:

__kernel void ${name}_finish(gemm_plan p, ${name}_call s, __global const ${ctype} *C, __global ${ctype} *O,
                             __global const ${ctype} *workspace${
                             arguments.parameters(ctype, scalars(has_alpha, has_c))})
{
    ${read_scalars()}
    __global const ${ctype} *const c = ${"C + s.c + p.c.start" if has_c else "C"};
    const long size = p.m * p.n;
    for (long n = get_global_id(0); n < size; n += get_global_size(0)) {
        ${wide} sum = 0;
        #pragma unroll 16  // loads in flight
        for (int part = 0; part < (int)p.split_k; part++)
            sum += workspace[part * size + n];
        const long i = n / p.n, j = n % p.n;
        O[s.o + p.o.start + i * p.o.row + j * p.o.col] = ${name}_scaled(sum, &p, &s, i, j, c);
    }
}
% endif
</%def>
