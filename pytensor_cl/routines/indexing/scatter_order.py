"""Rows that are added to, or set, in large arrays on schedule cpu: values are put in the order of their positions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.routines.base.limits import INT_LIMIT, ITEMS_PER_UNIT
from pytensor_cl.routines.indexing.base import Indexing
from pytensor_cl.routines.indexing.limits import MAX_POSITIONS_PER_VALUE, MIN_ORDERED_ELEMENTS, SHORT_ROW_BYTES
from pytensor_cl.routines.indexing.plan import Selection
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

PLAN = Struct(
    ("long", "o x y i ends count length run x_row x_step inner y_count y_outer i_step"),
    name="plan",
)


KERNELS = ("count", "totals", "starts", "place", "sum")


class OrderPlan(NamedTuple):
    """Launches, all but their buffers and the arrays' offsets."""

    kernels: tuple[Kernel, ...]
    parts: int
    items: int
    length: int
    total: int
    run: int
    values: tuple[int, ...]  # inner, y_count, y_outer, i_step of `kernels/indexing/scatter_order.mako`


def order_source(dtype: str, index_dtype: str, is_checked: bool, combine: str) -> KernelSource:
    """Return the kernels for elements and indices of these dtypes."""
    return kernel_source(
        "indexing/scatter_order",
        preambles=(render("runtime/error_flag"), render("common/to_long"), render("common/prefetch_row")),
        plan=PLAN,
        ctype=ctype(dtype),
        index_type=ctype(index_dtype),
        is_checked=is_checked,
        combine=combine,
        lanes=64 // max(4, np.dtype(dtype).itemsize),
    )


def plan_order(
    routine: Indexing,
    source: KernelSource,
    output: Layout,
    selection: Selection,
    value: Layout,
    runs: Sequence[tuple[int, int]],
) -> OrderPlan | None:
    """Plan the launches; None where adding one after the other is as fast, or the arrays are unusual.

    `routine`: the scatter; of one index array, on schedule cpu; `output`, `selection`, `value`: arguments of the
    launch; the values have the shape of the selection; `runs`: length and step of the dimensions of the values along
    which the index is; at most two.
    """
    (array,), itemsize = selection.arrays, np.dtype(routine.output_dtypes[0]).itemsize
    count, size, units = selection.positions.size, output.size, routine.context.info.compute_units
    run = size // max(1, array.length)
    is_large = (
        count * run >= MIN_ORDERED_ELEMENTS
        and run * itemsize >= SHORT_ROW_BYTES
        and array.length <= MAX_POSITIONS_PER_VALUE * count
    )
    if units == 1 or not is_large or max(count, units * array.length) >= INT_LIMIT:
        return None
    kept = slice(selection.advanced.stop, None)
    lengths, (o, y) = collapse(selection.shape[kept], (selection.strides[kept], value.strides[kept]))
    _, (i,) = collapse(selection.shape[: kept.start], (array.strides[: kept.start],))
    is_dense = selection.advanced.start == 0 and lengths == (run,) and (o, y) == ((1,), (1,)) and array.step == run
    if not is_dense or len(i) > 1:
        return None
    inner, step = runs[-1] if runs else (count, 0)
    values = inner, step, runs[0][1] if len(runs) > 1 else 0, i[0] if i else 0
    build = tuple(routine.context.kernel(source, f"{source.name}_{kernel}") for kernel in KERNELS)
    return OrderPlan(build, units, ITEMS_PER_UNIT * units, array.length, count, run, values)


def step_names(array: Layout, length: int) -> tuple[int, int] | None:
    """Return the steps from row to row and from element to element of an array; None if it has others."""
    inner, (steps,) = collapse(array.shape[1:], (array.strides[1:],))
    step = steps[0] if steps else 1
    return (array.strides[0] if length > 1 else 0, step) if len(inner) <= 1 and step in (0, 1) else None


def launch_order(
    routine: Indexing,
    plan: OrderPlan,
    output: GpuArray,
    array: GpuArray,
    value: GpuArray,
    index: GpuArray,
    steps: tuple[int, int],
) -> None:
    """Enqueue what was planned; the array has rows of these steps, or is the output."""
    context = routine.context
    counts = context.empty((plan.parts * plan.length,), "int32")
    totals, order = context.empty((plan.parts,), "int32"), context.empty((plan.total,), "int32")
    starts = (a.layout.offset for a in (output, array, value, index))
    ends = (plan.parts - 1) * plan.length  # the last work-item of all notes where the values of a position end
    p = PLAN.pack_values(*starts, ends, plan.total, plan.length, plan.run, *steps, *plan.values)
    error_flag = routine.error_flag.buffer if routine.is_checked else None
    count, total, start, place, add = plan.kernels
    queue, size, one = context.queue, (plan.parts,), (1,)
    count.launch(queue, size, one, index.buffer, counts.buffer, p, error_flag, routine.number)
    total.launch(queue, size, one, counts.buffer, totals.buffer, p)
    start.launch(queue, size, one, counts.buffer, totals.buffer, p)
    place.launch(queue, size, one, index.buffer, counts.buffer, order.buffer, p)
    arrays = array.buffer, value.buffer, output.buffer
    add.launch(queue, (plan.items,), one, counts.buffer, order.buffer, *arrays, p)
