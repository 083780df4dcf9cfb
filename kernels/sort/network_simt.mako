## Algorithm   Sorts short rows on GPUs: the network of kernels/sort/network_cpu.mako in local memory.
## Operands    As in kernels/sort/network_cpu.mako.
## NDRange     (groups * group): a work-group sorts g.chunks rows at once with g.chunk work-items each, and takes every
##             so many bundles of rows.
## Workspace   `tile` elements in local memory, a multiple of 32. The elements of every other row of 32 banks are
##             reversed: elements that are two strides of the network apart are then in different banks, too.
## Invariants  The loops over the stages of the network are the same for the whole group: barriers are uniform.
## Reference   As in kernels/sort/network_cpu.mako.
<%page args="name, geometry, key, to_key, from_key, element, indexed, is_128_bit, dims, group, tile, itemsize"/>
<%namespace name="shared" file="/sort/keys.mako"/>
<%
E, R = element, "long" if indexed else key
per_row = min(32, 128 // itemsize)  # elements of a row of banks
%>
${shared.rows(unrolled=True)}
${shared.element()}
static inline int ${name}_greater(const ${E} a, const ${E} b)
{
    return ${"a.x > b.x || (a.x == b.x && a.y > b.y)" if indexed and is_128_bit else "a > b"};
}

// Where element k of the tile is.
static inline int ${name}_at(const int k)
{
    return k ^ (k / ${per_row} % 2 * ${per_row - 1});
}

__kernel __attribute__((reqd_work_group_size(${group}, 1, 1)))
void ${name}(__global const ${key} *restrict input, const long input_at, __global ${R} *restrict output,
    const long output_at, const ${name}_geometry g)
{
    __local ${E} elements[${tile}];
    const int threads_per_row = (int)g.chunk;
    const int rows_per_group = (int)g.chunks;
    const int row_slot = get_local_id(0) / threads_per_row;
    const int item = get_local_id(0) % threads_per_row;
    int largest_power = 1;
    while (2 * largest_power < g.length)
        largest_power *= 2;
    for (long first = get_group_id(0) * (long)rows_per_group; first < g.rows; first += get_num_groups(0)
        * (long)rows_per_group) {
        const int has_row = row_slot < rows_per_group && first + row_slot < g.rows;
        const int n = has_row ? (int)g.length : 0;
        const long row = has_row ? first + row_slot : 0;
        __global const ${key} *x = input + input_at + ${name}_in(&g, row);
        __global ${R} *y = output + output_at + ${name}_out(&g, row);
        const int begin = row_slot * n;
        for (int i = item; i < n; i += threads_per_row) {
            const ${key} k = ${name}_key(x[i * g.in_step]);
            elements[${name}_at(begin + i)] = ${name}_make(k, i);
        }
        for (int p = largest_power; p > 0; p /= 2) {
            int q = 2 * largest_power;
            int r = 0;
            int d = p;
            while (q > p) {  // the same for the whole group, so the barrier is uniform
                barrier(CLK_LOCAL_MEM_FENCE);
                for (int c = item;; c += threads_per_row) {
                    const int i = (c & -p) * 2 + (c & (p - 1)) + r;
                    const int j = i + d;
                    if (j >= n)
                        break;
                    const int at_i = ${name}_at(begin + i);
                    const int at_j = ${name}_at(begin + j);
                    const ${E} a = elements[at_i];
                    const ${E} b = elements[at_j];
                    if (${name}_greater(a, b)) {
                        elements[at_i] = b;
                        elements[at_j] = a;
                    }
                }
                q /= 2;
                d = q - p;
                r = p;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = item; i < n; i += threads_per_row)
            y[i * g.out_step] = ${name}_result(elements[${name}_at(begin + i)]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
