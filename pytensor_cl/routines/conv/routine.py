"""Convolutions in one to three dimensions, and their gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.conv.engine import Engine
from pytensor_cl.routines.conv.epilogue import ConvEpilogue
from pytensor_cl.routines.conv.launch import FusedGradient
from pytensor_cl.routines.conv.plan import Geometry, Problem, Window, forward, grad_input, grad_weight, signals
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


class _Convolution(Routine):
    """Base class of convolutions and their gradients.

    `ndim`: number of spatial dimensions: 1, 2 or 3; `strides`, `dilation`: one for each spatial dimension;
    `groups`: number of groups of channels, which are convolved apart; `padding`: for each spatial dimension the zeros
    before and after the input; `flip`: whether the kernel is flipped, as in a mathematical convolution; else this is a
    cross-correlation; `epilogue`: function of each element before it is stored; its extra arrays follow the inputs.
    The gradient with respect to w has none.

    Raises `ValueError`: a parameter has a length other than `ndim`, or an invalid value.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        strides: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        groups: int = 1,
        padding: Sequence[tuple[int, int]] | None = None,
        flip: bool = False,
        schedule: str | None = None,
        epilogue: ConvEpilogue | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.dtype = context.check_dtype(dtype)
        self.epilogue = epilogue
        self.output_dtypes = (self.dtype.name,) if epilogue is None else epilogue.output_dtypes
        strides, dilation = strides or (1,) * ndim, dilation or (1,) * ndim
        padding = padding or ((0, 0),) * ndim
        if not 1 <= ndim <= 3 or {len(strides), len(dilation), len(padding)} != {ndim}:
            raise ValueError(f"{ndim} dimensions, strides={strides}, dilation={dilation}, padding={padding}")
        windows = tuple(Window(s, d, *p) for s, d, p in zip(strides, dilation, padding, strict=True))
        if groups < 1 or any(w.stride < 1 or w.dilation < 1 for w in windows):
            raise ValueError(f"strides {strides}, dilation {dilation} and groups {groups} must be positive")
        self.geometry = Geometry(windows, groups, bool(flip))
        self.engine = Engine(context, self.dtype.name, self.schedule, epilogue)

    @property
    def methods(self) -> set[str]:
        """Names of the methods that calls so far have taken."""
        return self.engine.methods

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel that most layouts need; others are built on demand."""
        return self.engine.sources()

    def _check(self, x: Sequence[int], w: Sequence[int]) -> None:
        """Refuse channels that do not fit together."""
        groups = self.geometry.groups
        if any(n < 0 for n in x):
            raise ValueError(f"the padding of a transposed convolution is longer than its result, of shape {tuple(x)}")
        if len(x) != len(w) or len(x) != len(self.geometry.windows) + 2:
            raise ValueError(f"Shape mismatch: a convolution of shape {tuple(x)} with kernels of shape {tuple(w)}")
        if x[1] != w[1] * groups or w[0] % groups:
            raise ValueError(
                f"Shape mismatch: input of shape {tuple(x)}, kernels of shape {tuple(w)}, {groups} group(s)"
            )

    def _check_output(self, x: Sequence[int], w: Sequence[int], y: Sequence[int]) -> None:
        """Refuse a gradient of the output that has another shape than the output."""
        self._check(x, w)
        expected = (x[0], w[0], *self.geometry.positions(x[2:], w[2:]))
        if tuple(y) != expected:
            raise ValueError(f"Shape mismatch: the gradient of an output of shape {expected} has shape {tuple(y)}")

    def _stored(self, shape: Sequence[int], extra: Sequence[Layout]) -> tuple[Layout, ...]:
        """Return the layout of the output, which the function of an epilogue may refuse."""
        layout = Layout.contiguous(tuple(shape))
        return (layout,) if self.epilogue is None else self.epilogue.layout(layout, extra)


class ConvForward(_Convolution):
    """Convolve x of shape (N, C, ...) with w of shape (O, C / groups, ...) to (N, O, ...)."""

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output.

        Raises `ValueError`: the shapes do not fit together.
        """
        x, w, *extra = inputs
        self._check(x.shape, w.shape)
        return self._stored((x.shape[0], w.shape[0], *self.geometry.positions(x.shape[2:], w.shape[2:])), extra)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the convolution; the output may have any strides."""
        x, w, *extra = inputs
        self.engine.run(self.problems, x, w, outputs, extra)

    def problems(self, x: Layout, w: Layout, y: Layout) -> tuple[Problem, ...]:
        """Return the convolution as one problem."""
        return (forward(self.geometry, x, w, y),)


class ConvGradInput(_Convolution):
    """The gradient with respect to x, from w and the gradient dy: called with ``(w, dy, image)``.

    `image` is the spatial shape of x, which does not follow from strides.
    """

    def layout(self, w: Layout, dy: Layout, image: Sequence[int], *extra: Layout) -> tuple[Layout, ...]:  # type: ignore[override]
        """Return the layout of the gradient.

        Raises `ValueError`: the shapes do not fit together.
        """
        shape = (*dy.shape[:1], *(n * self.geometry.groups for n in w.shape[1:2]), *map(int, image))
        self._check_output(shape, w.shape, dy.shape)
        return self._stored(shape, extra)

    def __call__(self, w: GpuArray, dy: GpuArray, image: Sequence[int], *extra: GpuArray) -> tuple[GpuArray, ...]:  # type: ignore[override]
        layouts = self.layout(w.layout, dy.layout, image, *(a.layout for a in extra))
        pairs = zip(layouts, self.output_dtypes, strict=True)
        outputs = tuple(self.context.empty(layout.shape, dtype) for layout, dtype in pairs)
        self.launch(outputs, (w, dy, *extra))
        return outputs

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the gradient; it may have any strides."""
        w, dy, *extra = inputs
        self.engine.run(self.problems, dy, w, outputs, extra, FusedGradient("col2im", self.convolution))

    def convolution(self, dy: Layout, w: Layout, dx: Layout) -> Problem:
        """Return the convolution whose gradient this is."""
        return forward(self.geometry, dx, w, dy)

    def problems(self, dy: Layout, w: Layout, dx: Layout) -> tuple[Problem, ...]:
        """Return the gradient as one problem for each phase of the strides."""
        return tuple(grad_input(self.geometry, w, dy, dx))


