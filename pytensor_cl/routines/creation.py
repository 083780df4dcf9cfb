"""Arrays made from a few numbers: evenly spaced values, ones on a diagonal, a window; triangles of matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, copysign
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import computed, is_complex, part
from pytensor_cl.codegen.emitter import Complex, Emitter, Mask, Scalar, Value
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import NegativeLengthError, RangeLengthError
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, MIN_ITEM_ELEMENTS
from pytensor_cl.routines.base.ndrange import Sizes, index_type, item_range, ndrange
from pytensor_cl.routines.base.routine import SCHEDULES, KernelVariants, Plans, Routine
from pytensor_cl.routines.elemwise.routine import Copy, Elemwise, Fill
from pytensor_cl.routines.indexing.diagonal import diagonal
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
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


class Linspace:
    """Make evenly spaced values, the same as `numpy.linspace` does: the last one is the stop itself.

    Inputs are start, stop, and the number of values: numbers of the host. The values are computed in float64, or in
    float32 where the device has no double precision, and then cast; whole numbers are rounded down.

    `dtype`: dtype of the array: any but bool; `endpoint`: whether the stop is the last value.
    """

    def __init__(self, context: Context, dtype: str, *, endpoint: bool = True, schedule: str | None = None) -> None:
        self.context = context
        self.schedule = schedule or context.info.schedule
        self.dtype = np.dtype(dtype)
        self.endpoint = endpoint
        real = "float64" if context.info.has_fp64 else "float32"
        self._wide = np.result_type(real, "complex64") if is_complex(dtype) else np.dtype(real)
        self._kernel: Kernel | None = None

    def _source(self) -> KernelSource:
        wide, dtype = str(self._wide), str(self.dtype)
        emitter = Emitter(1)
        number = emitter.cast(emitter.input("i0", part(wide)), part(wide))
        assert isinstance(number, Value)
        start, step, stop = (emitter.input(f"i{k}", wide) for k in (1, 2, 3))
        is_last = Mask("is_last", 4, emitter)
        value: Scalar
        if isinstance(start, Complex) and isinstance(step, Complex) and isinstance(stop, Complex):
            value = emitter.select(is_last, stop, emitter.bind(emitter.bind(step.scaled(number)) + start))
        else:
            assert isinstance(start, Value) and isinstance(step, Value) and isinstance(stop, Value)
            value = emitter.select(is_last, stop, emitter.bind(emitter.bind(number * step) + start))
            value = value.call("floor") if self.dtype.kind in "iu" else value
        statements = emitter.body((emitter.cast(emitter.bind(value), dtype),))
        arguments = {"dtype": dtype, "wide": wide, "statements": statements, "schedule": self.schedule}
        return kernel_source("creation/linspace", preambles=tuple(emitter.preambles), **arguments)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel."""
        return (self._source(),)

    def __call__(self, start: Any, stop: Any, number: Any) -> tuple[GpuArray, ...]:
        """Make the array.

        Raises `ValueError`: the number of values is negative.
        """
        size = int(number)
        if size < 0:
            raise ValueError(f"Number of samples, {size}, must be non-negative.")
        output = self.context.empty((size,), self.dtype)
        if size:
            has_imaginary = np.iscomplexobj(start) or np.iscomplexobj(stop)
            kind = self._wide if has_imaginary else np.dtype(part(self._wide))
            self._launch(output, kind.type(start), kind.type(stop))
        return (output,)

    def _launch(self, output: GpuArray, start: Any, stop: Any) -> None:
        if self._kernel is None:
            self._kernel = self.context.kernel(self._source())
        size = output.size
        parts = size - 1 if self.endpoint else size
        with np.errstate(all="ignore"):
            step = (stop - start) / type(start)(parts) if parts else stop - start
        numbers = map(self._wide.type, (start, step, stop))
        last = np.int64(size - 1 if self.endpoint and size > 1 else -1)
        sizes: Sizes = item_range(self.context, size, MIN_ITEM_ELEMENTS)
        if self.schedule == "simt":
            sizes = ndrange(self.context, self._kernel, size, GROUP_ITEMS, GROUPS_PER_UNIT)
        where = np.int64(output.layout.offset), np.int64(1), np.int64(size)
        self._kernel.launch(self.context.queue, *sizes, output.buffer, *where, *numbers, last)


