"""Reductions of bags of rows: of those rows of a table that an index picks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import INT_LIMIT, ITEMS_PER_UNIT
from pytensor_cl.routines.base.ndrange import Sizes, ndrange
from pytensor_cl.routines.base.routine import Checked, Plans
from pytensor_cl.routines.indexing.gather_rows import is_far
from pytensor_cl.routines.indexing.gather_scatter import Gather
from pytensor_cl.routines.indexing.limits import MAX_SEQUENTIAL_ROWS, MIN_BAG_ITEMS, MIN_ITEM_GATHERED
from pytensor_cl.routines.indexing.plan import Bounds, check_bounds
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

PLAN = Struct(("long", "table i o bags count columns row length bag_step step is_far"), name="plan")


class _Plan(NamedTuple):
    """A launch, all but its buffers and their offsets; without work-items, rows are gathered first."""

    work_items: int
    sizes: tuple[int, ...] = ()


UNFUSED = _Plan(0)


class EmbeddingBag(Checked):
    """``reduction(table[index], axes)``, where the axes are some of the index: ``bag(table, index)``.

    `dtypes`: dtypes of the table, of the arithmetic and of the output, real and no float16; `ndim`: dimensions of the
    table; `index_type`: dtype and dimensions of the index; `axes`: reduced axes of the index, not negative; at least
    one; `bounds`: the least and the greatest index, if they are known.
    """

    def __init__(
        self,
        context: Context,
        operation: str,
        dtypes: tuple[str, str, str],
        ndim: int,
        index_type: tuple[str, int],
        axes: Sequence[int],
        bounds: Bounds | None = None,
        *,
        initial: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = dtypes[2:]
        self._dtypes = dtypes
        self._index_dtype = index_type[0]
        self._axes = frozenset(axes)
        self._bounds = bounds
        self.is_checked = bounds is None
        options: dict[str, Any] = {"schedule": schedule}
        self._gather = Gather(context, dtypes[0], ndim, (0,), (index_type,), (bounds,), **options)
        result_ndim = index_type[1] + ndim - 1
        self._reduction = Reduction(context, operation, *dtypes, result_ndim, axes, initial=initial, **options)
        self._kernel: Kernel | None = None
        self._plans: Plans[_Plan] = Plans()

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel; those of the gather and the reduction are built when they are needed."""
        return (self._source(),)

    def _source(self) -> KernelSource:
        in_dtype, _, out_dtype = self._dtypes
        return kernel_source(
            "indexing/embedding_bag" + ("_simt" if self.schedule == "simt" else ""),
            preambles=(
                render("runtime/error_flag"),
                render("common/to_long"),
                *((render("common/prefetch_row"),) if self.schedule == "cpu" else ()),
            ),
            plan=PLAN,
            index_type=ctype(self._index_dtype),
            is_checked=self.is_checked,
            in_dtype=in_dtype,
            out_dtype=out_dtype,
            lanes=8 if np.dtype(in_dtype).itemsize == 8 else 16,
            unit=True,
            index="long",
            pair_in=False,
            pair_out=False,
            **self._reduction.accumulator,
        )

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's IndexError."""
        return self._gather.error(finding)

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the result.

        Raises `ValueError`: it is ``maximum`` or ``minimum`` of no elements.
        """
        return self._reduction.layout(*self._gather.layout(*inputs))

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel, or a gather and a reduction where that is faster or the arrays are unusual."""
        (output,), (table, index) = outputs, inputs
        layouts = output.layout, table.layout, index.layout
        key = tuple([layout[:2] for layout in layouts])
        plan = self._plans.lookup(key, lambda: self._plan(*layouts))
        if not plan.work_items:
            self._gather.set_error_flag(self.error_flag, int(self.number))
            self._reduction.launch(outputs, self._gather(table, index))
            return
        if self._kernel is None:
            self._kernel = self.context.kernel(self._source())
        starts = table.layout.offset, index.layout.offset, output.layout.offset
        packed = PLAN.pack_values(*starts, *plan.sizes)
        error_flag = self.error_flag.buffer if self.is_checked else None
        buffers = table.buffer, index.buffer, output.buffer
        sizes: Sizes = (plan.work_items,), (1,)
        if self.schedule == "simt":
            sizes = ndrange(self.context, self._kernel, plan.work_items)
        self._kernel.launch(self.context.queue, *sizes, *buffers, packed, error_flag, self.number)

    def _plan(self, output: Layout, table: Layout, index: Layout) -> _Plan:
        if self._bounds is not None and index.size:
            check_bounds(self._bounds, 0, table.shape[0])
        if not (output.size and index.size and table.size and output.is_contiguous):
            return UNFUSED
        dims = list(enumerate(zip(index.shape, index.strides, strict=True)))
        bags, count = (
            _line([dim for axis, dim in dims if (axis in self._axes) == reduced]) for reduced in (False, True)
        )
        columns = _line(list(zip(table.shape[1:], table.strides[1:], strict=True)))
        if bags is None or count is None or columns is None or (columns[0] > 1 and columns[1] != 1):
            return UNFUSED
        units, work = self.context.info.compute_units, output.size * count[0]
        is_inexact = (
            count[0] > MAX_SEQUENTIAL_ROWS
            and self._reduction.acc_dtype == "float32"
            and not self._reduction.is_compensated
        )
        is_simt = self.schedule == "simt"
        busy = output.size >= MIN_BAG_ITEMS * units if is_simt else bags[0] >= units
        is_large = max(work, table.size, index.size) >= INT_LIMIT // 2  # for numbers of 32 bits in the kernel
        if is_inexact or (not busy and work >= MIN_ITEM_GATHERED * units) or (is_simt and is_large):
            return UNFUSED
        itemsize = np.dtype(self._dtypes[0]).itemsize
        far = count[1] > 0 and is_far(table.size * itemsize, columns[0] * itemsize)
        sizes = bags[0], count[0], columns[0], table.strides[0], table.shape[0], bags[1], count[1], int(far)
        if is_simt:
            return _Plan(output.size, sizes)
        return _Plan(max(1, min(bags[0], ITEMS_PER_UNIT * units, work // MIN_ITEM_GATHERED)), sizes)


def _line(dims: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return length and step of dimensions that can be merged into one, or None."""
    shape, (steps,) = collapse([n for n, _ in dims], ([step for _, step in dims],))
    if len(shape) > 1:
        return None
    return (shape[0], steps[0]) if shape else (1, 0)