class ConvGradWeight(_Convolution):
    """The gradient with respect to w, from x and the gradient dy: called with ``(x, dy, taps)``.

    `taps` is the spatial shape of w.
    """

    def layout(self, x: Layout, dy: Layout, taps: Sequence[int]) -> tuple[Layout, ...]:  # type: ignore[override]
        """Return the layout of the gradient.

        Raises `ValueError`: the shapes do not fit together.
        """
        shape = (*dy.shape[1:2], *(n // self.geometry.groups for n in x.shape[1:2]), *map(int, taps))
        self._check_output(x.shape, shape, dy.shape)
        return (Layout.contiguous(shape),)

    def __call__(self, x: GpuArray, dy: GpuArray, taps: Sequence[int]) -> tuple[GpuArray, ...]:  # type: ignore[override]
        dw = self.context.empty(self.layout(x.layout, dy.layout, taps)[0].shape, self.dtype)
        self.launch((dw,), (x, dy))
        return (dw,)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the gradient; it may have any strides."""
        x, dy = map(contiguous, inputs)
        self.engine.run(self.problems, x, dy, outputs, (), FusedGradient("grad_weights", self.convolution))

    def problems(self, x: Layout, dy: Layout, dw: Layout) -> tuple[Problem, ...]:
        """Return the gradient as one problem: it is a convolution, too."""
        return (grad_weight(self.geometry, x, dy, dw),)

    def convolution(self, x: Layout, dy: Layout, dw: Layout) -> Problem:
        """Return the convolution whose gradient this is."""
        return forward(self.geometry, x, dw, dy)


class Convolve(Routine):
    """Convolve signals, as `numpy.convolve` does, over their last dimensions: called with ``(x, w, full)``.

    The dimensions in front broadcast. If `full`, the result has every position where x and w overlap, else those where
    the smaller is inside the larger.

    `ndim`: number of dimensions of a signal: 1, 2 or 3; `direct`: whether Fourier transforms are ruled out.
    """

    def __init__(
        self, context: Context, dtype: str, ndim: int, schedule: str | None = None, direct: bool = False
    ) -> None:
        super().__init__(context, schedule)
        self.ndim = ndim
        self.dtype = context.check_dtype(dtype)
        self.output_dtypes = (self.dtype.name,)
        self.engine = Engine(context, self.dtype.name, self.schedule, direct=direct)

    @property
    def methods(self) -> set[str]:
        """Names of the methods that calls so far have taken."""
        return self.engine.methods

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel that most layouts need; others are built on demand."""
        return self.engine.sources(self.ndim)

    def layout(self, x: Layout, w: Layout, full: bool) -> tuple[Layout, ...]:  # type: ignore[override]
        """Return the layout of the result.

        Raises `ValueError`: a one-dimensional signal is empty, neither signal fits into the other, or the dimensions in
        front do not broadcast.
        """
        batch = np.broadcast_shapes(x.shape[: -self.ndim], w.shape[: -self.ndim])
        pairs = list(zip(x.shape[-self.ndim :], w.shape[-self.ndim :], strict=True))
        if self.ndim == 1 and 0 in pairs[0]:
            raise ValueError("convolve: a signal cannot be empty")
        if full:
            return (Layout.contiguous((*batch, *(max(0, n + k - 1) for n, k in pairs))),)
        if any(n < k for n, k in pairs) and any(n > k for n, k in pairs):
            raise ValueError(
                "For 'valid' mode, one must be at least as large as the other in every dimension: "
                f"the shapes are {x.shape} and {w.shape}"
            )
        return (Layout.contiguous((*batch, *(max(n, k) - min(n, k) + 1 for n, k in pairs))),)

    def __call__(self, x: GpuArray, w: GpuArray, full: bool) -> tuple[GpuArray, ...]:  # type: ignore[override]
        y = self.context.empty(self.layout(x.layout, w.layout, full)[0].shape, self.dtype)
        self.launch((y,), (x, w))
        return (y,)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the convolution; whether it is full shows in the shape of the output."""
        (y,), (x, w) = outputs, inputs
        if x.shape[-self.ndim :] < w.shape[-self.ndim :]:
            x, w = w, x
        batch = y.shape[: -self.ndim]
        x, w = contiguous(x), contiguous(w)  # before they are repeated
        x, w = (a.with_layout(a.layout.broadcast_to((*batch, *a.shape[-self.ndim :]))) for a in (x, w))
        if not self._problems(x.layout, w.layout, y.layout):
            x, w = contiguous(x), contiguous(w)
        self.engine.run(self._problems, x, w, (y,))

    def _problems(self, x: Layout, w: Layout, y: Layout) -> tuple[Problem, ...]:
        rows = zip(x.shape[-self.ndim :], w.shape[-self.ndim :], y.shape[-self.ndim :], strict=True)
        problem = signals(self.ndim, x, w, y, [(q + k - n - 1) // 2 for n, k, q in rows])
        return () if problem is None else (problem,)
