## Algorithm   Philox4x32-10: a stream of random numbers for each element of a result. The key is the draw's. The
##             counter is the element's number and that of the block; a block is two numbers of 64 bits.
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
