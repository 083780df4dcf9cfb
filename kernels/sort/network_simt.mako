## Short rows on schedule simt: a work-group sorts a row in local memory, or as many as it has work-items for, by the network of
## kernels/sort/network_cpu.mako: g.chunks rows at once with g.chunk work-items each.
<%page args="name, key, to_key, from_key, element, indexed, wide, dims, group, tile"/>
<%namespace name="shared" file="/sort/keys.mako"/>
<% E, R = element, "long" if indexed else key %>
${shared.rows(unrolled=True)}
${shared.element()}
static inline int ${name}_greater(const ${E} a, const ${E} b)
{
    return ${"a.x > b.x || (a.x == b.x && a.y > b.y)" if indexed and wide else "a > b"};
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${key} *restrict input, const long input_at, __global ${R} *restrict output, const long output_at,
             const ${name}_geometry g)
{
    __local ${E} elements[${tile}];
    const int threads = (int)g.chunk, slots = (int)g.chunks, slot = get_local_id(0) / threads, item = get_local_id(0) % threads;
    int top = 1;
    while (2 * top < g.length)
        top *= 2;
    for (long first = get_group_id(0) * (long)slots; first < g.rows; first += get_num_groups(0) * (long)slots) {
        const int has_row = slot < slots && first + slot < g.rows, n = has_row ? (int)g.length : 0;
        const long row = has_row ? first + slot : 0;
        __global const ${key} *x = input + input_at + ${name}_in(&g, row);
        __global ${R} *y = output + output_at + ${name}_out(&g, row);
        __local ${E} *v = elements + slot * n;
        for (int i = item; i < n; i += threads) {
            const ${key} k = ${name}_key(x[i * g.in_step]);
            v[i] = ${name}_make(k, i);
        }
        for (int p = top; p > 0; p /= 2) {
            int q = 2 * top, r = 0, d = p;
            while (q > p) {  // the same for the whole group, so the barrier is uniform
                barrier(CLK_LOCAL_MEM_FENCE);
                for (int c = item;; c += threads) {
                    const int i = (c & -p) * 2 + (c & (p - 1)) + r, j = i + d;
                    if (j >= n)
                        break;
                    const ${E} a = v[i], b = v[j];
                    if (${name}_greater(a, b)) {
                        v[i] = b;
                        v[j] = a;
                    }
                }
                q /= 2;
                d = q - p;
                r = p;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = item; i < n; i += threads)
            y[i * g.out_step] = ${name}_result(v[i]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
