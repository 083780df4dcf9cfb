// What the kernels of the conv family share:
//     y[n, g, m, q] = sum over c, t of w[g, m, c, t] * x[n, g, c, q * stride + t * dilation - pad]
// with x zero outside of its image. Positions q and taps t have three dimensions; everything is counted in elements.
typedef struct {
    long batch, groups, m, c;                 // `c` channels of x and `m` of y in each group
    long out[3], taps[3], image[3];           // extents of q, of t, and of x
    long stride[3], dilation[3], pad[3];      // dilation and pad may be negative
    long x[6], w[6], y[6];                    // strides: n, g, c; g, m, c; n, g, m; then the three dimensions
    long x_low, x_high, w_low, w_high;        // elements of x and w that may be read, relative to the offsets in conv_call
    long w_inner, w_step, w_outer;            // w's element k, a channel and a tap, is at k / inner * outer + k % inner * step,
                                              // unless inner is zero
    long m_block, n_block, k_block, k_step;   // what one work-item packs at a time, and reads at a time (schedule cpu)
    long scratch;                             // elements of scratch space of one work-item
    long parts, y_part;                       // the sums fall into so many parts, which lie so far from one another
} conv_plan;

typedef struct {  // first elements: what may change from call to call
    long x, w, y;
} conv_call;

typedef struct {  // an index and how it factors: `outer` and three dimensions
    long outer, d, h, w;
} conv_index;

static conv_index conv_split(long index, const long *shape)
{
    conv_index i;
    i.w = index % shape[2], index /= shape[2];
    i.h = index % shape[1], index /= shape[1];
    i.d = index % shape[0], i.outer = index / shape[0];
    return i;
}

static void conv_advance(conv_index *i, long step, const long *shape)
{
    i->w += step;
    if (i->w < shape[2]) return;
    i->w = 0;
    if (++i->h < shape[1]) return;
    i->h = 0;
    if (++i->d < shape[0]) return;
    i->d = 0, i->outer++;
}

static long conv_at(const long *strides, conv_index i)
{
    return i.d * strides[3] + i.h * strides[4] + i.w * strides[5];
}

// First of `size` things that share `count` of `total`, in units of `unit`.
static long conv_share(long total, long unit, long index, long count)
{
    const long units = (total + unit - 1) / unit;
    return min(total, units * index / count * unit);
}

// The first l >= 0 with at + l * step >= bound; step > 0.
static long conv_reach(long at, long step, long bound)
{
    if (at >= bound) return 0;
    return step == 1 ? bound - at : step == 2 ? (bound - at + 1) >> 1 : (bound - at + step - 1) / step;  // divisions are slow
}

// The taps lo <= t < hi of a row for which all of first + t * dilation to last + t * dilation is inside of x.
static void conv_whole(const conv_plan *p, long first, long last, long *lo, long *hi)
{
    const long step = p->dilation[2], extent = p->image[2];
    *lo = step > 0 ? conv_reach(first, step, 0) : conv_reach(-last, -step, 1 - extent);
    *hi = step > 0 ? conv_reach(last, step, extent) : conv_reach(-first, -step, 1);
    *hi = min(*hi, p->taps[2]);
    *lo = min(*lo, *hi);
}

// Compilers that prefer half of the vector registers' width (LLVM with AVX-512) must be told that a function needs it all.
#if defined(__has_attribute)
#if __has_attribute(min_vector_width)
#define CONV_VECTORS(bits) __attribute__((min_vector_width(bits)))
#endif
#endif
#ifndef CONV_VECTORS
#define CONV_VECTORS(bits)
#endif
