## Second launch of a split-K matrix product, schedule cpu: O = alpha * (sum of the partial sums, in order) + beta * C.
##
## Operands    workspace: partial sums (split_k, m, n) from p.split_k_start on. C and O: any strides.
## NDRange     dimension 0 is an even partition of the rows.
<%page args="name, store, ctype, nr, scalars, has_c"/>
<%namespace name="arguments" file="/common/device_scalars.mako"/>
__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(int4)))
void ${name}_finish(gemm_plan p, ${store}_call s, __global const ${ctype} *C, __global ${ctype} *O,
                    __global const ${ctype} *workspace${arguments.parameters(ctype, scalars)})
{
    const long m_begin = partition_begin(p.m, 1, get_global_id(0), get_global_size(0));
    const long m_end = partition_begin(p.m, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${ctype} *const o = O + s.o + p.o.start;
    ${ctype} space[${nr}] __attribute__((aligned(64)));
    __global ${ctype} *const tile = private_as_global(${ctype}, space);
    ${arguments.load(scalars)}
    for (long i = m_begin; i < m_end; i++)
        for (long j = 0; j < p.n; j += ${nr}) {
            const long width = min(${nr}L, p.n - j);
            __global const ${ctype} *const c = ${"C + s.c + p.c.start + i * p.c.row + j * p.c.col" if has_c else "C"};
            for (long l = 0; l < ${nr}; l++)
                tile[l] = 0;
            for (long part = 0; part < p.split_k; part++) {
                __global const ${ctype} *const partial = workspace + p.split_k_start + (part * p.m + i) * p.n + j;
                for (long l = 0; l < width; l++)
                    tile[l] += partial[l];
            }
            ${store}_tile(tile, &p, &s, 1, width, 1, c, o + i * p.o.row + j * p.o.col);
        }
}
