"""Sums of weighted elements along an axis, which tables name for each result."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import carrier, ctype
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import INT_LIMIT, ITEMS_PER_UNIT, MIN_ITEM_ELEMENTS
from pytensor_cl.routines.base.ndrange import index_type, ndrange
from pytensor_cl.routines.base.routine import KernelVariants, Routine
from pytensor_cl.routines.elemwise.routine import Copy, contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

MAX_UNROLLED_TAPS = 16  # taps of each result up to which the kernel has no loop over them, schedule cpu
VECTOR_BYTES = 32  # bytes of a vector, schedule cpu


class _Variant(NamedTuple):
    """A kernel: the taps that it has unrolled, whether there is one column, and its type of indices."""

    taps: int
    single: bool
    offset: str


class WeightedTake(Routine):
    """Sum of weighted elements along an axis for each result: ``(x, index[, weight]) -> y``.

    `index` and `weight` have shape (taps, results). ``y[..., i, ...]`` is the sum over k of
    ``weight[k, i] * x[..., index[k, i], ...]``, without `weight` of the elements alone.

    `axis`: counted from the last one (-1); `has_gaps`: whether an index of -1 stands for no element; `moves`: whether
    there is one tap without a weight, so that elements of any dtype are only moved. Indices are not checked.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        axis: int,
        *,
        has_weights: bool,
        has_gaps: bool,
        moves: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self.axis = axis
        self.has_weights = has_weights
        self.has_gaps = has_gaps
        self.moves = moves
        self._element = carrier(dtype) if moves else ctype(dtype)
        self._lanes = 1 if self._element[-1].isdigit() else min(16, VECTOR_BYTES // np.dtype(dtype).itemsize)
        self._kernels: KernelVariants[_Variant, Kernel] = KernelVariants(self._build)

    def _source(self, variant: _Variant) -> KernelSource:
        common: dict[str, Any] = {"element": self._element, "weighted": self.has_weights, "gaps": self.has_gaps}
        if self.schedule == "simt":
            return kernel_source("resampling/simt", index=variant.offset, **common)
        own: dict[str, Any] = {"taps": variant.taps, "single": variant.single, "lanes": self._lanes}
        return kernel_source("resampling/cpu", **own, **common)

    def _build(self, variant: _Variant) -> Kernel:
        return self.context.kernel(self._source(variant))

    def _variant(self, taps: int, single: bool, reach: int = 0) -> _Variant:
        if self.schedule == "simt":
            return _Variant(0, False, index_type(reach, INT_LIMIT // 4))
        return _Variant(taps if taps <= MAX_UNROLLED_TAPS else 0, single, "long")

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel of two taps, or of one that moves elements."""
        return (self._source(self._variant(1 if self.moves else 2, self.axis == -1)),)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the result.

        Raises `ValueError`: the tables have different shapes, or x has no such axis.
        """
        x, index, *weights = inputs
        if index.ndim != 2 or any(w.shape != index.shape for w in weights) or x.ndim < -self.axis:
            shapes = [layout.shape for layout in inputs]
            raise ValueError(f"an array and tables of shape (taps, results) are needed, not {shapes}")
        shape = list(x.shape)
        shape[self.axis] = index.shape[1]
        return (Layout.contiguous(tuple(shape)),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel; the arrays may have any strides."""
        (output,) = outputs
        if not output.layout.size:
            return
        if output.layout.is_contiguous and not output.layout.offset:
            self._enqueue(output, [contiguous(v) for v in inputs])
            return
        draft = self.context.empty(output.shape, output.dtype)
        self._enqueue(draft, [contiguous(v) for v in inputs])
        Copy(self.context, self.output_dtypes[0], output.ndim, schedule=self.schedule).launch((output,), (draft,))

    def _enqueue(self, output: GpuArray, inputs: Sequence[GpuArray]) -> None:
        x, index = inputs[:2]
        axis = x.ndim + self.axis
        outer, length, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
        taps, results = index.shape
        kernel = self._kernels[self._variant(taps, inner == 1, max(x.size, output.size))]
        arrays = [argument for v in inputs for argument in (v.buffer, np.int64(v.layout.offset))]
        extents = map(np.int64, (outer, length, results, inner, taps))
        kernel.launch(self.context.queue, *self._sizes(kernel, outer, results, inner), *arrays, output.buffer, *extents)

    def _sizes(self, kernel: Kernel, outer: int, results: int, inner: int) -> Any:
        size = outer * results * inner
        if self.schedule == "simt":
            return ndrange(self.context, kernel, size)
        workers = max(1, min(ITEMS_PER_UNIT * self.context.info.compute_units, size // MIN_ITEM_ELEMENTS))
        if inner == 1:
            return (min(workers, outer), 1), (1, 1)
        parts = min(workers, outer * results)
        columns = 1 if outer * results >= 4 * workers else max(1, min(inner // 1024, ceil_div(workers, parts)))
        return (parts, columns), (1, 1)
