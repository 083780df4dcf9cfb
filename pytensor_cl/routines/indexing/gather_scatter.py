"""Indexing with arrays: gather, and scatter that sets or adds."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import carrier, ctype, literal
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.limits import GROUP_ITEMS, GROUPS_PER_UNIT, KEPT_BYTES
from pytensor_cl.routines.base.ndrange import MAX_GROUPS, index_type, ndrange
from pytensor_cl.routines.base.routine import DeviceTables, Plans
from pytensor_cl.routines.elemwise.routine import Copy, without_overlap
from pytensor_cl.routines.indexing.base import NO_LAUNCH, Indexing, Launch, Shape, Strides, index_type_of, pad, value_of
from pytensor_cl.routines.indexing.gather_rows import RowsPlan, is_far, launch_rows, plan_rows, rows_source
from pytensor_cl.routines.indexing.limits import (
    ALL_COPIES_BYTES,
    ATOMIC_ITEM_VALUES,
    COPY_ALIGNMENT_ELEMENTS,
    FEW_INDEX_READS,
    MIN_ITEM_SCATTERED,
    MIN_OWNED_RUN,
    MIN_SORTED_POSITIONS,
    MIN_VALUES_PER_ELEMENT,
    PRIVATE_COPY_BYTES,
    ZEROS_PER_VALUE,
)
from pytensor_cl.routines.indexing.plan import Selection, in_units, select
from pytensor_cl.routines.indexing.scatter_few import FewPlan, cut_few, few_source, launch_few, plan_few
from pytensor_cl.routines.indexing.scatter_order import OrderPlan, launch_order, order_source, plan_order, step_names
from pytensor_cl.routines.indexing.scatter_sorted import (
    SortedPlan,
    launch_sorted,
    plan_sorted,
    sorted_source,
)
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout, collapse

# Structs of the kernels; offsets, steps and distances in elements.
VECTOR_PLAN = Struct(("long", "x y i count y_step i_step length copy_stride"), name="plan")
REDUCE_PLAN = Struct(("long", "o x x_step size parts copy_stride"), name="plan")
CPU_MEMBERS = "segment segments units run y_run count inner y_count y_outer span copy_stride is_far"
SIMT_MEMBERS = "tile elements count inner y_count y_outer span"
SORTED_MEMBERS = "elements count inner y_count y_outer unit"
ATOMIC_MEMBERS = "elements count inner y_count y_outer"
FEW_MEMBERS = "elements count inner y_count y_outer span unit chunk parts i_step length axis"


class _GatherPlan(NamedTuple):
    launch: Launch
    shift: int
    check: Launch  # launch that checks the indices of an empty result, which must be valid too
    check_size: int
    position_dtype: str
    rows: RowsPlan | None = None


class Gather(Indexing):
    """Select elements: ``gather(x, *index_inputs)``; see `Indexing` for the parameters."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._plans: Plans[_GatherPlan] = Plans()
        self._layouts: Plans[tuple[Layout, ...]] = Plans()
        self._ctype = carrier(self.output_dtypes[0])
        self._rows = None
        if self.schedule == "cpu" and len(self._arrays) == 1:
            self._rows = rows_source(self.output_dtypes[0], self._dtypes[0], self._bounds[0] is None)

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for rows if the first axis is indexed, else the one for anything, with 32-bit indices."""
        if self._rows is not None and isinstance(self.entries[0], int):
            return (self._rows,)
        return (self.gather_source(self._ctype, self.result_ndim, "int", self._has_rows()),)

    def _has_rows(self) -> bool:
        """Return whether, on schedule simt, the last dimension of the result is likely not one of the index arrays."""
        if self.schedule == "cpu" or not self.kept_ndim:
            return False
        axes = [axis for axis, entry in enumerate(self.entries) if isinstance(entry, int)]
        return not axes or axes[-1] - axes[0] + 1 != len(axes) or axes[-1] != self.ndim - 1

    def layout(self, *inputs: Layout | int) -> tuple[Layout, ...]:
        """Return the layout of the result; index inputs may be numbers.

        Raises `IndexError`: the index arrays do not broadcast together, or a number is out of range.
        """
        array, *values = inputs
        assert isinstance(array, Layout)
        return (Layout.contiguous(select(self.entries, array, values).shape),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel; the output may have any strides."""
        (output,), (array, *values) = outputs, inputs
        key = (output.layout[1], *self.key(array, values))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.store(key, self._plan(output.layout, array.layout, values))
        used = self.used(values)
        if plan.rows is not None:
            launch_rows(self, plan.rows, output, array, used[0], plan.shift)
        self.run(plan.launch, used, output, array, plan.shift)
        if plan.check.kernel is not None:
            self.run(plan.check, used, self.context.empty((plan.check_size,), plan.position_dtype))

    def _plan(self, output: Layout, array: Layout, values: Sequence[Any]) -> _GatherPlan:
        selection = self.select(array, values)
        index = index_type_of(array, selection)
        if 0 in selection.shape:
            check = self.positions(selection, index) if self.is_checked else NO_LAUNCH
            return _GatherPlan(NO_LAUNCH, 0, check, selection.positions.size, _dtype_of(index))
        rows = plan_rows(self, self._rows, output, selection) if self._rows is not None else None
        if rows is not None:
            return _GatherPlan(NO_LAUNCH, selection.offset, NO_LAUNCH, 0, _dtype_of(index), rows)
        strides = output.strides, selection.strides, *(a.strides for a in selection.arrays)
        launch = self.plan_gather(self._ctype, index, selection.shape, strides, selection.arrays)
        return _GatherPlan(launch, selection.offset, NO_LAUNCH, 0, _dtype_of(index))

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Compute a new array."""
        array, *values = inputs
        make = self.layout
        (layout,) = self._layouts.lookup(self.key(array, values), lambda: make(*map(value_of, inputs)))
        output = self.context.empty(layout.shape, self.output_dtypes[0])
        self.launch((output,), inputs)
        return (output,)


def _dtype_of(index: str) -> str:
    return "int32" if index == "int" else "int64"


def _even_step(layout: Layout) -> int | None:
    """Return 1 for a contiguous array, 0 for one whose elements are the same one, None for another."""
    _, (steps,) = collapse(layout.shape, (layout.strides,))
    step = steps[0] if steps else 0
    return step if len(steps) <= 1 and step in (0, 1) else None


Runs = tuple[tuple[int, int], ...]


def run_steps(count: int, runs: Runs) -> tuple[int, int, int]:
    """Return the length of the inner one of two runs, its step, and the step from one to the next."""
    return (*(runs[-1] if runs else (count, 0)), runs[0][1] if len(runs) > 1 else 0)


_COMBINE = {"f": "{a} + {b}", "c": "{a} + {b}", "i": "{a} + {b}", "u": "{a} + {b}", "b": "{a} | {b}"}


class PrivateCopies(NamedTuple):
    """Private copies of an array, to which work-items add without atomics.

    `parts` copies begin `stride` elements apart; the launch `finish` adds them up.
    """

    parts: int = 1
    stride: int = 0
    finish: Launch = NO_LAUNCH


NO_COPIES = PrivateCopies()


# The ways in which values are written. `Scatter._plan` takes the first one that fits; `OrderPlan` is one more.


class _CheckIndex(NamedTuple):
    """Nothing is written: there are no positions, or no values. The index may have to be checked all the same."""

    find: Launch = NO_LAUNCH


class _Direct(NamedTuple):
    """Schedule cpu, an index of a vector: one kernel reads the index and writes. `steps`: see `VECTOR_PLAN`."""

    write: Launch
    steps: tuple[int, ...]
    copies: PrivateCopies


class _Few(NamedTuple):
    """Schedule simt, few positions to add to: work-items have sums of their own, which are added up."""

    find: Launch
    add: FewPlan


class _Sorted(NamedTuple):
    """Schedule simt, many positions: they are found and sorted, and the values of equal ones are added up."""

    find: Launch
    sort: SortedPlan


class _Atomic(NamedTuple):
    """Schedule simt, many positions: values are added atomically, in any order."""

    find: Launch
    add: Launch


class _ByPosition(NamedTuple):
    """Everything else: one kernel finds the positions, one writes."""

    find: Launch
    write: Launch
    copies: PrivateCopies


class _ScatterPlan(NamedTuple):
    """Launch parameters for one set of layouts; values that `are_spread` are repeated in memory first."""

    selection: Selection
    position_dtype: str
    way: _CheckIndex | _Direct | OrderPlan | _Few | _Atomic | _Sorted | _ByPosition
    are_spread: bool = False

    @property
    def copies(self) -> PrivateCopies:
        """The private copies that are added to."""
        return self.way.copies if isinstance(self.way, _Direct | _ByPosition) else NO_COPIES


class Scatter(Indexing):
    """Copy an array with some elements set, or added to: ``scatter(x, y, *index_inputs)``; `update` changes it itself.

    Repeated indices accumulate, or the last one wins, as NumPy's ``add.at`` and assignment do. Sums are NumPy's to the
    bit unless there are many values for each element: then, on schedule cpu, each compute unit adds up a share of them,
    on schedule simt each work-item some of those of an element, and the sums of these are added up in order. The
    result is the same each time on the same device.

    First the array is copied, then values are written into the copy in one of seven ways:

    ===============  ========  ==================================================================================
    way              schedule  when
    ===============  ========  ==================================================================================
    `_CheckIndex`    both      nothing is selected
    `_Direct`        cpu       a vector, whose index and values have even steps
    `OrderPlan`      cpu       many long rows: values are put in order first, and each row is added to once
    `_Few`           simt      many values, of few positions: each work-item adds to sums of its own
    `_Atomic`        simt      the same of many positions, with `atomics`
    `_Sorted`        simt      the same without
    `_ByPosition`    both      everything else; on schedule cpu work-items own positions, or rows
    ===============  ========  ==================================================================================

    On schedule cpu, where there are many values for each element, `_Direct` and `_ByPosition` add to private copies of
    zeros, one for each work-item, which are added up with the array in the end (`PrivateCopies`).

    `accumulate`: add instead of set; `atomics`: add atomically where the device can, in any order.
    """

    def __init__(
        self,
        *arguments: Any,
        accumulate: bool,
        value_dtype: str,
        value_ndim: int,
        atomics: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        dtype = np.dtype(self.output_dtypes[0])
        self.accumulate = accumulate
        has_atomics = self.schedule == "simt" and self.context.info.features.float_atomics
        self._atomics = accumulate and atomics and has_atomics and dtype in ("float32", "float64")
        self._is_half = accumulate and dtype == "float16"
        self._ctype = ctype(dtype) if accumulate and dtype.kind in "fc" else carrier(dtype)
        self._combine = _COMBINE[dtype.kind] if accumulate else "{b}"
        if self._is_half:
            self._combine = "narrow_half1(widen_half1({a}) + widen_half1({b}))"
        self._copy = Copy(self.context, str(dtype), self.ndim, schedule=self.schedule)
        self._cast = None
        if value_dtype != dtype:
            self._cast = Copy(self.context, value_dtype, value_ndim, str(dtype), self.schedule)
        self._spread = Copy(self.context, str(dtype), self.result_ndim, schedule=self.schedule)
        self._plans: Plans[_ScatterPlan] = Plans()
        self._found = DeviceTables(KEPT_BYTES)
        # Without positions of their own; those of a constant index are found once.
        self._order = None
        if self.schedule == "cpu" and len(self._arrays) == 1 and dtype.kind in "fiub" and dtype != "float16":
            self._order = order_source(str(dtype), self._dtypes[0], self._bounds[0] is None, self._combine)
        self._is_direct = self.schedule == "cpu" and self.ndim == len(self._arrays) == 1 and not self.constant

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels with 32-bit indices."""
        sources = self.gather_source(None, self.advanced_ndim, "int"), self._writer("int")
        own = (self._direct_source(),) if self._is_direct else sources
        cast = self._cast.sources() if self._cast else ()
        return (*own, *self._copy.sources(), *cast)

    def _direct_source(self) -> KernelSource:
        return kernel_source(
            "indexing/scatter_vector",
            preambles=(
                render("runtime/error_flag"),
                render("common/to_long"),
                *((render("common/half"),) if self._is_half else ()),
            ),
            plan=VECTOR_PLAN,
            ctype=self._ctype,
            index_type=ctype(self._dtypes[0]),
            is_checked=self._bounds[0] is None,
            combine=self._combine,
            nothing=self._nothing,
            lanes=64 // max(4, np.dtype(self._dtypes[0]).itemsize),
        )

    def _finish_source(self) -> KernelSource:
        lanes = 1 if self._is_half else 64 // max(4, np.dtype(self.output_dtypes[0]).itemsize)
        preambles = (render("common/half"),) if self._is_half else ()
        arguments = {"ctype": self._ctype, "combine": self._combine, "lanes": lanes}
        return kernel_source("indexing/scatter_reduce", preambles=preambles, plan=REDUCE_PLAN, **arguments)

    def _writer(self, index: str) -> KernelSource:
        arguments: dict[str, Any] = {
            "plan": self._plan_struct(index, SIMT_MEMBERS if self.schedule == "simt" else CPU_MEMBERS),
            "ctype": self._ctype,
            "combine": self._combine,
            "ndim": max(1, self.kept_ndim),
            "index": index,
        }
        half = (render("common/half"),) if self._is_half else ()
        if self.schedule == "simt":
            return kernel_source("indexing/scatter_simt", preambles=half, group=self._group, **arguments)
        arguments["preambles"] = (*half, render("common/prefetch_row"))
        lanes = 1 if self._is_half else 64 // max(4, np.dtype(self.output_dtypes[0]).itemsize)
        return kernel_source("indexing/scatter_cpu", lanes=lanes, nothing=self._nothing, **arguments)

    @property
    def _nothing(self) -> str:
        """Identity of addition as a C literal: minus zero for floats, as 0.0 would turn -0.0 into 0.0."""
        dtype = np.dtype(self.output_dtypes[0])
        return literal(-np.zeros((), dtype) if dtype.kind in "fc" else 0, dtype) if self.accumulate else "0"

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt; each has a position in local memory."""
        return self.limits.size(GROUP_ITEMS, 8)

    def layout(self, *inputs: Any) -> tuple[Layout, ...]:
        """Return the layout of the array, C-contiguous."""
        return (Layout.contiguous(inputs[0].shape),)

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Compute a new array."""
        output = self.context.empty(inputs[0].shape, self.output_dtypes[0])
        self.launch((output,), inputs)
        return (output,)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the copy and the kernels that change it; the output must be C-contiguous, and no input.

        Raises `ValueError`: the values do not broadcast to what the index selects.
        """
        (output,), (array, value, *values) = outputs, inputs
        key = (value.layout[:2], *self.key(output, values))
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, output.layout, value.layout, values)
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        if isinstance(plan.way, OrderPlan):
            self._write_in_order(plan.way, output, array, self._prepared(plan, value), *self.used(values))
            return
        copies = plan.copies
        if copies.stride:
            zeros = self.context.empty((copies.stride * copies.parts,), output.dtype)  # the kernels set them to zero
            self._write(plan, zeros, value, values, key)
            self._add_copies(copies, output, zeros, array)
            return
        way = plan.way
        if isinstance(way, _Few) and way.add.outputs == output.size and (step := _even_step(array.layout)) is not None:
            (positions,) = self._positions_or_index(plan, way, values, key)
            y, shift = self._prepared(plan, value), plan.selection.offset
            launch_few(self, way.add, positions, output, shift, y, (array, step))
            return
        if output.size:
            self._copy.launch((output,), (array,))
        self._write(plan, output, value, values, key)

    def update(self, target: GpuArray, value: GpuArray, *values: Any) -> None:
        """Set elements of an array itself, or add to them: ``target[i] = value`` and ``np.add.at(target, i, value)``.

        The target may have any strides that mean each element once. Where an index is out of range nothing is written,
        and the error is reported. Values and indices in the memory of the target are copied first.

        Raises `ValueError`: the values do not broadcast to what the index selects.
        """
        value = without_overlap(value, target)
        values = tuple([without_overlap(v, target) if isinstance(v, GpuArray) else v for v in values])
        if not self._has_ascending_steps(target.layout):
            (result,) = self(target, value, *values)
            self._copy.launch((target,), (result,))
            return
        key = (value.layout[:2], *self.key(target, values))
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, target.layout, value.layout, values)
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        if isinstance(plan.way, OrderPlan):
            self._write_in_order(plan.way, target, target, self._prepared(plan, value), *self.used(values))
        elif plan.copies.stride:
            zeros = self.context.empty((plan.copies.stride * plan.copies.parts,), target.dtype)
            self._write(plan, zeros, value, values, key)
            self._add_copies(plan.copies, target, zeros, target)
        else:
            self._write(plan, target, value, values, key)

    def _has_ascending_steps(self, layout: Layout) -> bool:
        """Return whether positions count up along each indexed axis, as the kernels that divide them assume."""
        axes = [axis for axis, entry in enumerate(self.entries) if isinstance(entry, int)]
        return all(layout.strides[axis] > 0 for axis in axes if layout.shape[axis] > 1)

    def _write(self, plan: _ScatterPlan, target: GpuArray, value: GpuArray, values: Sequence[Any], key: Any) -> None:
        """Write the values into a copy of the array, or into private copies."""
        way = plan.way
        if isinstance(way, _Direct):
            self._write_directly(way, target, self._prepared(plan, value), *self.used(values))
        elif isinstance(way, _Sorted):
            ordered = self._found_positions(plan, way.find, values, key)
            launch_sorted(self, way.sort, ordered, target, plan.selection.offset, self._prepared(plan, value))
        elif isinstance(way, _Few):
            (positions,) = self._positions_or_index(plan, way, values, key)
            launch_few(self, way.add, positions, target, plan.selection.offset, self._prepared(plan, value))
        elif isinstance(way, _ByPosition):
            (positions,) = self._found_positions(plan, way.find, values, key)
            self._write_by_position(plan, way.write, positions, target, self._prepared(plan, value))
        elif isinstance(way, _Atomic):
            (positions,) = self._found_positions(plan, way.find, values, key)
            self._write_by_position(plan, way.add, positions, target, self._prepared(plan, value))
        elif isinstance(way, _CheckIndex) and way.find.kernel is not None:
            self._found_positions(plan, way.find, values, key)

    def _found_positions(
        self, plan: _ScatterPlan, find: Launch, values: Sequence[Any], key: Any
    ) -> tuple[GpuArray, ...]:
        """Return the positions, or the sorted positions and their order; those of a constant index are kept."""

        def make() -> tuple[GpuArray, ...]:
            positions = self.context.empty((plan.selection.positions.size,), plan.position_dtype)
            self.run(find, self.used(values), positions)
            return plan.way.sort.order.sort(positions) if isinstance(plan.way, _Sorted) else (positions,)

        return self._found.lookup(key, make) if self.constant else make()

    def _positions_or_index(self, plan: _ScatterPlan, way: _Few, values: Sequence[Any], key: Any) -> Sequence[GpuArray]:
        return self.used(values) if way.add.is_direct else self._found_positions(plan, way.find, values, key)

    def _write_by_position(
        self, plan: _ScatterPlan, write: Launch, positions: GpuArray, target: GpuArray, value: GpuArray
    ) -> None:
        kernel, global_size, local_size, geometry = write
        assert kernel is not None
        buffers = positions.buffer, target.buffer, value.buffer
        starts = np.int64(target.layout.offset + plan.selection.offset), np.int64(value.layout.offset)
        kernel.launch(self.context.queue, global_size, local_size, *buffers, *starts, geometry)

    def _write_directly(self, way: _Direct, target: GpuArray, value: GpuArray, index: GpuArray) -> None:
        starts = target.layout.offset, value.layout.offset, index.layout.offset
        kernel, global_size, local_size, _ = way.write
        assert kernel is not None
        error_flag = self.error_flag.buffer if self.is_checked else None
        arguments = VECTOR_PLAN.pack_values(*starts, *way.steps, way.copies.stride), error_flag, self.number
        buffers = index.buffer, target.buffer, value.buffer
        kernel.launch(self.context.queue, global_size, local_size, *buffers, *arguments)

    def _write_in_order(
        self, order: OrderPlan, output: GpuArray, array: GpuArray, value: GpuArray, index: GpuArray
    ) -> None:
        steps = step_names(array.layout, order.length)
        if steps is None:
            self._copy.launch((output,), (array,))
            array, steps = output, (order.run, 1)
        launch_order(self, order, output, array, value, index, steps)

    def _add_copies(self, copies: PrivateCopies, output: GpuArray, added: GpuArray, array: GpuArray) -> None:
        """Write the array plus the sums in the private copies."""
        step = _even_step(array.layout)
        if step is None:
            self._copy.launch((output,), (array,))
            array, step = output, 1
        kernel, global_size, local_size, _ = copies.finish
        assert kernel is not None
        sizes = step, output.size, copies.parts, copies.stride
        geometry = REDUCE_PLAN.pack_values(output.layout.offset, array.layout.offset, *sizes)
        buffers = array.buffer, added.buffer, output.buffer
        kernel.launch(self.context.queue, global_size, local_size, *buffers, geometry)

    def _prepared(self, plan: _ScatterPlan, value: GpuArray) -> GpuArray:
        """Return the values in the array's dtype, in the layout of the plan."""
        if self._cast is not None:
            (value,) = self._cast(value)
        if not plan.are_spread:
            return value
        shape = plan.selection.shape
        spread = self.context.empty(shape, value.dtype)
        self._spread.launch((spread,), (value.with_layout(self._fitted(value.layout, shape)),))
        return spread

    def _fitted(self, value: Layout, shape: Shape) -> Layout:
        """Broadcast the values; an assignment drops leading dimensions of length one."""
        value = value if self.accumulate else value.without_leading_ones(len(shape))
        try:
            return value.broadcast_to(shape)
        except ValueError as error:
            raise ValueError(
                f"shape mismatch: value array of shape {value.shape} could not be broadcast to indexing result of "
                f"shape {shape}"
            ) from error

    def _plan(self, output: Layout, value: Layout, values: Sequence[Any]) -> _ScatterPlan:
        """Choose the way for one set of layouts."""
        selection = self.select(output, values)
        if self._cast is not None:
            value = Layout.contiguous(value.shape)
        value = self._fitted(value, selection.shape)
        index = self._index_type(output, selection, value)
        dtype = _dtype_of(index)
        if not selection.positions.size:
            return _ScatterPlan(selection, dtype, _CheckIndex())
        direct = self._plan_direct(output, selection, value) if self._is_direct else None
        if direct is not None:
            return _ScatterPlan(selection, dtype, direct)
        find = self.positions(selection, index)
        if 0 in selection.shape:  # nothing is written, but wrong indices are reported all the same
            return _ScatterPlan(selection, dtype, _CheckIndex(find if self.is_checked else NO_LAUNCH))
        runs = self._value_runs(selection, value)
        are_spread = len(runs) > 2  # the kernels loop over two runs of values
        if are_spread:
            value = Layout.contiguous(selection.shape)
            runs = self._value_runs(selection, value)
        order = self._plan_order(output, selection, value, runs)
        if order is not None:
            return _ScatterPlan(selection, dtype, order, are_spread)
        if self.schedule == "simt" and selection.positions.size >= MIN_SORTED_POSITIONS:
            few = self._plan_few(index, selection, value.strides, runs)
            if few is not None:
                return _ScatterPlan(selection, dtype, few, are_spread)
            if self._atomics:
                atomic = self._plan_atomic(index, selection, value.strides, runs)
                return _ScatterPlan(selection, dtype, atomic, are_spread)
            in_order = self._plan_sorted(index, selection, value.strides, runs)
            return _ScatterPlan(selection, f"u{dtype}", in_order, are_spread)
        by_position = _ByPosition(find, *self._plan_write(output, index, selection, value.strides, runs))
        return _ScatterPlan(selection, dtype, by_position, are_spread)

    def _index_type(self, output: Layout, selection: Selection, value: Layout) -> str:
        index = index_type_of(output, selection, value)
        if self.schedule == "simt" and index == "int":
            step = GROUPS_PER_UNIT * self.context.info.compute_units * GROUP_ITEMS  # step of the loop over elements
            return index_type(prod(selection.shape), ATOMIC_ITEM_VALUES * step)
        return index

    def _plan_direct(self, output: Layout, selection: Selection, value: Layout) -> _Direct | None:
        """Plan the kernel that reads the index itself; None where index or values step unevenly."""
        (array,) = selection.arrays
        shape, strides = collapse(selection.shape, (value.strides, array.strides))
        if len(shape) > 1 or (array.length > 1 and array.step != 1):
            return None
        count = selection.positions.size
        copies = self._private_copies(output, self._parts(output, count))
        write = Launch(self.kernel(self._direct_source()), (copies.parts,), (1,))
        return _Direct(write, (count, *(s[0] if s else 0 for s in strides), array.length), copies)

    def _parts(self, output: Layout, count: int) -> int:
        """Return how many work-items add a share of `count` values to zeros of their own."""
        size = output.size
        if not self.accumulate or not output.is_contiguous or not 0 < MIN_VALUES_PER_ELEMENT * size <= count:
            return 1
        most = (
            count // (MIN_VALUES_PER_ELEMENT * size)
            if self._bytes(size) > PRIVATE_COPY_BYTES
            else ZEROS_PER_VALUE * count // size
        )
        return max(1, min(self.context.info.compute_units, count // MIN_ITEM_SCATTERED, most))

    def _bytes(self, size: int) -> int:
        return size * np.dtype(self.output_dtypes[0]).itemsize

    def _plan_order(
        self, output: Layout, selection: Selection, value: Layout, runs: Sequence[tuple[int, int]]
    ) -> OrderPlan | None:
        """Plan to put the values in order first, if not all compute units can add up shares of them in the cache."""
        parts = self._parts(output, prod(selection.shape))
        if self._order is None or (
            parts == self.context.info.compute_units and parts * self._bytes(output.size) <= ALL_COPIES_BYTES
        ):
            return None
        return plan_order(self, self._order, output, selection, value, runs)

    def _private_copies(self, output: Layout, parts: int) -> PrivateCopies:
        if parts == 1:
            return NO_COPIES
        items = max(1, min(self.context.info.compute_units, output.size * parts // MIN_ITEM_SCATTERED))
        finish = Launch(self.kernel(self._finish_source()), (items,), (1,))
        return PrivateCopies(parts, round_up(output.size, COPY_ALIGNMENT_ELEMENTS), finish)

    @staticmethod
    def _value_runs(selection: Selection, value: Layout) -> Runs:
        """Return length and step of each dimension of the values of the positions, from the outermost inwards."""
        dims = slice(selection.advanced.start, selection.advanced.stop)
        lengths, (steps,) = collapse(selection.shape[dims], (value.strides[dims],))
        return tuple(zip(lengths, steps, strict=True))

    def _plan_write(
        self, output: Layout, index: str, selection: Selection, strides: Sequence[int], runs: Runs
    ) -> tuple[Launch, PrivateCopies]:
        collapsed = self._kept(selection, strides)
        span = sum((a.length - 1) * a.step for a in selection.arrays) + 1
        plan = self._simt_write if self.schedule == "simt" else self._cpu_write
        return plan(output, index, *collapsed, selection.positions.size, runs, span)

    @staticmethod
    def _kept(selection: Selection, strides: Sequence[int]) -> tuple[Shape, Strides]:
        """Return the dimensions that are not indexed: lengths, and steps in the array and in the values."""
        dims = [d for d in range(len(selection.shape)) if d not in selection.advanced]
        steps = [selection.strides[d] for d in dims], [strides[d] for d in dims]
        return collapse([selection.shape[d] for d in dims], steps)

    def _plan_few(self, index: str, selection: Selection, strides: Sequence[int], runs: Runs) -> _Few | None:
        """Plan sums in local memory; None where the positions are too many for it, or values are set."""
        if not self.accumulate or self._is_half:
            return None
        selected, (selection, unit, span) = selection, in_units(selection)
        shape, steps = self._kept(selection, strides)
        sizes = [abs(step) for step in steps[0]]
        inner = sum((n - 1) * step for n, step in zip(shape, sizes, strict=True) if step < unit)
        if inner >= unit or any(unit <= step < span * unit for step in sizes):
            return None  # two positions may mean the same element
        count, elements, units = selection.positions.size, prod(shape), self.context.info.compute_units
        cut = cut_few(self.limits, units, self._bytes(1), span, elements, count)
        if cut is None:
            return None
        even = self._even_index(selected) if prod(cut.tiles) <= FEW_INDEX_READS else None
        rest = elements, count, *run_steps(count, runs), span, unit, cut.chunk, cut.parts, *(even or (0, 0, 0))
        arguments: dict[str, Any] = {"ctype": self._ctype, "combine": self._combine, "nothing": self._nothing}
        arguments |= {"ndim": max(1, self.kept_ndim), "index": index, "plan": self._plan_struct(index, FEW_MEMBERS)}
        if even is not None:
            arguments["preambles"] = render("runtime/error_flag"), render("common/to_long")
        arguments |= {"index_type": ctype(self._dtypes[0]) if even else "", "is_checked": self.is_checked}
        geometry = self._geometry(index, FEW_MEMBERS, shape, steps, rest)
        source = few_source(cut, **arguments)
        plan = plan_few(self, source, cut, span * elements, geometry, is_direct=even is not None)
        return _Few(NO_LAUNCH if even else self.positions(selection, index), plan)

    def _even_index(self, selection: Selection) -> tuple[int, int, int] | None:
        """Return the step of the elements of a single index, and length and number of its axis; None if uneven.

        None, too, for a constant, whose positions are found once.
        """
        if self.constant or len(selection.arrays) != 1:
            return None
        (array,), dims = selection.arrays, slice(selection.advanced.start, selection.advanced.stop)
        _, (steps,) = collapse(selection.shape[dims], (array.strides[dims],))
        return (steps[0] if steps else 0, array.length, array.axis) if len(steps) <= 1 else None

    def _plan_atomic(self, index: str, selection: Selection, strides: Sequence[int], runs: Runs) -> _Atomic:
        shape, steps = self._kept(selection, strides)
        count, elements = selection.positions.size, prod(shape)
        arguments: dict[str, Any] = {"ctype": self._ctype, "ndim": max(1, self.kept_ndim), "index": index}
        kernel = self.kernel(
            kernel_source("indexing/scatter_atomic", plan=self._plan_struct(index, ATOMIC_MEMBERS), **arguments)
        )
        geometry = self._geometry(index, ATOMIC_MEMBERS, shape, steps, (elements, count, *run_steps(count, runs)))
        sizes = ndrange(self.context, kernel, ceil_div(count * elements, ATOMIC_ITEM_VALUES))
        return _Atomic(self.positions(selection, index), Launch(kernel, *sizes, geometry))

    def _plan_sorted(self, index: str, selection: Selection, strides: Sequence[int], runs: Runs) -> _Sorted:
        selection, unit, span = in_units(selection)
        shape, steps = self._kept(selection, strides)
        count, elements = selection.positions.size, prod(shape)
        rest = elements, count, *run_steps(count, runs), unit
        geometry = self._geometry(index, SORTED_MEMBERS, shape, steps, rest)
        arguments: dict[str, Any] = {"ctype": self._ctype, "combine": self._combine, "nothing": self._nothing}
        half = (render("common/half"),) if self._is_half else ()
        arguments |= {"ndim": max(1, self.kept_ndim), "index": index, "accumulates": self.accumulate}
        arguments["is_checked"] = self.is_checked
        arguments["plan"] = self._plan_struct(index, SORTED_MEMBERS)
        lanes = self._vector_lanes(shape, steps, (unit, *(step for _, step in runs)))
        sources = [sorted_source(self, self._bytes(1), preambles=half, lanes=n, **arguments) for n in (lanes, 1)]
        sizes, how = (span, count, elements), {"accumulates": self.accumulate, "is_checked": self.is_checked}
        sort = plan_sorted(self, sources, lanes, _dtype_of(index), sizes, geometry, **how)
        return _Sorted(self.positions(selection, index), sort)

    def _vector_lanes(self, shape: Shape, steps: Strides, distances: Sequence[int]) -> int:
        """Return the elements of 16 bytes that are neighbours in the array and in the values; 1 if there are none.

        `shape`, `steps`: the dimensions that are not indexed; `distances`: from one position, or value, to the next.
        """
        lanes = 16 // self._bytes(1)
        rest = *steps[0][:-1], *steps[1][:-1], *distances
        is_even = bool(shape) and shape[-1] % lanes == 0 and steps[0][-1] == steps[1][-1] == 1
        is_wide = self.accumulate and np.dtype(self.output_dtypes[0]) in ("float32", "float64")
        return lanes if is_wide and is_even and all(step % lanes == 0 for step in rest) else 1

    def _plan_struct(self, index: str, members: str) -> Struct:
        """Return the struct of a kernel: dimensions that are not indexed, then other members."""
        ndim = max(1, self.kept_ndim)
        return Struct((index, f"shape[{ndim}] x[{ndim}] y[{ndim}]"), (index, members), name="plan")

    def _geometry(self, index: str, members: str, shape: Sequence[int], strides: Strides, rest: Sequence[int]) -> bytes:
        ndim = max(1, self.kept_ndim)
        steps = [step for s in strides for step in pad(s, ndim, 0)]
        return self._plan_struct(index, members).pack_values(*pad(shape, ndim, 1), *steps, *rest)

    def _cpu_write(
        self, output: Layout, index: str, shape: Shape, strides: Strides, count: int, runs: Runs, span: int
    ) -> tuple[Launch, PrivateCopies]:
        run, run_step, workers = 1, 0, self.context.info.compute_units
        if shape and strides[0][-1] == 1:
            run, run_step = shape[-1], strides[1][-1]
            shape, strides = shape[:-1], tuple(s[:-1] for s in strides)
        outer = prod(shape)
        if outer * run * count < MIN_ITEM_SCATTERED:
            workers = 1
        copies = self._private_copies(output, self._parts(output, run * count) if outer == 1 else 1)
        segment = max(32, ceil_div(run, workers)) if outer < workers and copies.parts == 1 else run
        segments = ceil_div(run, segment)
        units = outer * segments
        parts = min(units, workers)
        # For less than that, looking through positions that others own costs more than it saves.
        owners = min(span, ceil_div(workers, parts)) if run >= MIN_OWNED_RUN else 1
        far = int(is_far(self._bytes(output.size), self._bytes(run)))
        rest = segment, segments, units, run, run_step, count, *run_steps(count, runs), span, copies.stride, far
        geometry = self._geometry(index, CPU_MEMBERS, shape, strides, rest)
        sizes = (parts, owners) if copies.parts == 1 else (1, copies.parts)
        return Launch(self.kernel(self._writer(index)), sizes, (1, 1), geometry), copies

    def _simt_write(
        self, output: Layout, index: str, shape: Shape, strides: Strides, count: int, runs: Runs, span: int
    ) -> tuple[Launch, PrivateCopies]:
        elements, group = prod(shape), self._group
        tile = min(4 * group, round_up(elements, group))
        tiles = min(ceil_div(elements, tile), MAX_GROUPS)
        owners = max(1, min(span, 8 * self.context.info.compute_units // tiles))
        geometry = self._geometry(
            index, SIMT_MEMBERS, shape, strides, (tile, elements, count, *run_steps(count, runs), span)
        )
        source = self._writer(index)
        kernel = self._kernels.get(source) or self._kernels.setdefault(source, self.limits.kernel(source, None, group))
        return Launch(kernel, (owners * group, tiles), (group, 1), geometry), NO_COPIES
