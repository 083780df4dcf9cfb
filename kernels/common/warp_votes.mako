## Values that the work-items of a warp of 32 exchange without local memory, by instructions of NVIDIA's GPUs. The
## feature `warp_votes` says whether they work, and that work-items 32 w to 32 w + 31 of a work-group are a warp.
<%page args=""/>\
static inline uint warp_ballot(const int predicate)
{
    uint mask;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
        : "=r"(mask) : "r"(predicate));
    return mask;
}

/* The work-items of the warp whose number has the same lower bits. */
static inline uint warp_match(const int number, const int bits)
{
    uint mask = 0xffffffffu;
    for (int b = 0; b < bits; ++b) {
        const int bit = number >> b & 1;
        const uint others = warp_ballot(bit);
        mask &= bit ? others : ~others;
    }
    return mask;
}

static inline void warp_barrier(void)
{
    asm volatile("bar.warp.sync 0xffffffff;" : : : "memory");
}
