// What the kernels of the gemm family share: the shape of a product and where its operands lie, counted in elements.
typedef struct {
    long start;     // of the first element, relative to the array's offset
    long row, col;  // strides
    long batch[4];
} gemm_operand;

typedef struct {
    long m, n, k;
    long m_block, k_block;           // what one work-item goes through at a time (schedule cpu)
    long pack_a, pack_b;             // whether all panels are packed, or just those at the edges (schedule cpu)
    long packed_b, scratch;          // elements of a work-item's space for panels of B, and of all its space (schedule cpu)
    long shared;                     // elements of the panels that another kernel packs; then packed_b is their row (schedule cpu)
    long ahead;                      // whether what later tiles read is fetched (schedule cpu)
    long splits, partial;            // parts of k, and where in the scratch space their sums lie if there are several (schedule cpu)
    long batches, shape[4];          // number of products, and how it factors
    gemm_operand a, b, c, o;
} gemm_plan;

static long gemm_start(const gemm_operand *x, const long *shape, long batch)
{
    long start = x->start;
    // No loop: a position that is known lets compilers for GPUs keep the plan in registers, and not in memory.
    % for d in (3, 2, 1, 0):
    if (batch > 0) {
        start += (batch % shape[${d}]) * x->batch[${d}];
        batch /= shape[${d}];
    }
    % endfor
    return start;
}

// First of `size` things that share `count` of `total`, in units of `unit`.
static long gemm_share(long total, long unit, long index, long count)
{
    const long units = (total + unit - 1) / unit;
    return min(total, units * index / count * unit);
}

// The same, but larger shares come first.
static long gemm_panel(long total, long unit, long index, long count)
{
    const long units = (total + unit - 1) / unit;
    return min(total, (units * index + count - 1) / count * unit);
}

// Compilers that prefer half of the vector registers' width (LLVM with AVX-512) must be told that a function needs it all.
#if defined(__has_attribute)
#if __has_attribute(min_vector_width)
#define GEMM_VECTORS(bits) __attribute__((min_vector_width(bits)))
#endif
#endif
#ifndef GEMM_VECTORS
#define GEMM_VECTORS(bits)
#endif
// What several kernels of a program call is compiled once, and comes out the same whatever else calls it.
#define GEMM_APART __attribute__((noinline))
<%include file="/common/prefetch.mako"/>\
<%include file="/common/private.mako"/>\
