"""Binary search of values in sorted rows, as `numpy.searchsorted`."""

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import GROUP_ITEMS, KERNEL_DIMS
from pytensor_cl.routines.base.ndrange import Sizes, item_range, ndrange
from pytensor_cl.routines.base.routine import Checked, KernelVariants, Plans, struct_argument
from pytensor_cl.routines.sort.limits import MIN_ITEM_SEARCHES, SEARCH_LANES
from pytensor_cl.routines.sort.plan import key_code
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel


@cache
def _geometry_struct(dims: int) -> Struct:
    """Return the struct of the kernel: the values' dimensions from the innermost outwards, steps in elements."""
    return Struct(
        ("long", "size length row_step sorter_step output_at values_at rows_at sorters_at"),
        ("long", f"shape[{dims}] out[{dims}] in[{dims}] row[{dims}] sorter[{dims}]"),
        name="geometry",
    )


class _Plan(NamedTuple):
    """A launch, all but its buffers and the arrays' offsets: the NDRange, and the ends of the geometry."""

    size: int
    head: tuple[int, ...]
    tail: tuple[int, ...]


def _steps(layout: Layout, batch: Sequence[int], core_ndim: int) -> tuple[int, ...]:
    """Return the steps from row to row over the dimensions of the values."""
    rows = Layout(layout.shape[:-1], layout.strides[:-1], 0).broadcast_to(batch)
    return (*rows.strides, *(0,) * core_ndim)


class SearchSorted(Checked):
    """Find the places where values belong in sorted rows, as `numpy.searchsorted` does: int64.

    Inputs are the rows ``(..., n)``, the values ``(..., *core)``, and, where `sorter_dtype` is given, the orders that
    sort the rows ``(..., n)``; leading dimensions are broadcast. Values are compared in the dtype to which NumPy
    promotes those of rows and values.

    `dtypes`: dtypes of the rows and of the values; float16 goes with float16 only; `core_ndim`: dimensions of the
    values that belong to one row; `side`: ``"left"``: before values that are equal; ``"right"``: after them;
    `sorter_dtype`: dtype of the orders; None if rows are sorted.
    """

    output_dtypes = ("int64",)

    def __init__(
        self,
        context: Context,
        dtypes: tuple[str, str],
        core_ndim: int,
        side: str = "left",
        sorter_dtype: str | None = None,
        *,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.core_ndim = core_ndim
        self.is_checked = sorter_dtype is not None
        common = str(np.promote_types(*dtypes))
        code = key_code(common, merges_zeros=True)
        self._arguments: dict[str, Any] = {
            "row_dtype": dtypes[0],
            "value_dtype": dtypes[1],
            "sorter_dtype": sorter_dtype,
            "dtype": common,
            "key": ctype(code.dtype),
            "to_key": code.to_key,
            "side": side,
            "lanes": SEARCH_LANES if self.schedule == "cpu" else 1,
            "schedule": self.schedule,
        }
        self._kernels = KernelVariants(self._build)
        self._plans: Plans[_Plan] = Plans()

    def _source(self, dims: int) -> KernelSource:
        preambles = (render("runtime/error_flag"),) if self.is_checked else ()
        return kernel_source(
            "sort/searchsorted",
            preambles=preambles,
            geometry=_geometry_struct(dims),
            dims=dims,
            in_buffer=self._in_buffer(dims),
            **self._arguments,
        )

    def _in_buffer(self, dims: int) -> bool:
        """Return whether the kernel's struct leaves no room for the other arguments: buffers, and a number."""
        return _geometry_struct(dims).size + 44 > self.context.info.max_parameter_size

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for arrays of a few dimensions."""
        return (self._source(KERNEL_DIMS),)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output: that of the values, broadcast with the rows.

        Raises `ValueError`: leading dimensions do not broadcast together, or the sorter has another length than the
        rows.
        """
        rows, values, *sorter = inputs
        if any(s.shape[-1] != rows.shape[-1] for s in sorter):
            raise ValueError("sorter.size must equal a.size")
        split = values.ndim - self.core_ndim
        batch = np.broadcast_shapes(rows.shape[:-1], values.shape[:split], *(s.shape[:-1] for s in sorter))
        return (Layout.contiguous((*batch, *values.shape[split:])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the output may have any strides."""
        (output,) = outputs
        arrays = [v if isinstance(v, GpuArray) else self.context.from_host(v) for v in inputs]
        key = tuple(a.layout[:2] for a in (output, *arrays))
        plan = self._plans.lookup(key, partial(self._plan, output.layout, *(a.layout for a in arrays)))
        if not plan.size:
            return
        rows, values, *sorter = arrays
        offsets = [a.layout.offset for a in (output, values, rows, *sorter)] + [0] * (1 - len(sorter))
        numbers = (*plan.head, *offsets, *plan.tail)
        sorter_buffers = [v for s in sorter for v in (s.buffer, self.error_flag.buffer, self.number)]
        dims = len(plan.tail) // 5
        kernel = self._kernels[dims]
        geometry = struct_argument(self.context, _geometry_struct(dims).pack_values(*numbers), self._in_buffer(dims))
        queue, sizes = self.context.queue, self._sizes(kernel, plan.size)
        kernel.launch(queue, *sizes, rows.buffer, values.buffer, *sorter_buffers, output.buffer, geometry)

    def _plan(self, output: Layout, rows: Layout, values: Layout, *sorter: Layout) -> _Plan:
        batch = output.shape[: output.ndim - self.core_ndim]
        steps = [_steps(a, batch, self.core_ndim) for a in (rows, *sorter)]
        flat = values.broadcast_to(output.shape)
        operands = (output.strides, flat.strides, *steps, *((0,) * output.ndim,) * (1 - len(sorter)))
        shape, strides = collapse(output.shape, operands)
        unused = max(KERNEL_DIMS, len(shape)) - len(shape)
        columns = [(1,) * unused + shape, *((0,) * unused + s for s in strides)]
        tail = tuple(n for column in columns for n in column[::-1])
        ends = (rows.strides[-1], sorter[0].strides[-1] if sorter else 0)
        return _Plan(prod(output.shape), (prod(output.shape), rows.shape[-1], *ends), tail)

    def _build(self, dims: int) -> Kernel:
        return self.context.kernel(self._source(dims))

    def _sizes(self, kernel: Kernel, size: int) -> Sizes:
        """Return the NDRange and the work-group for a number of searches."""
        if self.schedule == "cpu":
            return item_range(self.context, size, MIN_ITEM_SEARCHES)
        return ndrange(self.context, kernel, size, GROUP_ITEMS)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's ValueError."""
        return ValueError("Sorter index out of range.")
