"""Values that are added to few positions on schedule simt: work-items have sums of their own in local memory."""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, WorkGroupLimits, power_of_two
from pytensor_cl.routines.indexing.base import Indexing
from pytensor_cl.routines.indexing.limits import (
    FEW_BYTES,
    FEW_COLUMNS,
    FEW_GROUPS_PER_UNIT,
    FEW_READS,
    FEW_ROW_STEP,
    FEW_TILES,
    FINISHED_SUMS,
    MAX_ITEM_FEW,
    MIN_ITEM_FEW,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.program import Kernel


class FewCut(NamedTuple):
    """Division of the work.

    `group`, `finishing`: work-items of the work-groups that add, and that finish; `rows`, `columns`: positions and
    elements of a work-group; `tiles`: work-groups along the second and third dimension; `parts`: chunks of the values.
    """

    group: int
    finishing: int
    rows: int
    columns: int
    tiles: tuple[int, int]
    parts: int
    chunk: int

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the kernels' templates."""
        width = min(FINISHED_SUMS, self.finishing)
        sizes = {"group": self.group, "finishing": self.finishing, "width": width}
        return {**sizes, "rows": self.rows, "columns": self.columns}


class FewPlan(NamedTuple):
    """Launches, all but their buffers and the arrays' offsets.

    `outputs`: elements that are added to; `is_direct`: the kernel reads the index itself, and no positions.
    """

    add: Kernel
    finish: Kernel
    cut: FewCut
    outputs: int
    geometry: bytes
    is_direct: bool


def cut_few(limits: WorkGroupLimits, units: int, itemsize: int, span: int, elements: int, count: int) -> FewCut | None:
    """Divide the work; None if the positions are too many.

    `units`: compute units; `span`: positions that there are; `elements`: elements that each means; `count`: values.
    """
    group = limits.size(SMALL_GROUP_ITEMS, FEW_ROW_STEP * itemsize)
    room = FEW_BYTES // (group * itemsize) // FEW_ROW_STEP * FEW_ROW_STEP
    rows = min(round_up(span, FEW_ROW_STEP), max(FEW_ROW_STEP, room))
    if limits.size(group, rows * itemsize) < group:
        rows = FEW_ROW_STEP
    columns = min(group, FEW_COLUMNS, power_of_two(2 * elements - 1))
    tiles = ceil_div(span, rows), ceil_div(elements, columns)
    if tiles[0] > FEW_TILES or (tiles[0] > 1 and tiles[0] * count * elements > FEW_READS) or tiles[1] > MAX_GROUPS:
        return None
    items = count * columns // group  # values for each work-item of a single work-group
    busy = min(FEW_GROUPS_PER_UNIT * units // prod(tiles), items // MIN_ITEM_FEW)
    wanted = max(1, busy, items // MAX_ITEM_FEW)
    chunk = ceil_div(count, wanted)
    return FewCut(group, limits.size(GROUP_ITEMS, itemsize), rows, columns, tiles, ceil_div(count, chunk), chunk)


def few_source(cut: FewCut, **arguments: Any) -> KernelSource:
    """Return the kernels; for the arguments see `kernels/indexing/scatter_few.mako`."""
    return kernel_source("indexing/scatter_few", **cut.arguments, **arguments)


def plan_few(
    routine: Indexing, source: KernelSource, cut: FewCut, outputs: int, geometry: bytes, *, is_direct: bool
) -> FewPlan:
    """Plan the launches.

    `routine`: the scatter; `outputs`, `is_direct`: see `FewPlan`; `geometry`: the struct of the kernels.
    """
    add = routine.limits.kernel(source, f"{source.name}_add", cut.group)
    finish = routine.limits.kernel(source, f"{source.name}_finish", cut.finishing)
    return FewPlan(add, finish, cut, outputs, geometry, is_direct)


def launch_few(
    routine: Indexing,
    plan: FewPlan,
    positions: GpuArray,
    target: GpuArray,
    shift: int,
    value: GpuArray,
    old: tuple[GpuArray, int] | None = None,
) -> None:
    """Enqueue what adds the values.

    `routine`, `plan`: the scatter, and what was planned; `positions`: positions, or the index; `target`: the array that
    changes; `value`: the values; `old`: what is added to, and the step of its elements; None if that is in the target.
    """
    context, cut = routine.context, plan.cut
    parts = context.empty((cut.parts * plan.outputs,), target.dtype)
    buffers = positions.buffer, value.buffer, parts.buffer
    adding = (cut.parts * cut.group, *cut.tiles), (cut.group, 1, 1)
    arguments: tuple[Any, ...] = np.int64(value.layout.offset), plan.geometry
    if plan.is_direct:
        error_flag = routine.error_flag.buffer if routine.is_checked else None
        arguments = *arguments, np.int64(positions.layout.offset), error_flag, routine.number
    plan.add.launch(context.queue, *adding, *buffers, *arguments)
    width = cut.arguments["width"]
    groups = min(ceil_div(plan.outputs, width), GROUPS_PER_UNIT * context.info.compute_units)
    x = target.buffer, np.int64(target.layout.offset + shift)
    array, step = old or (target, 1)
    before = array.buffer, np.int64(array.layout.offset + shift * step), np.int32(step)
    sizes = (groups * cut.finishing,), (cut.finishing,)
    plan.finish.launch(context.queue, *sizes, parts.buffer, *x, *before, plan.geometry)
