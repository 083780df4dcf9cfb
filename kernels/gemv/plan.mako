## What the kernels of the gemv family take: sizes and operands of o = alpha * A @ x + beta * y.
##
## Operands    A (m, k), x (k), y and o (m), any strides. All is counted in elements; the starts are relative to the
##             arrays' offsets.
## Workspace:
##     packed_x_size      elements of a work-item's copy of x; 0 where x is contiguous (schedule cpu)
##     split_k            parts of k; if there are several, their sums (split_k, m) go to `partial`
## Reference   pytensor_cl/routines/gemv/routine.py.
<%page args="plan"/>\
${plan.c_typedef()}
<%include file="/common/partition.mako"/>\
