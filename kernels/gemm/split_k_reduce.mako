## The second stage of a matrix product whose k was split: add up the parts.
<%page args="name, store, ctype, cols, scalars, has_c"/>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_finish(gemm_plan p, ${store}_call s, __global const ${ctype} *C, __global ${ctype} *O,
                    __global const ${ctype} *scratch${"".join(f", __global const {ctype} *{x}" for x in scalars)})
{
    const long from = gemm_share(p.m, 1, get_global_id(0), get_global_size(0));
    const long to = gemm_share(p.m, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${ctype} *const o = O + s.o + p.o.start;
    ${ctype} space[${cols}] __attribute__((aligned(64)));
    __global ${ctype} *const tile = private_as_global(${ctype}, space);
    % for x in scalars:
    if (${x})
        s.${x} = ${x}[s.${x}_at];
    % endfor
    for (long i = from; i < to; i++)
    for (long j = 0; j < p.n; j += ${cols}) {
        const long width = min(${cols}L, p.n - j);
        __global const ${ctype} *const c = ${"C + s.c + p.c.start + i * p.c.row + j * p.c.col" if has_c else "C"};
        for (long k = 0; k < ${cols}; k++)
            tile[k] = 0;
        for (long part = 0; part < p.splits; part++) {
            __global const ${ctype} *const sums = scratch + p.partial + (part * p.m + i) * p.n + j;
            for (long k = 0; k < width; k++)
                tile[k] += sums[k];
        }
        ${store}_put(tile, &p, &s, 1, width, 1, c, o + i * p.o.row + j * p.o.col);
    }
}
