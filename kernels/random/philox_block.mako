## Algorithm   Philox4x32-10: a block of four random numbers of 32 bits is a function of a key and of a counter, which
##             is the number of an element and that of the block.
## Operands    key, element, block.
## NDRange     None: a function of one work-item.
## Reference   J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, Parallel random numbers: as easy as 1, 2, 3, SC11
##             (2011).
<%page args=""/>\
#ifndef PHILOX_BLOCK
#define PHILOX_BLOCK
static inline uint4 philox_block(const uint2 key, const ulong element, const uint block)
{
    uint4 x = (uint4)(block, 0, (uint)element, (uint)(element >> 32));
    uint2 k = key;
    for (int i = 0; i < 10; ++i) {
        x = (uint4)(mul_hi(0xCD9E8D57U, x.z) ^ x.y ^ k.x, 0xCD9E8D57U * x.z,
                    mul_hi(0xD2511F53U, x.x) ^ x.w ^ k.y, 0xD2511F53U * x.x);
        k += (uint2)(0x9E3779B9U, 0xBB67AE85U);
    }
    return x;
}
#endif
