"""Scatter of many values on schedule simt: positions are sorted, and each segment of equal ones is reduced."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import ndrange
from pytensor_cl.routines.indexing.base import Indexing
from pytensor_cl.routines.indexing.limits import SORTED_CHUNK_VALUES
from pytensor_cl.routines.sort.routine import ArgSort
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.program import Kernel


class SortedPlan(NamedTuple):
    """Launches, all but their buffers and the arrays' offsets.

    `order`: finds the order of the positions; `keys`: the kernel that puts the positions in order; `kernels`: the one
    that sets; or the one that adds, and the one that joins parts of sums; `length`, `elements`: positions, and elements
    of the array that each means; `geometry`: the struct of the kernels.
    """

    order: ArgSort
    keys: Kernel
    kernels: tuple[Kernel, ...]
    length: int
    elements: int
    geometry: bytes


def sorted_source(**arguments: Any) -> KernelSource:
    """Return the kernels; for the arguments see `kernels/indexing/scatter_sorted.mako`."""
    return kernel_source("indexing/scatter_sorted", chunk=SORTED_CHUNK_VALUES, **arguments)


def plan_sorted(
    routine: Indexing,
    source: KernelSource,
    dtype: str,
    size: tuple[int, int],
    geometry: bytes,
    *,
    accumulates: bool,
) -> SortedPlan:
    """Plan the launches.

    `routine`: the scatter; `size`: positions, and elements that each means; `geometry`: the struct of the kernels;
    `accumulates`: whether values are added.
    """
    names = ("sum", "join") if accumulates else ("last",)
    keys, *kernels = (routine.context.kernel(source, f"{source.name}_{name}") for name in ("keys", *names))
    order = ArgSort(routine.context, dtype, 1, 0, schedule="simt")
    return SortedPlan(order, keys, tuple(kernels), *size, geometry)


def sort_positions(routine: Indexing, plan: SortedPlan, positions: GpuArray) -> tuple[GpuArray, GpuArray]:
    """Return the order of the positions, and the positions in that order."""
    context = routine.context
    (order,) = plan.order(positions)
    keys = context.empty((plan.length,), positions.dtype)
    sizes = ndrange(context, plan.keys, plan.length, GROUP_ITEMS)
    plan.keys.launch(context.queue, *sizes, positions.buffer, order.buffer, keys.buffer, np.int64(plan.length))
    return order, keys


def launch_sorted(
    routine: Indexing, plan: SortedPlan, ordered: Sequence[GpuArray], target: GpuArray, shift: int, value: GpuArray
) -> None:
    """Enqueue what writes, or adds, the values.

    `routine`, `plan`: the scatter, and what was planned; `target`: the array that changes; `value`: the values.
    """
    context, (order, keys) = routine.context, ordered
    x = target.buffer, np.int64(target.layout.offset + shift)
    y = value.buffer, np.int64(value.layout.offset)
    kernel, *join = plan.kernels
    if not join:
        sizes = ndrange(context, kernel, plan.length * plan.elements, GROUP_ITEMS)
        buffers = keys.buffer, order.buffer, x[0], y[0]
        kernel.launch(context.queue, *sizes, *buffers, x[1], y[1], plan.geometry)
        return
    count = plan.length
    given: tuple[Any, ...] = order.buffer, *y
    while True:
        chunks = ceil_div(count, SORTED_CHUNK_VALUES)
        left = 2 * chunks if chunks > 1 else 0
        found = context.empty((max(1, left),), keys.dtype)
        parts = context.empty((max(1, left * plan.elements),), target.dtype)
        sizes = ndrange(context, kernel, chunks * plan.elements, GROUP_ITEMS)
        outputs = *x, found.buffer, parts.buffer
        kernel.launch(context.queue, *sizes, keys.buffer, *given, *outputs, np.int64(count), plan.geometry)
        if not left:
            return
        kernel, keys, given, count = join[0], found, (parts.buffer,), left
