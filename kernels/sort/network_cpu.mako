## Algorithm   Sorts short rows on CPUs: as many rows as a vector has lanes are sorted side by side by one network.
## Operands    input, output: rows of `length` elements, in_step and out_step apart; outer dimensions as in `geometry`.
## NDRange     (work-items): each takes a contiguous range of the tasks; a task is a bundle of `lanes` rows.
## Workspace   scratch: `length` vectors of elements (two words each if they have 128 bits) for each work-item.
## Invariants  Lanes without a row repeat the last one, and are not stored.
## Reference   Batcher's merge exchange for any length: D. E. Knuth, The Art of Computer Programming 3, algorithm
##             5.2.2M.
<%page args="name, geometry, key, to_key, from_key, element, indexed, is_128_bit, dims, lanes"/>
<%include file="/common/partition.mako"/>\
<%namespace name="shared" file="/sort/keys.mako"/>
<%
    E = "ulong" if indexed else key
    V, R, words = f"{E}{lanes}", "long" if indexed else key, 2 if indexed and is_128_bit else 1
%>
${shared.rows()}
${shared.element()}
static inline void ${name}_exchange(__global ${V} *a, __global ${V} *b)
{
    const ${V} x = a[0];
    const ${V} y = b[0];
    % if words == 2:
    const ${V} i = a[1];
    const ${V} j = b[1];
    const long${lanes} swap = (x > y) | ((x == y) & (i > j));
    a[0] = swap ? y : x;
    b[0] = swap ? x : y;
    a[1] = swap ? j : i;
    b[1] = swap ? i : j;
    % else:
    a[0] = x < y ? x : y;
    b[0] = x < y ? y : x;
    % endif
}

static void ${name}_sort(__global ${V} *v, const long n)
{
    long largest_power = 1;
    while (2 * largest_power < n)
        largest_power *= 2;
    for (long p = largest_power; p > 0; p /= 2) {
        long q = largest_power;
        long r = 0;
        for (long d = p; d > 0; d = q - p, q /= 2, r = p) {
            const long last = n - d;
            if (p == 1)
                for (long i = r; i < last; i += 2)
                    ${name}_exchange(v + ${words} * i, v + ${words} * (i + d));
            else
                for (long start = r; start < last; start += 2 * p) {
                    const long end = min(start + p, last);
                    for (long i = start; i < end; ++i)
                        ${name}_exchange(v + ${words} * i, v + ${words} * (i + d));
                }
            if (q == p)
                break;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(${V})))
void ${name}(__global const ${key} *restrict input, const long input_at, __global ${R} *restrict output,
    const long output_at, __global ${V} *scratch, const ${name}_geometry g)
{
    const long n = g.length;
    const long tasks = (g.rows + ${lanes - 1}) / ${lanes};
    const long task_end = partition_begin(tasks, 1, get_global_id(0) + 1, get_global_size(0));
    __global ${V} *v = scratch + get_global_id(0) * n * ${words};
    __global ${E} *e = (__global ${E} *)v;
    for (long task = partition_begin(tasks, 1, get_global_id(0), get_global_size(0)); task < task_end; ++task) {
        const long row = task * ${lanes};
        const int count = min(${lanes}L, g.rows - row);
        long from[${lanes}], to[${lanes}];
        for (int k = 0; k < ${lanes}; ++k) {  // lanes without a row repeat the last
            from[k] = input_at + ${name}_in(&g, row + min(k, count - 1));
            to[k] = output_at + ${name}_out(&g, row + min(k, count - 1));
        }
        for (long i = 0; i < n; ++i)
            for (int k = 0; k < count; ++k) {
                const ${key} x = ${name}_key(input[from[k] + i * g.in_step]);
                % if words == 2:
                e[2 * i * ${lanes} + k] = x;
                e[(2 * i + 1) * ${lanes} + k] = i;
                % else:
                e[i * ${lanes} + k] = ${name}_make(x, i);
                % endif
            }
        ${name}_sort(v, n);
        for (long i = 0; i < n; ++i)
            for (int k = 0; k < count; ++k) {
                % if words == 2:
                output[to[k] + i * g.out_step] = e[(2 * i + 1) * ${lanes} + k];
                % else:
                const ${E} x = e[i * ${lanes} + k];
                output[to[k] + i * g.out_step] = ${name}_result(x);
                % endif
            }
    }
}
