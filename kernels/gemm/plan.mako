## Arguments of all kernels of the gemm family: sizes, blocking and operands of O = alpha * A @ B + beta * C.
##
## Operands    Matrices A (m, k), B (k, n), C (m, n) and O (m, n) with any strides, and up to four batch dimensions. All
##             is counted in elements. gemm_operand: `start` is the first element, relative to the array's offset; row,
##             col and batch are strides.
## Blocking, schedule cpu:
##     mc, kc             rows of a block of A; elements along k of blocks of A and B
##     pack_a, pack_b     whether all panels are packed, or only those of B at the edges
##     packed_b_size      elements of a work-item's packed B; with shared_b_size > 0: row length of the packed B
##     workspace_size     elements of a work-item's workspace: packed B, then packed A
##     shared_b_size      elements of B packed by another kernel for all, at the begin of the workspace; else 0
##     prefetch           whether the operands of later tiles are prefetched
##     triangle           1: of the output, which is square, only the lower triangle is used; -1: the upper one; 0: all
## Both schedules:
##     split_k            parts of k; each part has work-items of its own
##     split_k_start      where the partial sums (split_k, m, n) are in the workspace, if split_k > 1
##     batch_count        number of products; its factors are batch_shape
## Reference   pytensor_cl/routines/gemm/problem.py and schedule_cpu.py.
<%page args="operand, plan"/>\
${operand.c_typedef()}
${plan.c_typedef()}

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
