## Algorithm   Philox4x32-10: a stream of random numbers for each element of a result. The key is the draw's. The
##             counter is the element's number and that of the block; a block is two numbers of 64 bits. On CPUs the
##             first blocks of 8 elements are made together: products of 32 bits in vectors of 64 bits, whose upper
##             halves are masked only where they are read.
## Operands    key, element: they name the stream. block: the next block. at: how many numbers of the block are left.
## NDRange     None: functions of one work-item.
## Workspace   One philox_stream in private memory.
## Invariants  The numbers depend on the key, the element and the block only, so they are the same on every device.
## Reference   J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, Parallel random numbers: as easy as 1, 2, 3, SC11
##             (2011).
<%include file="/random/philox_block.mako"/>\
typedef struct {
    uint2 key;
    ulong element;
    uint block;
    uint4 words;
    int at;                    /* numbers of the block that are left */
    int is_odd;                /* not used here: see the template random/variates */
    double u;
    __global const ulong *tables;
} philox_stream;

/* The stream of an element, and the same when the two numbers of its first block are known. */
static inline void philox_start(philox_stream *r, const ulong element)
{
    r->element = element;
    r->block = 0;
    r->at = 0;
}
static inline void philox_continue(philox_stream *r, const ulong element, const ulong first, const ulong second)
{
    r->element = element;
    r->block = 1;
    r->at = 2;
    r->words = (uint4)((uint)first, (uint)(first >> 32), (uint)second, (uint)(second >> 32));
}
static ulong philox_next(philox_stream *r)
{
    if (r->at == 0) {
        r->words = philox_block(r->key, r->element, r->block++);
        r->at = 2;
    }
    --r->at;
    return r->at ? (ulong)r->words.y << 32 | r->words.x : (ulong)r->words.w << 32 | r->words.z;
}
static inline double philox_unit(philox_stream *r)
{
    return (double)(philox_next(r) >> 11) * (1.0 / 9007199254740992.0);
}
/* The two numbers of the first blocks of 8 elements. */
static inline void philox_first_blocks(const uint2 key, const ulong8 element, ulong8 *first, ulong8 *second)
{
    const ulong low = 0xFFFFFFFFUL;
    ulong8 x0 = 0UL, x1 = 0UL, x2 = element, x3 = element >> 32;
    uint2 k = key;
    for (int i = 0; i < 10; ++i) {
        const ulong8 even = (x0 & low) * 0xD2511F53UL, odd = (x2 & low) * 0xCD9E8D57UL;
        x0 = odd >> 32 ^ x1 ^ (ulong)k.x;
        x2 = even >> 32 ^ x3 ^ (ulong)k.y;
        x1 = odd;
        x3 = even;
        k += (uint2)(0x9E3779B9U, 0xBB67AE85U);
    }
    *first = x0 & low | x1 << 32;
    *second = x2 & low | x3 << 32;
}
