## Arguments of the kernels of the gemv family: sizes and operands of o = alpha * A @ x + beta * y.
##
## Operands    A (m, k), x (k), y and o (m), any strides. All is counted in elements; the starts are relative to the
##             arrays' offsets.
## Workspace:
##     packed_x_size      elements of a work-item's copy of x; 0 where x is contiguous (schedule cpu)
##     is_vector          whether the strides allow loads of vectors (schedule simt)
##     width              work-items of a group along the contiguous dimension of A (schedule simt)
##     finish_width       rows of a group that adds up partial sums (schedule simt)
##     split_k            parts of k; if there are several, their sums (split_k, m) go to `partial`
## Reference   pytensor_cl/routines/gemv/routine.py.
<%page args="plan"/>\
${plan.c_typedef()}
<%include file="/common/partition.mako"/>\
