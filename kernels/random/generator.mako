## Algorithm   The generators PCG64 and PCG64DXSM of NumPy: a linear congruential generator of 128 bits with a
##             permutation of its state. `<generator>_jump` goes to any position of the sequence.
##             `<generator>_fill` makes a block of numbers by four interleaved sequences. Each has the fourth power of
##             the multiplier, so that the products of one do not wait for those of another.
## Operands    State s and increment c, numbers of 128 bits.
## NDRange     None: functions of one work-item.
## Workspace   raw: RANDOM_BLOCK numbers of 64 bits in private memory.
## Invariants  The numbers are those of NumPy's bit generators, bit for bit.
## Reference   M. E. O'Neill, PCG: a family of simple fast space-efficient statistically good algorithms for random
##             number generation, HMC-CS-2014-0905 (2014); jump: F. B. Brown, Random number generation with arbitrary
##             strides, Trans. Am. Nucl. Soc. 71 (1994).
<%page args="generator"/>\
<%!
    MULTIPLIERS = {"pcg64": 0x2360ED051FC65DA44385DF649FCCF645, "pcg64dxsm": 0xDA942042E4DD58B5}
    M = 1 << 128

    def pair(value):
        """Return the two halves of a number of 128 bits."""
        return f"{{0x{value % M >> 64:x}UL, 0x{value % (1 << 64):x}UL}}"
%>\
<% m = MULTIPLIERS[generator] %>\
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
#endif
static inline ulong ${generator}_output(const random_u128 s)
{
% if generator == "pcg64":
    return rotate(s.hi ^ s.lo, (64UL - (s.hi >> 58)) & 63UL);
% else:
    ulong hi = s.hi;
    hi ^= hi >> 32;
    hi *= 0x${f"{m:x}"}UL;
    hi ^= hi >> 48;
    return hi * (s.lo | 1UL);
% endif
}
static inline random_u128 ${generator}_step(const random_u128 s, const random_u128 c)
{
    const random_u128 m = ${pair(m)};
    return random_add(random_mul(s, m), c);
}
/* The state after n steps. */
static random_u128 ${generator}_jump(random_u128 s, const random_u128 c, ulong n)
{
    const random_u128 one = {0UL, 1UL};
    random_u128 m = ${pair(m)}, b = c;
    for (; n; n >>= 1) {
        if (n & 1UL) s = random_add(random_mul(s, m), b);
        b = random_mul(random_add(m, one), b);
        m = random_mul(m, m);
    }
    return s;
}
/* The next RANDOM_BLOCK numbers; returns the state after them. */
static random_u128 ${generator}_fill(const random_u128 s, const random_u128 c, ulong *raw)
{
    const random_u128 m4 = ${pair(m**4)}, g4 = ${pair(1 + m + m**2 + m**3)}, c4 = random_mul(g4, c);
% if generator == "pcg64":
    random_u128 s0 = ${generator}_step(s, c);
% else:
    random_u128 s0 = s;
% endif
    random_u128 s1 = ${generator}_step(s0, c);
    random_u128 s2 = ${generator}_step(s1, c);
    random_u128 s3 = ${generator}_step(s2, c);
% if generator == "pcg64":
    random_u128 last = s3;
% endif
    for (int i = 0; i < RANDOM_BLOCK; i += 4) {
% for k in range(4):
        raw[i + ${k}] = ${generator}_output(s${k});
% endfor
% if generator == "pcg64":
        last = s3;
% endif
% for k in range(4):
        s${k} = random_add(random_mul(s${k}, m4), c4);
% endfor
    }
    return ${"last" if generator == "pcg64" else "s0"};
}
