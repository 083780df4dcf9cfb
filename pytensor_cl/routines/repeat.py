"""Repetition of the elements of an array along an axis, each a given number of times."""

from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import carrier, widened
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, ITEMS_PER_UNIT, MIN_ITEM_ELEMENTS
from pytensor_cl.routines.base.ndrange import Sizes, index_type, item_range
from pytensor_cl.routines.base.routine import KernelVariants, Routine
from pytensor_cl.routines.cumop import CumOp
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel

BLOCK_NUMBERS = 1024  # numbers that are added up together
MAX_ROWS_PER_ITEM = 4  # rows per work-item above which the columns are not shared out too


class Repeat(Routine):
    """Repeat each element along an axis: ``repeat(x, repeats)``, as `numpy.repeat` does.

    There is one number for each element along the axis, or one for all.

    `axis`: not negative; `repeats_dtype`: dtype of the numbers: an integer or bool.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        axis: int,
        repeats_dtype: str = "int64",
        *,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self.axis = axis
        self._copy = Copy(context, dtype, ndim, schedule=schedule)
        self._cast = None if repeats_dtype == "int64" else Copy(context, repeats_dtype, 1, "int64", schedule)
        self._ends = CumOp(context, "add", "int64", 1, 0, schedule=schedule)
        self._element = carrier(dtype)
        itemsize = np.dtype(dtype).itemsize
        self._lanes = 1 if itemsize > 8 else 32 // max(4, itemsize)
        self._kernels = KernelVariants(self._build)

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt, with a sum and a minimum each in local memory."""
        return self.limits.size(GROUP_ITEMS, 16) if self.schedule == "simt" else 1

    def _source(self, index: str) -> KernelSource:
        if self.schedule == "simt":
            return kernel_source(
                "repeat/simt", element=self._element, block=BLOCK_NUMBERS, index=index, group=self._group
            )
        vector = widened(self._element, self._lanes)
        return kernel_source("repeat/cpu", element=self._element, vector=vector, lanes=self._lanes, block=BLOCK_NUMBERS)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels for contiguous arrays with 32-bit indices."""
        ends = self._ends.sources() if self.schedule == "simt" else ()
        return (self._source("int"), *ends)

    def _kernel(self, index: str) -> tuple[Kernel, Kernel]:
        return self.limits.with_fitting_groups(lambda: self._kernels[index], self._kernels.clear)

    def _build(self, index: str) -> tuple[Kernel, Kernel]:
        source, make = self._source(index), self.limits.kernel
        return make(source, f"{source.name}_block_totals", self._group), make(source, None, self._group)

    def _totals(self, repeats: GpuArray) -> np.ndarray:
        """Wait, and return the sum of each block of numbers.

        Raises `ValueError`: a number is negative.
        """
        blocks, length = ceil_div(repeats.size, BLOCK_NUMBERS), repeats.size
        totals = self.context.empty((blocks,), "int64")
        kernel, _ = self._kernel("int")
        if self.schedule == "simt":
            sizes: Sizes = ((blocks * self._group,), (self._group,))
        else:
            sizes = item_range(self.context, length, MIN_ITEM_ELEMENTS)
        values = repeats.buffer, np.int64(repeats.layout.offset), np.int64(repeats.layout.strides[0])
        kernel.launch(self.context.queue, *sizes, *values, np.int64(length), totals.buffer)
        found = self.context.download(totals)
        if found.min() < 0:
            raise ValueError("repeats may not contain negative values.")
        return found

    def _broadcast(self, repeats: GpuArray, length: int) -> GpuArray:
        if repeats.ndim != 1 or repeats.shape[0] not in (1, length):
            raise ValueError(f"operands could not be broadcast together with shape ({length},) {repeats.shape}")
        return repeats.with_layout(repeats.layout.broadcast_to((length,)))

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Wait for the number of repetitions, and enqueue the kernel.

        Raises `ValueError`: a number of repetitions is negative, or there are not as many as elements along the axis.
        """
        array, repeats = inputs
        shape, axis = array.shape, self.axis
        repeats = self._broadcast(repeats, shape[axis])
        if self._cast is not None:
            (repeats,) = self._cast(repeats)
        totals = self._totals(repeats) if repeats.size else np.zeros(1, "int64")
        total = int(totals.sum())
        output = self.context.empty((*shape[:axis], total, *shape[axis + 1 :]), self.output_dtypes[0])
        if output.size:
            if not array.layout.is_contiguous:
                (array,) = self._copy(array)
            launch = self._launch_simt if self.schedule == "simt" else self._launch_cpu
            launch(output, array, repeats, totals)
        return (output,)

    def _extents(self, array: GpuArray, total: int) -> tuple[int, int, int, int]:
        """Return outer, length, inner and total: what the kernels take."""
        shape, axis = array.shape, self.axis
        return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), total

    def _launch_cpu(self, output: GpuArray, array: GpuArray, repeats: GpuArray, totals: np.ndarray) -> None:
        outer, _, inner, total = extents = self._extents(array, output.shape[self.axis])
        ends = self.context.from_host(np.cumsum(totals))
        workers = max(1, min(ITEMS_PER_UNIT * self.context.info.compute_units, output.size // MIN_ITEM_ELEMENTS))
        parts = min(workers, outer * total)
        columns = (
            1
            if outer * total >= MAX_ROWS_PER_ITEM * workers
            else max(1, min(inner // BLOCK_NUMBERS, ceil_div(workers, parts)))
        )
        numbers = repeats.buffer, np.int64(repeats.layout.offset), np.int64(repeats.layout.strides[0])
        arguments = array.buffer, np.int64(array.layout.offset), *numbers, ends.buffer, output.buffer
        _, kernel = self._kernel("int")
        kernel.launch(self.context.queue, (parts, columns), (1, 1), *arguments, *map(np.int64, extents))

    def _launch_simt(self, output: GpuArray, array: GpuArray, repeats: GpuArray, totals: np.ndarray) -> None:
        extents = self._extents(array, output.shape[self.axis])
        (ends,) = self._ends(repeats)
        most = 32 * self.context.info.compute_units
        _, kernel = self._kernel(index_type(max(output.size, array.size), most * GROUP_ITEMS))
        group = self._group
        groups = min(ceil_div(output.size, group), most)
        arguments = array.buffer, np.int64(array.layout.offset), ends.buffer, output.buffer
        kernel.launch(self.context.queue, (groups * group,), (group,), *arguments, *map(np.int64, extents))
