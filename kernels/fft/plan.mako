## Arguments that the FFT kernels of both schedules take by value.
##
## <name>_io, where the elements of a line are in the input or output, counted in real numbers:
##     at, step, im          first element; steps to the next one and to the imaginary part
##     re_count, im_count    how many real and imaginary parts there are, or are wanted
##     mirror, total, mirror_step
##                           from element `mirror` on the conjugate stands at the other end: `total` - position
## <name>_geometry:
##     blocks, tiles, inner  blocks of lanes in all and in a group of lines; lines in a group
##     length, size          elements of a line; elements of the passes
##     passes, radix         number of passes, and their radices, four bits each
##     real_pre, real_post, twiddle     whether to do these steps
##     pre, pre_step, pre_lane, mid, mid_step, mid_lane, post
##                           whether to multiply by a table, and the steps in it
##     kept, kept_in, kept_out          batch dimensions: extents and steps, innermost first
## Reference   pytensor_cl/routines/fft/plan.py.
<%page args="name, io, geometry"/>\
${io.c_typedef(f"{name}_io")}
${geometry.renamed(f"{name}_geometry").c_typedef().replace(io.name, f"{name}_io")}
<%include file="/common/function_attributes.mako"/>\
