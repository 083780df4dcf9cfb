## What all kernels of the gemm family take: sizes, blocking and operands of O = alpha * A @ B + beta * C.
##
## Operands: matrices A (m, k), B (k, n), C (m, n) and O (m, n) with any strides, and up to four batch dimensions.
##     Offsets, strides and sizes are counted in elements.
## Reference: pytensor_cl/routines/gemm/problem.py and schedule_cpu.py, which fill the structs.
typedef struct {
    long start;                // first element, relative to the array's offset
    long row, col;             // strides
    long batch[4];             // strides of the batch dimensions
} gemm_operand;

typedef struct {
    long m, n, k;
    // Blocking of schedule cpu: rows of a block of A, and elements along k of blocks of A and B.
    long mc, kc;
    // Whether all panels of A and of B are packed, or only those of B at the edges (schedule cpu).
    long pack_a, pack_b;
    // Elements of a work-item's packed B. With shared_b_size > 0: row length of the packed B (schedule cpu).
    long packed_b_size;
    // Elements of a work-item's workspace: packed B, then packed A (schedule cpu).
    long workspace_size;
    // Elements of the B that another kernel packs for all work-items, at the begin of the workspace; 0: each packs its
    // own.
    long shared_b_size;
    long prefetch;             // whether the operands of later tiles are prefetched (schedule cpu)
    long split_k;              // parts of k; each part has work-items of its own
    long split_k_start;        // where the partial sums (split_k, m, n) lie in the workspace, if split_k > 1
    long batch_count;          // number of products
    long batch_shape[4];
    gemm_operand a, b, c, o;
} gemm_plan;

// Offset of the matrix of a batch index in an operand.
static long gemm_start(const gemm_operand *x, const long *batch_shape, long batch)
{
    long start = x->start;
    // No loop: with constant subscripts compilers for GPUs keep the plan in registers, and not in memory.
    % for d in (3, 2, 1, 0):
    if (batch > 0) {
        start += (batch % batch_shape[${d}]) * x->batch[${d}];
        batch /= batch_shape[${d}];
    }
    % endfor
    return start;
}
<%include file="/common/partition.mako"/>\
<%include file="/common/function_attributes.mako"/>\
<%include file="/common/prefetch.mako"/>\
<%include file="/common/private.mako"/>\
