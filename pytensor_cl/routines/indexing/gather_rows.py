"""Dense rows of an array that one index array picks, on schedule cpu: what `Gather` does with most indices."""

from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import carrier, ctype
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import CORE_CACHE_BYTES, ITEMS_PER_UNIT
from pytensor_cl.routines.indexing.base import Indexing, Shape
from pytensor_cl.routines.indexing.limits import MIN_ITEM_GATHERED, PREFETCHED_ROW_BYTES
from pytensor_cl.routines.indexing.plan import Selection
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

PLAN = Struct(("long", "o x i rows run o_row x_row i_step length exceeds_l2"), name="plan")


class RowsPlan(NamedTuple):
    """A launch, all but its buffers and their offsets."""

    kernel: Kernel
    work_items: int
    sizes: tuple[int, ...]


def is_far(table: int, row: int) -> bool:
    """Return whether kernels should prefetch rows, given the bytes of the table and of a row."""
    return table > CORE_CACHE_BYTES and row <= PREFETCHED_ROW_BYTES


def rows_source(dtype: str, index_dtype: str, is_checked: bool) -> KernelSource:
    """Return the kernel for elements and indices of these dtypes."""
    return kernel_source(
        "indexing/gather_rows",
        preambles=(render("runtime/error_flag"), render("common/to_long"), render("common/prefetch_row")),
        plan=PLAN,
        ctype=carrier(dtype),
        index_type=ctype(index_dtype),
        is_checked=is_checked,
        lanes=64 // max(4, np.dtype(dtype).itemsize),
        index_lanes=64 // max(4, np.dtype(index_dtype).itemsize),
    )


def _rows(shape: Shape, output: Layout, selection: Selection) -> tuple[int, ...] | None:
    """Return number and length of dense rows, and the steps from one to the next in output and index."""
    (array,) = selection.arrays
    lengths, (o, x, i) = collapse(shape, (output.strides, selection.strides, array.strides))
    run, rest = 1, len(lengths)
    if lengths and (o[-1], x[-1], i[-1]) == (1, 1, 0):
        run, rest = lengths[-1], rest - 1
    if rest > 1 or any(x[:rest]):
        return None
    return (lengths[0], run, o[0], i[0]) if rest else (1, run, 0, 0)


def plan_rows(routine: Indexing, source: KernelSource, output: Layout, selection: Selection) -> RowsPlan | None:
    """Plan a gather of rows; None where the index picks something else, or so few long rows that they must be cut.

    `routine`: the gather; of one index array, on schedule cpu.
    """
    found = _rows(selection.shape, output, selection)
    if found is None:
        return None
    (rows, run, o_row, i_step), (array,) = found, selection.arrays
    units = routine.context.info.compute_units
    tasks = ceil_div(rows * run, MIN_ITEM_GATHERED)
    if rows < min(ITEMS_PER_UNIT * units, tasks):
        return None
    row = run * np.dtype(routine.output_dtypes[0]).itemsize
    sizes = rows, run, o_row, array.step, i_step, array.length, int(is_far(array.length * row, row))
    return RowsPlan(routine.kernel(source), min(rows, ITEMS_PER_UNIT * units, tasks), sizes)


def launch_rows(
    routine: Indexing, plan: RowsPlan, output: GpuArray, array: GpuArray, index: GpuArray, shift: int
) -> None:
    """Enqueue what was planned; the selection starts `shift` elements into the array."""
    starts = output.layout.offset, array.layout.offset + shift, index.layout.offset
    error_flag = routine.error_flag.buffer if routine.is_checked else None
    buffers = index.buffer, array.buffer, output.buffer
    packed = PLAN.pack_values(*starts, *plan.sizes)
    plan.kernel.launch(routine.context.queue, (plan.work_items,), (1,), *buffers, packed, error_flag, routine.number)
