## Convolution, either schedule, any dtype, where no other kernel applies.
##
## Algorithm   Direct convolution, one element of y at a time: a sum over channels and taps that meet x.
## Operands    x, w and y with any strides; plan.mako.
## NDRange     work-items loop over the elements of y, with the NDRange as step.
<%page args="name, ctype, wide"/>
__kernel void ${name}(conv_plan p, conv_call s, __global const ${ctype} *X, __global const ${ctype} *W,
                      __global ${ctype} *Y, __global ${ctype} *workspace)
{
    const long shape[3] = {p.out[0], p.out[1], p.out[2]};
    const long total = p.batch * p.groups * p.m * shape[0] * shape[1] * shape[2];
    for (long e = get_global_id(0); e < total; e += get_global_size(0)) {
        const conv_index q = conv_unravel(e, shape);
        const long m = q.outer % p.m, g = q.outer / p.m % p.groups, n = q.outer / p.m / p.groups;
        const long d0 = q.d * p.stride[0] - p.pad[0];
        const long h0 = q.h * p.stride[1] - p.pad[1];
        const long w0 = q.w * p.stride[2] - p.pad[2];
        ${wide} sum = 0;
        for (long c = 0; c < p.c; c++) {
            __global const ${ctype} *x = X + s.x + n * p.x.n + g * p.x.g + c * p.x.c;
            __global const ${ctype} *w = W + s.w + g * p.w.g + m * p.w.m + c * p.w.c;
            for (long i = 0; i < p.taps[0]; i++) {
                const long d = d0 + i * p.dilation[0];
                if (d < 0 || d >= p.image[0])
                    continue;
                for (long j = 0; j < p.taps[1]; j++) {
                    const long h = h0 + j * p.dilation[1];
                    if (h < 0 || h >= p.image[1])
                        continue;
                    for (long k = 0; k < p.taps[2]; k++) {
                        const long v = w0 + k * p.dilation[2];
                        if (v >= 0 && v < p.image[2])
                            sum += (${wide})x[d * p.x.d + h * p.x.h + v * p.x.w]
                                * w[i * p.w.d + j * p.w.h + k * p.w.w];
                    }
                }
            }
        }
        Y[s.y + n * p.y.n + g * p.y.g + m * p.y.m + conv_offset(p.y.d, p.y.h, p.y.w, q)] = sum;
    }
}
