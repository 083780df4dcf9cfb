"""Shared parts of gather and scatter: the index, its checks, and the gather kernel."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, INT_LIMIT, ITEMS_PER_UNIT, MOVE_GROUPS_PER_UNIT
from pytensor_cl.routines.base.ndrange import Sizes, max_offset, ndrange
from pytensor_cl.routines.base.routine import Checked, struct_argument
from pytensor_cl.routines.base.units import MEMBERS, rows_have_vectors, share_out, vector_lanes
from pytensor_cl.routines.indexing.limits import MIN_ITEM_GATHERED, UNIT_ELEMENTS, UNIT_ROWS
from pytensor_cl.routines.indexing.plan import (
    Bounds,
    Entry,
    IndexArray,
    Selection,
    check_bounds,
    out_of_bounds,
    select,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

Shape = tuple[int, ...]
Strides = tuple[tuple[int, ...], ...]
Key = tuple[Any, ...]


class Launch(NamedTuple):
    """A launch, all but its buffers and offsets; without a kernel there is nothing to do."""

    kernel: Kernel | None
    global_size: tuple[int, ...] = ()
    local_size: tuple[int, ...] = ()
    geometry: Any = b""  # the struct, or a buffer that holds it


NO_LAUNCH = Launch(None)


def pad(values: Sequence[int], length: int, fill: int) -> list[int]:
    """Put `fill` before the values until there are `length`."""
    return [fill] * (length - len(values)) + list(values)


def index_type_of(array: Layout, selection: Selection, *others: Layout) -> str:
    """Return the C type, ``int`` or ``long``, of every position and product of extents, with room for a tile."""
    steps = [a.strides for a in selection.arrays] + [layout.strides for layout in others]
    reach = max_offset(array.shape, array.strides), *(max_offset(selection.shape, s) for s in steps)
    return "int" if max(1, *reach, prod(selection.shape) - 1) + 1 < INT_LIMIT - MIN_ITEM_GATHERED else "long"


def value_of(value: Any) -> Any:
    """Return an index input in the form that plans take: the layout of an array, or a number of the host."""
    return value.layout if isinstance(value, GpuArray) else int(value)


class Indexing(Checked):
    """An operation on what an index selects."""

    def __init__(
        self,
        context: Context,
        dtype: str,
        ndim: int,
        entries: Sequence[Entry],
        index_types: Sequence[tuple[str, int] | None],
        bounds: Sequence[Bounds | None] | None = None,
        *,
        constant: bool = False,
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.output_dtypes = (dtype,)
        self.ndim = ndim
        self.entries = tuple(entries)
        used = {at: kind for at in self.entries if isinstance(at, int) and (kind := index_types[at]) is not None}
        self._arrays = tuple(used)
        self._bounds = [bounds[at] if bounds else None for at in used]
        self._dtypes = [dtype for dtype, _ in used.values()]
        self.is_checked = any(b is None for b in self._bounds)
        self.constant = constant
        self.advanced_ndim = max((n for _, n in used.values()), default=0)
        self.kept_ndim = ndim - sum(isinstance(entry, int) for entry in self.entries)
        self._kernels: dict[KernelSource, Kernel] = {}
        self._offsets = Struct(("long", f"o x i[{max(1, len(self._arrays))}]"), name="offsets")

    @property
    def result_ndim(self) -> int:
        """Dimensions of what the index selects."""
        return self.kept_ndim + self.advanced_ndim

    # The gather kernel

    def gather_source(self, kind: str | None, ndim: int, index: str, rows: bool = False) -> KernelSource:
        """Return the kernel that gathers elements of a C type, or positions if that is None.

        `rows`: on schedule simt, whether an index means as many elements as the last dimension has.
        """
        arguments: dict[str, Any] = {
            "preambles": (render("runtime/error_flag"), render("common/to_long")),
            "plan": self._gather_struct(ndim, index),
            "offsets": self._offsets,
            "ctype": kind,
            "index_types": tuple(map(ctype, self._dtypes)),
            "checked": tuple(b is None for b in self._bounds),
            "ndim": max(1, ndim),
            "index": index,
            "plan_in_buffer": self._in_buffer(ndim, index),
        }
        if self.schedule == "simt":
            lanes, rows_each = self._unit(kind, index, rows)
            return kernel_source("indexing/gather_simt", rows=rows, lanes=lanes, rows_each=rows_each, **arguments)
        itemsize = np.dtype(self.output_dtypes[0]).itemsize
        return kernel_source("indexing/gather", lanes=64 // max(4, itemsize), **arguments)

    def _unit(self, kind: str | None, index: str, rows: bool) -> tuple[int, int]:
        """Return how many elements, and of how many rows, a work-item of schedule simt moves at a time."""
        itemsize = np.dtype(self.output_dtypes[0]).itemsize if kind else 4 if index == "int" else 8
        return (vector_lanes(itemsize), UNIT_ROWS) if rows else (UNIT_ELEMENTS, 1)

    def _in_buffer(self, ndim: int, index: str) -> bool:
        """Return whether the kernel's struct leaves no room for the other arguments: offsets, buffers, and a number."""
        pointers = 8 * (max(1, len(self._arrays)) + 3) + 4
        used = self._gather_struct(ndim, index).size + self._offsets.size + pointers
        return used > self.context.info.max_parameter_size

    def _gather_struct(self, ndim: int, index: str) -> Struct:
        """Return the struct of the gather kernel; strides are over the dimensions of the result, in elements."""
        n, count = max(1, ndim), max(1, len(self._arrays))
        return Struct(
            (index, f"shape[{n}] o[{n}] x[{n}] i[{count}][{n}] length[{count}] step[{count}] axis[{count}]"),
            (index, "segment segments units rows" if self.schedule == "cpu" else f"{MEMBERS} row_count"),
            name="plan",
        )

    def kernel(self, source: KernelSource) -> Kernel:
        """Return the kernel object of this routine for a source."""
        kernel = self._kernels.get(source)
        if kernel is None:
            kernel = self._kernels[source] = self.context.kernel(source)
        return kernel

    def plan_gather(
        self, kind: str | None, index: str, shape: Shape, strides: Strides, arrays: Sequence[IndexArray]
    ) -> Launch:
        """Plan a launch of the gather kernel.

        `strides`: strides of the output, the indexed array and the index arrays, over the result; `arrays`: the index
        arrays.
        """
        ndim, unused = max(1, len(shape)), 0 if arrays else 1
        # The step along an axis of length 1 is not used, and may be too large for the kernel's numbers.
        arrays = [a if a.length > 1 else a._replace(step=0) for a in arrays]
        shape, strides = collapse(shape, strides)
        rows = not any(s and s[-1] for s in strides[2:])  # an index means as many elements as the last dimension has
        last, size = shape[-1] if shape else 1, prod(shape)
        source = self.gather_source(kind, ndim, index, rows and self.schedule == "simt")
        kernel = self.kernel(source)
        if self.schedule == "cpu":
            segment = min(last, MIN_ITEM_GATHERED)
            segments = ceil_div(last, segment)
            units = size // last * segments
            shares: tuple[int, ...] = segment, segments, units, rows
            items = min(units, ITEMS_PER_UNIT * self.context.info.compute_units, ceil_div(size, MIN_ITEM_GATHERED))
            sizes: Sizes = (items,), (1,)
        else:
            lanes, rows_each = self._unit(kind, index, rows)
            are_whole = rows and not any(a.step % lanes for a in arrays)
            found = share_out(shape, lanes, are_whole and rows_have_vectors(shape, strides[:2], lanes), rows_each)
            shares = *found, size // last
            sizes = ndrange(self.context, kernel, found.expected, GROUP_ITEMS, MOVE_GROUPS_PER_UNIT)
        steps = [step for s in strides for step in pad(s, ndim, 0)] + [0] * (unused * ndim)
        axes = [*(a.length for a in arrays), *(a.step for a in arrays), *(a.axis for a in arrays)]
        values = [*pad(shape, ndim, 1), *steps, *(axes or [0] * 3), *shares]
        plan = struct_argument(
            self.context, self._gather_struct(ndim, index).pack_values(*values), self._in_buffer(ndim, index)
        )
        return Launch(kernel, *sizes, plan)

    def run(
        self,
        launch: Launch,
        arrays: Sequence[GpuArray],
        target: GpuArray,
        source: GpuArray | None = None,
        shift: int = 0,
    ) -> None:
        """Enqueue a planned launch.

        `arrays`: the index arrays; `source`, `shift`: the indexed array, and where in it the selection starts;
        positions need none.
        """
        if launch.kernel is None:
            return
        places = [a.layout.offset for a in arrays] or [0]
        start = source.layout.offset + shift if source is not None else 0
        offsets = self._offsets.pack_values(target.layout.offset, start, *places)
        buffers = [a.buffer for a in (*arrays, *(() if source is None else (source,)), target)]
        queue, error_flag = self.context.queue, self.error_flag.buffer if self.is_checked else None
        launch.kernel.launch(
            queue, launch.global_size, launch.local_size, *buffers, offsets, launch.geometry, error_flag, self.number
        )

    # The index

    def key(self, array: GpuArray, values: Sequence[Any]) -> Key:
        """Return the key of the plan for an array and its index inputs."""
        return array.layout[:2], *[v.layout[:2] if isinstance(v, GpuArray) else int(v) for v in values]

    def select(self, array: Layout, values: Sequence[Any]) -> Selection:
        """Apply the index, and check what the host can."""
        selection = select(self.entries, array, [value_of(v) for v in values])
        size = selection.positions.size
        for at, found, bounds in zip(self._arrays, selection.arrays, self._bounds, strict=True):
            if bounds is not None:
                check_bounds(bounds, found.axis, found.length)
            elif size and not found.length:
                # There is no element that a kernel could read instead.
                raise out_of_bounds(int(values[at].to_host().flat[0]), found.axis, 0)
        return selection

    def positions(self, selection: Selection, index: str) -> Launch:
        """Plan the launch that writes the position of each combination of indices."""
        dims = slice(selection.advanced.start, selection.advanced.stop)
        shape = selection.shape[dims]
        if 0 in shape:
            return NO_LAUNCH
        strides = Layout.contiguous(shape).strides, (0,) * len(shape), *(a.strides[dims] for a in selection.arrays)
        return self.plan_gather(None, index, shape, strides, selection.arrays)

    def used(self, values: Sequence[Any]) -> list[GpuArray]:
        """Return the index arrays among the index inputs."""
        return [values[at] for at in self._arrays]

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's IndexError."""
        return out_of_bounds(finding.value, finding.detail, finding.limit)
