"""Convolutions and their gradients: which kernel runs.

A call goes through these steps; the first four are arithmetic without a device:

1. `routine`: `ConvForward`, `ConvGradInput`, `ConvGradWeight` and `Convolve` check shapes and turn layouts into
   problems (`plan.forward`, `plan.grad_input`, ...). A `Problem` is a convolution of strided arrays x, w -> y; the
   gradients are convolutions too, one for each phase of the stride.
2. `plan.simplify` merges dimensions.
3. A method is chosen: `schedule_cpu.CpuSchedule.method` or `schedule_simt.SimtSchedule.method`; the first of the table
   that applies. On schedule cpu, a gradient may be computed by one kernel for all phases instead.
4. The schedule's `partition` shares the problem among work-items.
5. `kernels.ConvKernels` renders the method's template; `launch` packs the struct ``conv_plan``; `engine.Engine` keeps
   plans by layouts, enqueues, and adds up partial sums.

On schedule cpu:

================  ============================================  ===============================  ==================
method            when                                          kernel                           numbers
================  ============================================  ===============================  ==================
``col2im``        gradient of x; sums of many terms             conv/col2im                      `col2im`
``grad_weights``  gradient of w; many positions, small w        conv/grad_weights                `grad_weights`
``naive``         integers                                      conv/naive                       `schedule_cpu`
``fourier``       large kernels, stride and dilation 1          fft, conv/fourier                `fourier`
``dot``           more taps than positions, few channels        conv/dot                         `schedule_cpu`
``depthwise``     one channel of y in a group                   conv/depthwise                   `schedule_cpu`
``direct``        few channels of y in a group                  conv/direct                      `schedule_cpu`
``winograd``      3 x 3 taps, stride 1, if it saves more        conv/winograd_filters, _images,  `winograd`
                  multiplications than transforms cost          _fused
``pointwise``     one tap, many positions: a product            gemm                             `plan`
``im2col``        filters that can be read in place             conv/im2col_gemm                 `im2col`
``implicit_gemm`` everything else                               conv/implicit_gemm               `schedule_cpu`
================  ============================================  ===============================  ==================

On schedule simt:

================  ============================================  ==================================================
method            when                                          kernel
================  ============================================  ==================================================
``fourier``       large kernels, stride and dilation 1          fft, conv/fourier
``small_m``       floats, few channels of y in a group          conv/simt_small_m
``naive``         integers, or few channels otherwise           conv/naive
``winograd``      3 x 3 taps, stride 1, if transforms take      conv/simt_winograd, gemm (`winograd_simt`);
                  less time than the multiplications saved      ``winograd_weights`` for gradients of w
``pointwise``     one tap, many positions: a product            gemm
``simt``          everything else                               conv/simt_double_buffered for large float32
                                                                problems, else conv/simt
================  ============================================  ==================================================

All thresholds stand in `limits`. Measurements: docs/design/015-winograd.md and 017-convolutions.md.
"""
