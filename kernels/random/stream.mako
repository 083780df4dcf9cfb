## Algorithm   Draws of which each takes as many numbers of a generator as it happens to need, made in parallel. A
##             draw ends where the next one starts, so chains of draws from different positions meet after some draws.
##             A work-item starts `warm` positions before its chunk, and keeps the draws that start inside.
##             `fast`: each number of a block is computed as a draw of one number, with a bit in `slow` where a draw
##             that starts there needs more. Runs of draws between those bits are copied.
## Operands    `state`: numbers that make up the generator's sequence; `pending`: the half of a number that was left
##             before the first position. `again`: pairs of chunk and exact start for chunks that are repeated, or -1.
##             Parameters p0, p1, ... A position counts numbers of `words` bits.
## NDRange     (work-items): one for each chunk of `chunk` positions from `origin` on, or for each repeated one; those
##             beyond `chunks` do nothing.
## Workspace   out: `capacity` places for each chunk, with room for vectors past the last draw. report: for each chunk
##             the number of draws, the first position and the one after the last draw, `stride` elements apart.
##             odd: chunk, number and position of each draw whose last digit may not be NumPy's, at most odd_most;
##             odd_u: the number that it was made of.
## Invariants  The host compares the end of each chunk with the start of the next one, and repeats chunks that differ.
## Reference   numpy.random.Generator defines the order of the draws; the methods: kernels/random/variates.mako.
<%page args="name, generator, state, draw, fast, kind, parameters, words, schedule"/>\
<%!
    def vector(form):
        """Return the text for each of 8 lanes, separated by commas."""
        return ", ".join(form.format(k=k) for k in range(8))

    def flags(first, step=1):
        """Return the elements of a ulong8: the bit `first` and those that are `step` apart above it."""
        return ", ".join(str(first << step * k) for k in range(8))
%>\
<%namespace name="ziggurat" file="/random/ziggurat.mako"/>\
<%
    G = generator
    constants = "".join(f", const double p{k}" for k in range(parameters))
%>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(${", ".join(f"const ulong {x}" for x in state)}, const uint pending,
             const long origin, const long chunk, const long warm, const long chunks, const long stride,
             __global const long *again, const long capacity, __global const ulong *tables,
             __global ${kind} *out, __global long *report, volatile __global int *odd_count,
             const int odd_most, __global long *odd, __global double *odd_u${constants})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long item = get_global_id(0);
    if (item >= chunks) return;
    /* Chunks that are repeated have their exact starts in `again`. */
    const int is_again = again[0] >= 0;
    const long j = is_again ? again[2 * item] : item, begin = origin + j * chunk, stop = begin + chunk;
    long start = is_again ? again[2 * item + 1] : max(origin, begin - warm);
    ${G}_stream stream, *r = &stream;
    const ${G}_sequence sequence = {${", ".join(state)}};
    r->tables = tables;
    r->pending = pending;
% if words == 32:
    long word = start;
    r->base = word < 0 ? 0 : word >> 1;
% else:
    r->base = start;
% endif
    r->state = ${G}_at(sequence, r->base);
    ${G}_fill(&r->state, r->raw);
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
% if fast:
<% per = 64 // words %>\
    ${kind} ready[RANDOM_BLOCK * ${per} + 8];
    ulong slow[${per}];  /* a bit for each draw that needs more */
    for (long base = -1; POSITION < stop;) {
        long q = POSITION - ${per} * r->base;
        if (q == ${per} * RANDOM_BLOCK) {
            ${G}_fill(&r->state, r->raw);
            r->base += RANDOM_BLOCK;
            q = r->at = 0;
        }
        if (q >= 0 && base != r->base) {
            base = r->base;
    % for part in range(per):
            {
                ulong8 needs_more = 0UL;
                for (int i = ${64 // per * part}; i < ${64 // per * (part + 1)}; i += 8) {
                    const ulong8 n = vload8(0, r->raw + i);
        % if fast == "integers":
                    ${self.integers()}
        % else:
${ziggurat.layers(fast, "r->raw[i + {k}]")}\
                    vstore8(x, 0, ready + i);
                    needs_more |= as_ulong8(a >= limits) & (ulong8)(${flags(1)}) << i;
        % endif
                }
                const ulong4 s4 = needs_more.lo | needs_more.hi;
                const ulong2 s2 = s4.lo | s4.hi;
                slow[${part}] = s2.x | s2.y;
            }
    % endfor
        }
        if (q >= 0) {
            int to = ${per} * RANDOM_BLOCK;
            for (int part = q >> 6; part < ${per}; ++part) {
                ulong m = slow[part];
                if (part == q >> 6) m = m >> (q & 63) << (q & 63);
                if (m) {
                    to = 64 * part + (int)popcount((m & -m) - 1UL);
                    break;
                }
            }
            const int run = min((long)to, stop - ${per} * base) - (int)q;
            for (int i = 0; i < run; i += 8) vstore8(vload8(0, ready + q + i), 0, out + count + i);
            count += run;
            q += run;
            r->at = (q + ${per - 1}) / ${per};
    % if words == 32:
            word = ${per} * base + q;
    % endif
            if (q == ${per} * RANDOM_BLOCK || POSITION >= stop) continue;
        }
        ${self.one(draw)}
    }
% else:
    while (POSITION < stop) {
        ${self.one(draw)}
    }
% endif
    report[j] = count;
    report[j + stride] = first;
    report[j + 2 * stride] = POSITION;
    #undef POSITION
}
## One draw, whatever it needs.
<%def name="one(draw)">\
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
</%def>\
## Numbers of 32 bits times how many there are: the upper half is the draw, unless the lower one is small.
<%def name="integers()">\
const ulong factor = as_ulong(p1) + 1UL, low = factor & 0xFFFFFFFFUL;
                    const ulong8 even = (n & 0xFFFFFFFFUL) * factor, odd_half = (n >> 32) * factor;
                    const ulong16 x = (ulong16)(${vector("even.s{k}, odd_half.s{k}")}) >> 32;
                    vstore16(as_long16(x + as_ulong(p0)), 0, ready + 2 * i);
                    if (!low) continue;
                    const ulong8 bits = (as_ulong8((even & 0xFFFFFFFFUL) < low) & (ulong8)(${flags(1, 2)}))
                                        | (as_ulong8((odd_half & 0xFFFFFFFFUL) < low) & (ulong8)(${flags(2, 2)}));
                    needs_more |= bits << (2 * i & 63);
</%def>\
