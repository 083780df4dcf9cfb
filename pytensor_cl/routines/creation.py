"""Arrays made from a few numbers: evenly spaced values, ones on a diagonal, a window."""

from math import ceil, copysign
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import computed
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import NegativeLengthError, RangeLengthError
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, MIN_ITEM_ELEMENTS
from pytensor_cl.routines.base.ndrange import Sizes, index_type, item_range, ndrange
from pytensor_cl.routines.base.routine import SCHEDULES, KernelVariants
from pytensor_cl.routines.elemwise.routine import Copy, Fill
from pytensor_cl.routines.indexing.diagonal import diagonal
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.program import Kernel

Number = int | float


def arange_length(start: Number, stop: Number, step: Number) -> int:
    """Return how many values `numpy.arange` makes.

    Raises `RangeLengthError`: the step is zero, or there is no such number.
    """
    try:
        count = (stop - start) / step
        if count == 0 and stop != start:  # underflow: the sign determines whether the first value is inside
            return 0 if copysign(1, count) < 0 else 1
        length = max(0, ceil(count))
    except (ArithmeticError, ValueError) as error:
        raise RangeLengthError(f"arange: cannot compute length from {start} to {stop} by {step}") from error
    if length > np.iinfo("int64").max:
        raise RangeLengthError(f"arange: overflow while computing length from {start} to {stop} by {step}")
    return length


class ARange:
    """Make evenly spaced values, the same to the last bit as `numpy.arange` does.

    Inputs are start, stop and step: numbers of the host.

    `dtype`: dtype of the array: an integer or real one.
    """

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        self.context = context
        self.schedule = schedule or context.info.schedule
        if self.schedule not in SCHEDULES:
            raise ValueError(f"unknown schedule {schedule!r}; choose from {SCHEDULES}")
        self.dtype = np.dtype(dtype)
        # Integers wrap, which in C only unsigned ones do.
        unsigned = f"uint{8 * self.dtype.itemsize}"
        self._stored = np.dtype(unsigned if self.dtype.kind == "i" else computed(self.dtype))
        self._narrow = Copy(context, str(self._stored), 1, dtype, schedule) if self.dtype == "float16" else None
        self._lanes = 1 if self.schedule == "simt" else 8 if self.dtype.itemsize == 8 else 16
        self._kernels = KernelVariants(self._build)

    def _source(self, index: str) -> KernelSource:
        stored = str(self._stored)
        access = (render("common/vector_access", dtype=stored, lanes=self._lanes),) if self.schedule == "cpu" else ()
        return kernel_source(
            "creation/arange", preambles=access, dtype=stored, lanes=self._lanes, index=index, schedule=self.schedule
        )

    def _build(self, index: str) -> Kernel:
        return self.context.kernel(self._source(index))

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel with 32-bit indices; the one with 64-bit indices is built when an array needs it."""
        return (self._source("int"), *(self._narrow.sources() if self._narrow else ()))

    def __call__(self, start: Any, stop: Any, step: Any) -> tuple[GpuArray, ...]:
        """Make the array."""
        first, last, by = (np.asarray(v).item() for v in (start, stop, step))
        shape = (arange_length(first, last, by),)
        output = self.context.empty(shape, self._stored if self._narrow else self.dtype)
        if output.size:
            self.launch(output, first, by)
        return self._narrow(output) if self._narrow else (output,)

    def launch(self, output: GpuArray, first: Number, by: Number) -> None:
        """Enqueue the kernel; the output may have any stride."""
        ends = np.zeros(2, self.dtype)
        ends[0] = first
        if output.size > 1:
            ends[1] = first + by
        with np.errstate(all="ignore"):
            if self._narrow:  # the first two values are rounded, and their difference is not
                ends = ends.astype(self._stored)
            values = (*ends.view(self._stored), (ends[1:] - ends[:1]).view(self._stored)[0])
        # The index of the kernel goes past the end, by a vector or by the size of the NDRange.
        index = index_type(output.size, GROUPS_PER_UNIT * self.context.info.compute_units * GROUP_ITEMS)
        where = np.int64(output.layout.offset), np.int64(output.layout.strides[0]), np.int64(output.size)
        kernel = self._kernels[index]
        kernel.launch(self.context.queue, *self._range(kernel, output.size), output.buffer, *where, *values)

    def _range(self, kernel: Kernel, size: int) -> Sizes:
        if self.schedule == "cpu":
            return item_range(self.context, size, MIN_ITEM_ELEMENTS)
        return ndrange(self.context, kernel, size, GROUP_ITEMS, GROUPS_PER_UNIT)


class Eye:
    """Make a matrix with ones on a diagonal and zeros elsewhere.

    Inputs are the rows, the columns, and how far the diagonal is above the main one: integers of the host.
    """

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        self.context = context
        self.dtype = np.dtype(dtype)
        self._zero = Fill(context, dtype, 2, schedule)
        self._one = Fill(context, dtype, 1, schedule)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels that fill a matrix and a line."""
        return (*self._zero.sources(), *self._one.sources())

    def __call__(self, rows: Any, columns: Any, offset: Any) -> tuple[GpuArray, ...]:
        """Make the matrix."""
        shape = int(rows), int(columns)
        if min(shape) < 0:
            raise NegativeLengthError(f"negative dimensions are not allowed: {shape}")
        output = self.context.empty(shape, self.dtype)
        self._zero.launch((output,), (self.dtype.type(0),))
        self._one.launch((output.with_layout(diagonal(output.layout, int(offset))),), (self.dtype.type(1),))
        return (output,)


class Bartlett:
    """Make the triangular window of `numpy.bartlett`.

    The input is the number of values: an integer of the host.
    """

    def __init__(self, context: Context, dtype: str, schedule: str | None = None) -> None:
        self.context = context
        self.schedule = schedule or context.info.schedule
        self.dtype = np.dtype(dtype)
        self._one = Fill(context, dtype, 1, schedule)
        self._source = kernel_source("creation/bartlett", dtype=dtype, schedule=self.schedule)
        self._kernel: Kernel | None = None

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel, and the one for a window of one value."""
        return (self._source, *self._one.sources())

    def __call__(self, length: Any) -> tuple[GpuArray, ...]:
        """Make the window; empty if the number is not positive."""
        size = max(0, int(length))
        output = self.context.empty((size,), self.dtype)
        if size > 1:
            self._launch(output, size)
        else:
            self._one.launch((output,), (self.dtype.type(1),))
        return (output,)

    def _launch(self, output: GpuArray, size: int) -> None:
        if self._kernel is None:
            self._kernel = self.context.kernel(self._source)
        sizes: Sizes = item_range(self.context, size, MIN_ITEM_ELEMENTS)
        if self.schedule == "simt":
            sizes = ndrange(self.context, self._kernel, size, GROUP_ITEMS, GROUPS_PER_UNIT)
        self._kernel.launch(self.context.queue, *sizes, output.buffer, np.int64(size))
