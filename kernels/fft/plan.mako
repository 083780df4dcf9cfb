## What the kernels of both schedules get by value: pytensor_cl/routines/fft/plan.py packs it.
<%page args="name, kept_dims"/>\
typedef struct {
    long at, step, im, re_count, im_count;  // first element; steps to the next one and to the imaginary part; how many there are
    long mirror, total, mirror_step;  // from `mirror` on the conjugate stands at the other end: `total` - position
} ${name}_side;

typedef struct {
    long blocks, tiles, inner;  // blocks of lanes in all and in a group; transforms in a group
    long length, size, passes, radix[2];  // elements; elements of the passes, and their radices, four bits each
    long tangle, untangle, twiddle;  // whether to do so
    long pre, pre_step, pre_lane, mid, mid_step, mid_lane, post;  // whether, and the steps in the table
    ${name}_side in, out;
    long kept[${kept_dims}], kept_in[${kept_dims}], kept_out[${kept_dims}];  // extent and steps, innermost first
} ${name}_geometry;
