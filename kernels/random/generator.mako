## Algorithm   Bit generators of NumPy of which any position of the sequence can be computed. `<generator>_at` goes to a
##             position, `<generator>_fill` makes the next block of numbers in vectors of `lanes` elements.
##             PCG64, PCG64DXSM: a linear congruential generator of 128 bits with a permutation of its state. Each lane
##             is every `lanes`-th state: it has that power of the multiplier, so no lane waits for another one.
##             Philox4x64-10: a block of four numbers is a function of a counter of 256 bits and of the key. Each lane
##             is a block.
## Operands    <generator>_sequence: where position 0 is. PCG: state s, increment c. Philox: the counter of a block, the
##             key, and how many numbers of that block come before position 0.
## NDRange     None: functions of one work-item.
## Workspace   raw: RANDOM_BLOCK numbers of 64 bits in private memory.
## Invariants  The numbers are those of NumPy's bit generators, bit for bit.
## Reference   M. E. O'Neill, PCG: a family of simple fast space-efficient statistically good algorithms for random
##             number generation, HMC-CS-2014-0905 (2014); jump: F. B. Brown, Random number generation with arbitrary
##             strides, Trans. Am. Nucl. Soc. 71 (1994). Philox: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw,
##             Parallel random numbers: as easy as 1, 2, 3, SC11 (2011).
<%page args="generator, lanes"/>\
<%!
    MULTIPLIERS = {"pcg64": 0x2360ED051FC65DA44385DF649FCCF645, "pcg64dxsm": 0xDA942042E4DD58B5}
    M = 1 << 128
    KEY_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B

    def pair(value):
        """Return the two halves of a number of 128 bits."""
        return f"{{0x{value % M >> 64:x}UL, 0x{value % (1 << 64):x}UL}}"
%>\
<%
    G = generator
    V = "ulong" if lanes == 1 else f"ulong{lanes}"
    bit = "(ulong)" if lanes == 1 else f"as_{V}"
    lane = lambda name, k: name if lanes == 1 else f"{name}.s{k:x}"
%>\
#ifndef RANDOM_U128
#define RANDOM_U128
#define RANDOM_BLOCK 64
typedef struct { ulong hi, lo; } random_u128;
static inline random_u128 random_mul(const random_u128 a, const random_u128 b)
{
    const random_u128 r = {mul_hi(a.lo, b.lo) + a.hi * b.lo + a.lo * b.hi, a.lo * b.lo};
    return r;
}
static inline random_u128 random_add(const random_u128 a, const random_u128 b)
{
    const ulong lo = a.lo + b.lo;
    const random_u128 r = {a.hi + b.hi + (lo < a.lo), lo};
    return r;
}
/* The upper halves of products. Vectors are made of products of 32 bits, for which there are instructions. */
static inline ${V} random_mul_hi(const ${V} a, const ${V} b)
{
% if lanes == 1:
    return mul_hi(a, b);
% else:
    const ${V} a_low = a & 0xFFFFFFFFUL, a_high = a >> 32, b_low = b & 0xFFFFFFFFUL, b_high = b >> 32;
    const ${V} middle = a_high * b_low + (a_low * b_low >> 32), other = a_low * b_high + (middle & 0xFFFFFFFFUL);
    return a_high * b_high + (middle >> 32) + (other >> 32);
% endif
}
static inline void random_store(const ${V} numbers, ulong *raw)
{
% if lanes == 1:
    *raw = numbers;
% else:
    vstore${lanes}(numbers, 0, raw);
% endif
}
#endif
% if G == "philox4x64":
typedef struct { ulong c0, c1, c2, c3, k0, k1, skipped; } ${G}_sequence;
/* The counter of the next block, the rest of the block before it, and how many numbers of that one are skipped. */
typedef struct { ulong c0, c1, c2, c3, k0, k1, rest[4]; int skipped; } ${G}_state;

