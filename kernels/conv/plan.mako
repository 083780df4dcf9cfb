## Arguments of the kernels of the conv family, and indices of positions and taps.
##
## Algorithm   y[n, g, m, q] = sum over c, t of w[g, m, c, t] * x[n, g, c, q * stride + t * dilation - pad], with x zero
##             outside of its image. Output pixels q and filter taps t have three dimensions (d, h, w).
## Operands: all is counted in elements.
##     batch, groups, m, c        images, groups, channels of y and of x in a group
##     out, taps, image           extents of q, of t and of x
##     stride, dilation, pad      dilation and pad may be negative
##     x, w, y                    strides, each with its own name: n (images), g (groups), m or c (channels), d, h, w
##     x_low to x_high, w_low to w_high
##                                elements of x and w that may be read, relative to the offsets in conv_call
##     w_inner, w_step, w_outer   element k of w, a channel and a tap, is at k / inner * outer + k % inner * step,
##                                unless inner is zero
## Tiling, schedule cpu:
##     mc, nc, kc                 rows, columns and elements along k of the blocks that a work-item packs
##     k_step                     elements along k that it reads at a time
## Workspace:
##     workspace_size             elements of a work-item's workspace
##     split_k, partial_stride    parts of the sums, and the distance of the partial sums
## Reference   pytensor_cl/routines/conv/plan.py.
<%page args="strides, plan, call"/>\
% for struct in strides:
${struct.c_typedef()}
% endfor
${plan.c_typedef()}
${call.c_typedef(comment="first elements: what may change from call to call")}

typedef struct {  // an index and how it factors: `outer` and three dimensions
    long outer, d, h, w;
} conv_index;

static conv_index conv_unravel(long index, const long *shape)
{
    conv_index i;
    i.w = index % shape[2];
    index /= shape[2];
    i.h = index % shape[1];
    index /= shape[1];
    i.d = index % shape[0];
    i.outer = index / shape[0];
    return i;
}

// Adds `step` to the last dimension; at most one row is left.
static void conv_advance(conv_index *i, long step, const long *shape)
{
    i->w += step;
    if (i->w < shape[2])
        return;
    i->w = 0;
    if (++i->h < shape[1])
        return;
    i->h = 0;
    if (++i->d < shape[0])
        return;
    i->d = 0;
    i->outer++;
}

static long conv_offset(long stride_d, long stride_h, long stride_w, conv_index i)
{
    return i.d * stride_d + i.h * stride_h + i.w * stride_w;
}

// The first l >= 0 with start + l * step >= bound; step > 0. Divisions are slow.
static long conv_first_at_least(long start, long step, long bound)
{
    if (start >= bound)
        return 0;
    if (step == 1)
        return bound - start;
    return step == 2 ? (bound - start + 1) >> 1 : (bound - start + step - 1) / step;
}

// The taps lo <= t < hi of a row for which all of first + t * dilation to last + t * dilation is inside of x.
static void conv_inner_taps(const conv_plan *p, long first, long last, long *lo, long *hi)
{
    const long step = p->dilation[2], extent = p->image[2];
    *lo = step > 0 ? conv_first_at_least(first, step, 0) : conv_first_at_least(-last, -step, 1 - extent);
    *hi = step > 0 ? conv_first_at_least(last, step, extent) : conv_first_at_least(-first, -step, 1);
    *hi = min(*hi, p->taps[2]);
    *lo = min(*lo, *hi);
}
<%include file="/common/partition.mako"/>\
<%include file="/common/function_attributes.mako"/>\
