"""Slices of an array that are set or added to, in a copy: one kernel for the copy and all of them."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS, MOVE_GROUPS_PER_UNIT
from pytensor_cl.routines.base.ndrange import index_type, max_offset, ndrange
from pytensor_cl.routines.base.routine import KernelVariants, Plans
from pytensor_cl.routines.base.units import MEMBERS, share_out
from pytensor_cl.routines.indexing.limits import (
    FIXED_ARGUMENT_BYTES,
    MAX_UNIT_SLICES,
    MIN_ITEM_SLICED,
    MIN_WRITTEN_SHARE,
    MIN_WRITTEN_SHARE_NON_TEMPORAL,
    POINTER_ARGUMENT_BYTES,
    SEGMENT_BYTES,
    UNIT_ELEMENTS,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device_copy import PAST_CACHE
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

Items = tuple[int | slice, ...]

_COMBINE = {"f": "{a} + {b}", "i": "{a} + {b}", "u": "{a} + {b}", "b": "{a} | {b}"}


class _Axis(NamedTuple):
    """Elements of a dimension that a slice takes, in ascending order; `y`, `shift`: step and first of the values."""

    start: int
    taken: int
    step: int
    y: int
    shift: int = 0


class _Plan(NamedTuple):
    source: KernelSource
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    geometry: bytes
    shifts: tuple[int, ...]


def _axis(item: int | slice, n: int, y: int) -> _Axis:
    if not isinstance(item, slice):
        return _Axis(item % n, 1, 1, 0)
    start, stop, step = item.indices(n)
    count = len(range(start, stop, step))
    if count <= 1:  # the step may be too large for the kernel's numbers
        return _Axis(start, count, 1, y)
    if step > 0:
        return _Axis(start, count, step, y)
    return _Axis(start + (count - 1) * step, count, -step, -y, (count - 1) * y)


def _axes(items: Items, shape: Sequence[int], value: Layout) -> list[_Axis]:
    """Return the elements that an index takes of each dimension; the value has the same shape."""
    items = (*items, *[slice(None)] * (len(shape) - len(items)))
    steps = iter(value.strides)
    return [_axis(i, n, next(steps) if isinstance(i, slice) else 0) for i, n in zip(items, shape, strict=True)]


def _numbers(axis: _Axis) -> tuple[int, ...]:
    """Return what the kernel needs of an axis; the step of a single value may be too large for its numbers."""
    return axis if axis.taken > 1 else axis._replace(y=0)


def _joins(n: int, outer: tuple[_Axis, ...], inner: tuple[_Axis, ...]) -> bool:
    """Return whether each slice takes all of the `n` elements of a dimension, so that it and the one before are one."""
    pairs = zip(outer, inner, strict=True)
    return all(i[:3] == (0, n, 1) and o.step == 1 and o.y == i.y * n for o, i in pairs)


def _merged(
    shape: Sequence[int], steps: Sequence[int], axes: Sequence[tuple[_Axis, ...]]
) -> tuple[list[int], list[int], list[tuple[_Axis, ...]]]:
    """Merge dimensions that can be merged in all arrays."""
    lengths, own, merged = [shape[-1]], [steps[-1]], [axes[-1]]
    for n, step, outer in zip(shape[-2::-1], steps[-2::-1], axes[-2::-1], strict=True):
        m, inner = lengths[0], merged[0]
        if step == own[0] * m and _joins(m, outer, inner):
            lengths[0] *= n
            merged[0] = tuple(
                _Axis(o.start * m, o.taken * m, 1, i.y, o.shift + i.shift) for o, i in zip(outer, inner, strict=True)
            )
        else:
            lengths.insert(0, n)
            own.insert(0, step)
            merged.insert(0, outer)
    return lengths, own, merged


class SliceUpdate:
    """Copy an array with slices set or added to: no element is written to memory twice.

    `dtype`, `ndim`: dtype of the array and of the values, and number of dimensions of the array; `adds`: for each
    slice, whether it is added to; `schedule`: "cpu" or "simt", that of the device if None.
    """

    def __init__(
        self, context: Context, dtype: str, ndim: int, adds: Sequence[bool], schedule: str | None = None
    ) -> None:
        self._context = context
        self._ndim = max(1, ndim)
        self._schedule = schedule or context.info.schedule
        self._dtype = np.dtype(dtype)
        self._combines = tuple(_COMBINE[self._dtype.kind] if add else "{b}" for add in adds)
        self._offsets = Struct(("long", f"o x y[{len(adds)}]"), name="offsets")
        self._segment = SEGMENT_BYTES // self._dtype.itemsize
        self._lanes = UNIT_ELEMENTS if len(adds) <= MAX_UNIT_SLICES else 1  # of a work-item of schedule simt
        self._plans: Plans[_Plan] = Plans()
        self._kernels: KernelVariants[KernelSource, Kernel] = KernelVariants(context.kernel)
        self._cpu_source = self._source("long") if self._schedule == "cpu" else None

    def _plan_struct(self, index: str) -> Struct:
        n, count = self._ndim, len(self._combines)
        return Struct(
            (index, f"{'segment segments tasks' if self._schedule == 'cpu' else MEMBERS} shape[{n}] x[{n}]"),
            (index, f"start[{count}][{n}] count[{count}][{n}] step[{count}][{n}] y[{count}][{n}]"),
            name="plan",
        )

    def _source(self, index: str) -> KernelSource:
        arguments: dict[str, Any] = {
            "plan": self._plan_struct(index),
            "offsets": self._offsets,
            "ctype": ctype(self._dtype),
            "ndim": self._ndim,
            "combines": self._combines,
        }
        if self._schedule == "simt":
            return kernel_source("indexing/slice_update_simt", index=index, lanes=self._lanes, **arguments)
        return kernel_source("indexing/slice_update", lanes=64 // max(4, self._dtype.itemsize), **arguments)

    @staticmethod
    def takes(context: Context, dtype: str, ndim: int, count: int) -> bool:
        """Return whether the arguments of a kernel for this number of slices fit."""
        room = context.info.max_parameter_size - FIXED_ARGUMENT_BYTES - count * POINTER_ARGUMENT_BYTES
        is_plain = np.dtype(dtype).kind in _COMBINE and dtype != "float16"
        return is_plain and 8 * max(1, ndim) * (2 + 4 * count) <= room

    def pays(self, array: GpuArray, written: int) -> bool:
        """Return whether one kernel is faster than a copy and a kernel for each slice."""
        if self._schedule == "simt":  # a launch less, and no write more
            return array.size > 0
        return (
            written
            >= (MIN_WRITTEN_SHARE_NON_TEMPORAL if array.nbytes >= PAST_CACHE else MIN_WRITTEN_SHARE) * array.size
            > 0
        )

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel; on schedule simt, the one with 32-bit indices."""
        return (self._cpu_source or self._source("int"),)

    def launch(self, output: GpuArray, array: GpuArray, items: Sequence[Items], values: Sequence[GpuArray]) -> None:
        """Enqueue the kernel.

        `output`: c-contiguous, not empty, and no other array of these; `items`: the index of each slice; `values`:
        arrays that are written there, in the shape of the selection.
        """
        key = array.layout[:2], tuple(items), tuple([v.layout[:2] for v in values])
        plan = self._plans.lookup(key, lambda: self._plan(array.layout, items, [v.layout for v in values]))
        starts = [
            output.layout.offset,
            *(a.layout.offset + s for a, s in zip((array, *values), plan.shifts, strict=True)),
        ]
        buffers = [a.buffer for a in (output, array, *values)]
        offsets = self._offsets.pack_values(*starts)
        kernel = self._kernels[plan.source]
        kernel.launch(self._context.queue, plan.global_size, plan.local_size, *buffers, offsets, plan.geometry)

    def _plan(self, array: Layout, items: Sequence[Items], values: Sequence[Layout]) -> _Plan:
        each = [
            _axes(i, array.shape, v) if array.shape else [_Axis(0, 1, 1, 0)] for i, v in zip(items, values, strict=True)
        ]
        shape, steps, axes = _merged(array.shape or (1,), array.strides or (0,), list(zip(*each, strict=True)))
        shifts = 0, *(sum(axis[w].shift for axis in axes) for w in range(len(values)))
        extra = self._ndim - len(shape)
        whole = [_Axis(0, 1, 1, 0)] * extra
        columns = [[*whole, *(axis[w] for axis in axes)] for w in range(len(values))]
        rest = (_numbers(column[d])[k] for k in range(4) for column in columns for d in range(self._ndim))
        steps = [step if n > 1 else 0 for n, step in zip(shape, steps, strict=True)]
        numbers = [*[1] * extra, *shape, *[0] * extra, *steps, *rest]
        if self._schedule == "simt":
            return self._simt_plan(shape, numbers, [array, *values], shifts)
        segments = ceil_div(shape[-1], self._segment)
        tasks = prod(shape[:-1]) * segments
        work_items = max(1, min(tasks, self._context.info.compute_units, prod(shape) // MIN_ITEM_SLICED))
        geometry = self._plan_struct("long").pack_values(self._segment, segments, tasks, *numbers)
        assert self._cpu_source is not None
        return _Plan(self._cpu_source, (work_items,), (1,), geometry, shifts)

    def _simt_plan(
        self, shape: Sequence[int], numbers: Sequence[int], arrays: Sequence[Layout], shifts: tuple[int, ...]
    ) -> _Plan:
        # A slice may begin, and step, as far from an element as the array is long.
        index = index_type(max(2 * prod(shape), *(max_offset(a.shape, a.strides) for a in arrays)))
        units = share_out(shape, self._lanes)
        source = self._source(index)
        kernel = self._kernels[source]
        sizes = ndrange(self._context, kernel, units.expected, GROUP_ITEMS, MOVE_GROUPS_PER_UNIT)
        return _Plan(source, *sizes, self._plan_struct(index).pack_values(*units, *numbers), shifts)
