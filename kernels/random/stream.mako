## Draws of which each takes as many numbers of a generator as it happens to need, made in parallel. A chain of draws that starts anywhere
## meets the one that NumPy follows after some draws, since each ends where the next one starts. So each work-item takes a chunk of the
## positions, follows a chain from a little before it, and keeps the draws that start inside. The host looks whether a chunk's last draw ends
## where the next chunk's first one starts. In `report`: per chunk the number of draws, the first position, the one after the last draw.
## `odd` lists draws whose last digit may not be NumPy's.
<%page args="name, generator, draw, kind, parameters, words, schedule"/>\
<% G = generator %>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(const ulong s_hi, const ulong s_lo, const ulong c_hi, const ulong c_lo, const uint pending, const long origin, const long chunk,
             const long warm, const long chunks, const long stride, __global const long *again, const long capacity, __global const ulong *tables,
             __global ${kind} *out, __global long *report, volatile __global int *odd_count, const int odd_most, __global long *odd,
             __global double *odd_u${"".join(f", const double p{k}" for k in range(parameters))})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long item = get_global_id(0);
    if (item >= chunks) return;
    /* Chunks that are repeated have their exact starts in `again`. */
    const int is_again = again[0] >= 0;
    const long j = is_again ? again[2 * item] : item, begin = origin + j * chunk, stop = begin + chunk;
    long start = is_again ? again[2 * item + 1] : max(origin, begin - warm);
    ${G}_stream stream, *r = &stream;
    const random_u128 state = {s_hi, s_lo}, c = {c_hi, c_lo};
    r->c = c;
    r->tables = tables;
    r->pending = pending;
% if words == 32:
    long word = start;
    r->base = word < 0 ? 0 : word >> 1;
% else:
    r->base = start;
% endif
    r->s = ${G}_fill(${G}_jump(state, c, r->base), c, r->raw);
    r->at = 0;
% if words == 32:
    if (word > 0 && (word & 1L)) r->at = 1;
    #define POSITION word
% else:
    #define POSITION ${G}_position(r)
% endif
    while (POSITION < begin) {
        const ${kind} ignored = ${draw};
        (void)ignored;
    }
    const long first = POSITION;
    long count = 0;
    out += j * capacity;
    r->is_odd = 0;
    r->u = 0.0;
    while (POSITION < stop) {
        const long at = POSITION;
        out[count] = ${draw};
        if (r->is_odd) {
            const int k = atomic_inc(odd_count);
            if (k < odd_most) {
                odd[3 * k] = j;
                odd[3 * k + 1] = count;
                odd[3 * k + 2] = at;
                odd_u[k] = r->u;
            }
            r->is_odd = 0;
        }
        ++count;
    }
    report[j] = count;
    report[j + stride] = first;
    report[j + 2 * stride] = POSITION;
    #undef POSITION
}