/* The numbers of the block that is n + lane after the counter. */
static inline void ${G}_blocks(const ${G}_sequence *s, const ulong n, ${V} x[4])
{
    const ulong base = s->c0 + n;
% if lanes == 1:
    const ${V} c0 = base;
% else:
    const ${V} c0 = base + (${V})(${", ".join(map(str, range(lanes)))});
% endif
    const ${V} c1 = (${bit}(c0 < (${V})s->c0) & 1UL) + s->c1;
    const ${V} c2 = (${bit}(c1 < (${V})s->c1) & 1UL) + s->c2;
    const ${V} c3 = (${bit}(c2 < (${V})s->c2) & 1UL) + s->c3;
    ulong k0 = s->k0, k1 = s->k1;
    x[0] = c0;
    x[1] = c1;
    x[2] = c2;
    x[3] = c3;
    for (int i = 0; i < 10; ++i) {
        const ${V} m0 = 0xD2E7470EE14C6C93UL, m1 = 0xCA5A826395121157UL;
        const ${V} hi0 = random_mul_hi(m0, x[0]), lo0 = m0 * x[0];
        const ${V} hi1 = random_mul_hi(m1, x[2]), lo1 = m1 * x[2];
        x[0] = hi1 ^ x[1] ^ k0;
        x[2] = hi0 ^ x[3] ^ k1;
        x[1] = lo1;
        x[3] = lo0;
        k0 += 0x${f"{KEY_STEPS[0]:x}"}UL;
        k1 += 0x${f"{KEY_STEPS[1]:x}"}UL;
    }
}
/* Number n after position 0. */
static ulong ${G}_number(const ${G}_sequence s, const ulong n)
{
    ${V} x[4];
    const ulong at = s.skipped + n;
    ${G}_blocks(&s, at >> 2, x);
    return ${" : ".join([*(f"(at & 3UL) == {k}UL ? {lane(f'x[{k}]', 0)}" for k in range(3)), lane("x[3]", 0)])};
}
static ${G}_state ${G}_at(const ${G}_sequence s, const ulong n)
{
    ${V} x[4];
    const ulong at = s.skipped + n;
    ${G}_blocks(&s, at >> 2, x);
    ${G}_state r = {s.c0 + (at >> 2) + 1UL, s.c1, s.c2, s.c3, s.k0, s.k1,
                    {${", ".join(lane(f"x[{k}]", 0) for k in range(4))}}, (int)(at & 3UL)};
    if (r.c0 <= at >> 2 && ++r.c1 == 0UL && ++r.c2 == 0UL) ++r.c3;
    return r;
}
/* The next RANDOM_BLOCK numbers; the state is the one after them. */
static void ${G}_fill(${G}_state *r, ulong *raw)
{
    const ${G}_sequence s = {r->c0, r->c1, r->c2, r->c3, r->k0, r->k1, 0UL};
    ulong words[RANDOM_BLOCK + 4];
    for (int k = 0; k < 4; ++k) words[k] = r->rest[k];
    for (int i = 0; i < RANDOM_BLOCK / 4; i += ${lanes}) {
        ${V} x[4];
        ${G}_blocks(&s, i, x);
% for l in range(lanes):
    % for k in range(4):
        words[4 * i + ${4 + 4 * l + k}] = ${lane(f"x[{k}]", l)};
    % endfor
% endfor
    }
    for (int i = 0; i < RANDOM_BLOCK; ++i) raw[i] = words[i + r->skipped];
    for (int k = 0; k < 4; ++k) r->rest[k] = words[RANDOM_BLOCK + k];
    r->c0 += RANDOM_BLOCK / 4;
    if (r->c0 < RANDOM_BLOCK / 4 && ++r->c1 == 0UL && ++r->c2 == 0UL) ++r->c3;
}
% else:
<% m = MULTIPLIERS[G] %>\
typedef struct { random_u128 s, c; } ${G}_sequence;
typedef struct { ${V} hi, lo; random_u128 c; } ${G}_state;  /* c: the increment of ${lanes} steps */

static inline ${V} ${G}_output(const ${V} hi, const ${V} lo)
{
% if G == "pcg64":
    const ${V} x = hi ^ lo, by = hi >> 58;
    return x >> by | x << (64UL - by & 63UL);
% else:
    ${V} x = hi ^ hi >> 32;
    x *= 0x${f"{m:x}"}UL;
    x ^= x >> 48;
    return x * (lo | 1UL);
% endif
}
static inline random_u128 ${G}_step(const random_u128 s, const random_u128 c)
{
    const random_u128 m = ${pair(m)};
    return random_add(random_mul(s, m), c);
}
/* The state of which number n is made${": the one after n + 1 steps" if G == "pcg64" else ""}. */
static random_u128 ${G}_jump(random_u128 s, const random_u128 c, ulong n)
{
    const random_u128 one = {0UL, 1UL};
    random_u128 m = ${pair(m)}, b = c;
    % if G == "pcg64":
    ++n;
    % endif
    for (; n; n >>= 1) {
        if (n & 1UL) s = random_add(random_mul(s, m), b);
        b = random_mul(random_add(m, one), b);
        m = random_mul(m, m);
    }
    return s;
}
static ${G}_state ${G}_at(const ${G}_sequence sequence, const ulong n)
{
    const random_u128 g = ${pair(sum(m**k for k in range(lanes)))};
    random_u128 s = ${G}_jump(sequence.s, sequence.c, n);
    ${G}_state r;
    r.c = random_mul(g, sequence.c);
% for k in range(lanes):
    ${lane("r.hi", k)} = s.hi;
    ${lane("r.lo", k)} = s.lo;
    % if k < lanes - 1:
    s = ${G}_step(s, sequence.c);
    % endif
% endfor
    return r;
}
/* The next RANDOM_BLOCK numbers; the state is the one after them. */
static void ${G}_fill(${G}_state *r, ulong *raw)
{
    const random_u128 m = ${pair(m**lanes)}, c = r->c;
    const ${V} m_lo = m.lo, m_hi = m.hi, c_lo = c.lo, c_hi = c.hi;
    ${V} hi = r->hi, lo = r->lo;
    for (int i = 0; i < RANDOM_BLOCK; i += ${lanes}) {
        random_store(${G}_output(hi, lo), raw + i);
        hi = random_mul_hi(lo, m_lo) + hi * m_lo + lo * m_hi + c_hi;
        lo = lo * m_lo + c_lo;
        hi += ${bit}(lo < c_lo) & 1UL;
    }
    r->hi = hi;
    r->lo = lo;
}
% endif
