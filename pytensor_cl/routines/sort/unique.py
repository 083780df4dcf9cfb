"""Distinct values, or slices, of an array, as `numpy.unique`."""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, is_complex, part
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.routines.base.limits import GROUP_ITEMS, INT_LIMIT
from pytensor_cl.routines.base.ndrange import Sizes, item_range, ndrange
from pytensor_cl.routines.base.routine import Routine
from pytensor_cl.routines.cumop import CumOp
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.sort.limits import MIN_ITEM_UNIQUE
from pytensor_cl.routines.sort.plan import key_code
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class _Parts(NamedTuple):
    """Parts that number runs of equal values: the kernels, and the cumulative sum of the marks."""

    sums: CumOp
    values: KernelSource
    rows: KernelSource


class Unique(Routine):
    """Find what occurs in an array, in ascending order, as `numpy.unique` does.

    Outputs are the values, or, along an axis, the slices; then, if requested, where each comes first,
    the number of each element's value, and how often each comes (int64, 1-D). Slices with NaN are all different.
    Complex numbers are in the order of their real, then their imaginary parts; those with NaN come last. The number of
    values depends on the data, so a call waits for the device.

    `ndim`: number of dimensions; `axis`: axis of the slices that are compared; None compares values; `return_index`,
    `return_inverse`, `return_counts`: whether there are these outputs besides the first; `equal_nan`: whether NaN
    counts as one value; else each one counts, as in the standard of arrays.
    """

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        axis: int | None = None,
        *,
        return_index: bool = False,
        return_inverse: bool = False,
        return_counts: bool = False,
        equal_nan: bool = True,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.ndim = ndim
        self.axis = None if ndim == 1 else axis
        self.wanted = (return_index, return_inverse, return_counts)
        self.output_dtypes = (dtype, *("int64",) * sum(self.wanted))
        self._dtype = part(dtype)
        self._is_complex = is_complex(dtype)
        self._by_row = self.axis is not None or self._is_complex
        self._has_distinct_nan = np.dtype(dtype).kind in "fc" and (self.axis is not None or not equal_nan)
        self._needs_order = self._by_row or return_index or return_inverse
        self._copy = Copy(context, dtype, ndim, schedule=self.schedule)
        kind = ArgSort if self._needs_order else Sort
        self._sort = None if self._by_row else kind(context, dtype, 1, 0, schedule=self.schedule)
        self._parts: dict[str, _Parts] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def _parts_for(self, place: str) -> _Parts:
        if place not in self._parts:
            code = key_code(self._dtype, merges_zeros=True)
            shared: dict[str, Any] = {"key": ctype(code.dtype), "to_key": code.to_key}
            shared |= {"number_type": ctype(place), "schedule": self.schedule}
            shared["has_distinct_nan"] = self._has_distinct_nan
            are_numbers = self._is_complex and self.axis is None
            values = kernel_source("sort/unique", ordered=self._needs_order, inverse=self.wanted[1], **shared)
            sums = CumOp(self.context, "add", place, 1, 0, schedule=self.schedule)
            self._parts[place] = _Parts(
                sums, values, kernel_source("sort/unique_rows", are_numbers=are_numbers, **shared)
            )
        return self._parts[place]

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels for arrays of less than 2**31 elements."""
        sums, values, rows = self._parts_for("int32")
        if self._sort is None:
            return (values, rows, *sums.sources())
        return (values, *self._sort.sources(), *sums.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Raise: the outputs' shapes depend on values."""
        raise NotImplementedError("the shapes of what `unique` returns depend on values")

    def __call__(self, *inputs: GpuArray | np.generic) -> tuple[GpuArray, ...]:
        """Compute the outputs; waits for their length."""
        (source,) = inputs
        if not isinstance(source, GpuArray):
            source = self.context.from_host(source)
        if source.ndim != self.ndim:
            raise ValueError(f"unique of {self.ndim} dimensions, not of shape {source.shape}")
        x, (n, columns) = self._matrix(source)
        parts = self._parts_for("int32" if n < INT_LIMIT else "int64")
        order = self._order(x, parts, n, columns)
        results = self._number(x, order, parts, n, columns)
        return (self._shaped(results[0], source), *results[1:])

    def _matrix(self, source: GpuArray) -> tuple[GpuArray, tuple[int, int]]:
        """Return contiguous rows that are to be compared, their number, and their length."""
        if self.axis is None:
            n, layout, columns = source.size, source.layout, 1
        else:
            order = (self.axis, *(d for d in range(self.ndim) if d != self.axis))
            layout = source.layout.transpose(order)
            n, columns = layout.shape[0], prod(layout.shape[1:])
        x = source.with_layout(layout)
        x = x if layout.is_contiguous else self._copy(x)[0]
        if self._is_complex:  # rows of pairs
            pairs = Layout((n, 2 * columns), (2 * columns, 1), 2 * x.layout.offset)
            return GpuArray(x.context, x.buffer, np.dtype(self._dtype), pairs), (n, 2 * columns)
        return x, (n, columns)

    def _order(self, x: GpuArray, parts: _Parts, n: int, columns: int) -> GpuArray:
        """Return the order of the rows; or, if it is not needed, the sorted values themselves."""
        if self._sort is not None:
            return self._sort(x.with_layout(Layout((n,), (1,), x.layout.offset)))[0]
        order, width = self.context.empty((n,), "int64"), 1
        while width < max(n, 2):
            merged = self.context.empty((n,), "int64")
            sizes = np.int64(n), np.int64(columns), np.int64(width)
            self._run(parts.rows, "_merge", n, x.buffer, np.int64(x.layout.offset), order.buffer, merged.buffer, *sizes)
            order, width = merged, 2 * width
        return order

    def _number(self, x: GpuArray, order: GpuArray, parts: _Parts, n: int, columns: int) -> list[GpuArray]:
        """Number the runs of equal rows in the order, and describe them."""
        empty = self.context.empty
        if not self._needs_order:
            x = order
        at, place = (x.buffer, np.int64(x.layout.offset)), parts.sums.output_dtypes[0]
        source, row = (parts.rows, (np.int64(columns),)) if self._by_row else (parts.values, ())
        marks, inverse = empty((n,), place), empty((n,) if self.wanted[1] else (0,), "int64")
        self._run(source, "_heads", n, *at, order.buffer, marks.buffer, np.int64(n), *row)
        (numbers,) = parts.sums(marks)
        found = int(self.context.download(numbers[n - 1 :])[0]) if n else 0
        starts, values = empty((found,), "int64"), empty((found * columns,), self._dtype)
        both = starts.buffer, inverse.buffer
        self._run(parts.values, "_starts", n, numbers.buffer, order.buffer, *both, np.int64(n))
        first, counts = (empty((found,), "int64") if wanted else None for wanted in self.wanted[::2])
        outs = values.buffer, *(None if a is None else a.buffer for a in (first, counts))
        sizes = np.int64(n), np.int64(found), *row
        self._run(source, "_results", found, *at, order.buffer, starts.buffer, *outs, *sizes)
        return [a for a in (values, first, inverse if self.wanted[1] else None, counts) if a is not None]

    def _shaped(self, values: GpuArray, source: GpuArray) -> GpuArray:
        """Return found slices with their axis where it was in the input."""
        if self._is_complex:
            whole = Layout.contiguous((values.size // 2,))
            values = GpuArray(values.context, values.buffer, np.dtype(self.output_dtypes[0]), whole)
        if self.axis is None:
            return values
        others = [n for d, n in enumerate(source.shape) if d != self.axis]
        found = values.size // prod(others) if prod(others) else min(1, source.shape[self.axis])
        order = [*range(1, self.axis + 1), 0, *range(self.axis + 1, self.ndim)]
        return values.with_layout(Layout.contiguous((found, *others)).transpose(order))

    def _run(self, source: KernelSource, suffix: str, size: int, *arguments: Any) -> None:
        """Enqueue a kernel over `size` elements."""
        if not size:
            return
        key = source.name, suffix
        if key not in self._kernels:
            self._kernels[key] = self.context.kernel(source, source.name + suffix)
        if self.schedule == "cpu":
            sizes: Sizes = item_range(self.context, size, MIN_ITEM_UNIQUE)
        else:
            sizes = ndrange(self.context, self._kernels[key], size, GROUP_ITEMS)
        self._kernels[key].launch(self.context.queue, *sizes, *arguments)
