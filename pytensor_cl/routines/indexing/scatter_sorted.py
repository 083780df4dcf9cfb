"""Scatter of many values on schedule simt: positions are sorted, and each segment of equal ones is reduced."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, ndrange
from pytensor_cl.routines.indexing.base import Indexing
from pytensor_cl.routines.indexing.limits import (
    FINISHED_SUMS,
    SORTED_BLOCK_CHUNKS,
    SORTED_CHUNK_VALUES,
    SORTED_FEW_PARTS,
)
from pytensor_cl.routines.sort.routine import SortIndices
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.program import Kernel


class SortedPlan(NamedTuple):
    """Launches, all but their buffers and the arrays' offsets.

    `order`: sorts the positions; `kernels`: the one that sets; or the one that adds, and the one that joins parts of
    sums; `group`: work-items of a work-group that joins; `length`, `elements`: positions, and elements of the array
    that each means; `geometry`: the struct of the kernels; `lanes`: elements of an aligned vector that a work-item
    adds; `single`: the kernel that adds one element, for arrays that are not aligned.
    """

    order: SortIndices
    kernels: tuple[Kernel, ...]
    group: int
    length: int
    elements: int
    geometry: bytes
    lanes: int
    single: KernelSource


def sorted_source(routine: Indexing, itemsize: int, **arguments: Any) -> KernelSource:
    """Return the kernels; for the arguments see `kernels/indexing/scatter_sorted.mako`."""
    group = _join_group(routine, itemsize)
    return kernel_source(
        "indexing/scatter_sorted",
        chunk=SORTED_CHUNK_VALUES,
        group=group,
        block=SORTED_BLOCK_CHUNKS,
        few_parts=SORTED_FEW_PARTS,
        width=min(FINISHED_SUMS, group),
        **arguments,
    )


def _join_group(routine: Indexing, itemsize: int) -> int:
    return routine.limits.size(GROUP_ITEMS, itemsize, 8 * SORTED_BLOCK_CHUNKS)


def plan_sorted(
    routine: Indexing,
    sources: Sequence[KernelSource],
    lanes: int,
    dtype: str,
    size: tuple[int, int, int],
    geometry: bytes,
    *,
    accumulates: bool,
    is_checked: bool,
) -> SortedPlan:
    """Plan the launches.

    `routine`: the scatter; `sources`: the kernels with vectors of `lanes` elements, and with one; `dtype`: of the
    positions; `size`: positions that there can be, that there are, and elements
    that each means; `geometry`: the struct of the kernels; `accumulates`: whether values are added; `is_checked`:
    whether positions may be -1, which come last.
    """
    (span, length, elements), (source, single) = size, sources
    group = _join_group(routine, np.dtype(routine.output_dtypes[0]).itemsize)
    kernels: tuple[Kernel, ...]
    if accumulates:
        join = routine.limits.kernel(source, f"{source.name}_join", group)
        kernels = routine.context.kernel(source, f"{source.name}_sum"), join
    else:
        kernels = (routine.context.kernel(source, f"{source.name}_last"),)
    order = SortIndices(routine.context, f"u{dtype}", span + is_checked)
    return SortedPlan(order, kernels, group, length, elements, geometry, lanes, single)


def launch_sorted(
    routine: Indexing, plan: SortedPlan, ordered: Sequence[GpuArray], target: GpuArray, shift: int, value: GpuArray
) -> None:
    """Enqueue what writes, or adds, the values.

    `routine`, `plan`: the scatter, and what was planned; `ordered`: the sorted positions, and their order; `target`:
    the array that changes; `value`: the values.
    """
    context, (keys, order) = routine.context, ordered
    x = target.buffer, np.int64(target.layout.offset + shift)
    y = value.buffer, np.int64(value.layout.offset)
    kernel, *join = plan.kernels
    if not join:
        sizes = ndrange(context, kernel, plan.length * plan.elements, GROUP_ITEMS)
        buffers = keys.buffer, order.buffer, x[0], y[0]
        kernel.launch(context.queue, *sizes, *buffers, x[1], y[1], plan.geometry)
        return
    lanes = plan.lanes
    if x[1] % lanes or y[1] % lanes:
        kernel, lanes = context.kernel(plan.single, f"{plan.single.name}_sum"), 1
    chunks = ceil_div(plan.length, SORTED_CHUNK_VALUES)
    found = context.empty((chunks,), keys.dtype)
    parts = context.empty((2 * chunks * plan.elements,), target.dtype)
    sizes = ndrange(context, kernel, chunks * plan.elements // lanes, GROUP_ITEMS)
    kernel.launch(context.queue, *sizes, keys.buffer, order.buffer, *y, *x, found.buffer, parts.buffer, plan.geometry)
    if chunks > 1:
        tiles = min(MAX_GROUPS, ceil_div(plan.elements, min(FINISHED_SUMS, plan.group)))
        sizes = (ceil_div(chunks, SORTED_BLOCK_CHUNKS) * plan.group, tiles), (plan.group, 1)
        join[0].launch(context.queue, *sizes, keys.buffer, *x, found.buffer, parts.buffer, plan.geometry)