@dataclass(frozen=True)
class _OnSide:
    """The element function that keeps ``i0`` of row ``i1`` and column ``i2`` on one side of diagonal ``i3``."""

    dtype: str
    is_lower: bool
    preambles: tuple[str, ...] = ()
    operations: int = 3
    itemsize: int = 8

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the array, of rows, of columns and of the diagonal."""
        return (self.dtype, *("int64",) * 3)

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """The one dtype written."""
        return (self.dtype,)

    def statements(self, lanes: int) -> str:
        """Return the assignment of ``o0``."""
        emitter = Emitter(lanes)
        x, row, column, diagonal = (emitter.input(f"i{k}", dtype) for k, dtype in enumerate(self.input_dtypes))
        assert isinstance(row, Value) and isinstance(column, Value) and isinstance(diagonal, Value)
        above = emitter.bind(column - row)
        is_kept = above <= diagonal if self.is_lower else above >= diagonal
        return emitter.body((emitter.select(is_kept, x, emitter.constant(0, self.dtype)),))


class Triangle(Routine):
    """Keep the elements of matrices on one side of a diagonal, with zeros in place of others: ``triangle(x, k)``.

    `numpy.tril` where `is_lower`, else `numpy.triu`; `ndim`: dimensions of the array, at least 2; ``k``: an integer of
    the host: how far the diagonal is above the main one.
    """

    def __init__(self, context: Context, dtype: str, ndim: int, *, is_lower: bool, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.ndim = ndim
        self.output_dtypes = (dtype,)
        row = (*(True,) * (ndim - 1), False)
        column = (*(True,) * (ndim - 2), False, True)
        known = ((False,) * ndim, column, row, ())
        values = (False, False, False, True)
        self._select = Elemwise(context, _OnSide(dtype, is_lower), known, ndim, values, self.schedule)
        self._numbers = ARange(context, "int64", schedule)
        self._places: Plans[tuple[GpuArray, GpuArray]] = Plans(8)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels with 32-bit indices."""
        return (*self._select.sources(), *self._numbers.sources())

    def layout(self, *inputs: Layout | int) -> tuple[Layout, ...]:
        """Return the layout of the array, C-contiguous.

        Raises `ValueError`: it has another number of dimensions.
        """
        layout = inputs[0]
        assert isinstance(layout, Layout)
        if layout.ndim != self.ndim:
            raise ValueError(f"a triangle of {self.ndim} dimensions, not of shape {layout.shape}")
        return (Layout.contiguous(layout.shape),)

    def _place(self, shape: tuple[int, ...]) -> tuple[GpuArray, GpuArray]:
        """Return the numbers of the rows, and of the columns."""
        (numbers,) = self._numbers(0, max(shape), 1)
        steps = (0,) * (self.ndim - 2)
        ones = (1,) * (self.ndim - 2)
        rows, columns = Layout((*ones, shape[0], 1), (*steps, 1, 0)), Layout((*ones, 1, shape[1]), (*steps, 0, 1))
        return numbers.with_layout(rows), numbers.with_layout(columns)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel; the output may have any strides, and may be the input."""
        array, diagonal = inputs
        if not array.size:
            return
        shape = array.shape[-2:]
        rows, columns = self._places.lookup(shape, lambda: self._place(shape))
        most = sum(shape)  # further away there is no other triangle
        self._select.launch(outputs, (array, rows, columns, np.int64(max(-most, min(most, int(diagonal))))))

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Make a new array."""
        array, diagonal = inputs
        (layout,) = self.layout(array.layout)
        output = self.context.empty(layout.shape, self.output_dtypes[0])
        self.launch((output,), (array, diagonal))
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
