"""Functions of rows: element functions and reductions along the same axes in one kernel."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.integers import round_up
from pytensor_cl.routines.base.limits import CACHE_LINE_BYTES, COLUMN_TILE_VECTORS
from pytensor_cl.routines.base.ndrange import index_type
from pytensor_cl.routines.base.routine import Checked, KernelVariants, Plans, layout_of, value_arguments
from pytensor_cl.routines.base.two_pass import KernelLaunch, PartialResults
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.routines.indexing.plan import out_of_bounds
from pytensor_cl.routines.indexing.table_lookup import TableLookups
from pytensor_cl.routines.rowwise import plan as planning
from pytensor_cl.routines.rowwise.common import Array, Plan, Variant
from pytensor_cl.routines.rowwise.gathered import GatheredRows
from pytensor_cl.routines.rowwise.kernels import RowKernels
from pytensor_cl.routines.rowwise.layouts import RowLayouts, Shape
from pytensor_cl.routines.rowwise.limits import (
    LOAD_LANES,
    MIN_CHUNK_ELEMENTS,
    MIN_MAP_CHUNK_ELEMENTS,
    MIN_RECOMPUTE_COST,
    ROW_KERNEL_DIMS,
)
from pytensor_cl.routines.rowwise.plan import Rows, Split
from pytensor_cl.routines.rowwise.program import Program, RowFunction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device_copy import PAST_CACHE
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class Rowwise(Checked):
    """Apply a row function: ``rowwise(*operands, *tables)``.

    Each row is read once from memory, in as many passes as reductions depend on one another; what is written
    is written once. Where there are few rows, and long ones, they are cut in chunks, and there is a launch for
    each pass. The result is the same each time for the same layout on the same device.

    `ndim`: dimensions of a full array; `axes`: axes along the rows, not negative; `is_dropped`: for each operand and
    then for each output, whether it is a row value without the dimensions `axes`. Others have all dimensions; those of
    row values have length 1 along `axes`; `broadcast`: for each operand and its dimensions, whether the length is known
    to be 1, so that it may be repeated; `has_fp64`: whether to use double precision; None uses it if the device
    supports it.
    """

    def __init__(
        self,
        context: Context,
        function: RowFunction,
        ndim: int,
        axes: Sequence[int],
        is_dropped: Sequence[bool],
        broadcast: Sequence[Sequence[bool]],
        schedule: str | None = None,
        has_fp64: bool | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.function = function
        self.ndim = ndim
        self.axes = frozenset(axes)
        self.output_dtypes = tuple(function.dtypes[v] for v in function.outputs)
        fp64 = context.info.has_fp64 if has_fp64 is None else has_fp64
        self._takes = TableLookups(self, function.takes, len(function.tables))
        self._operands = [k for k, operand in enumerate(function.operands) if operand.kind != "value"]
        self._gathered_rows = GatheredRows(self, function, self._operands)
        self.is_checked = self._takes.is_checked or bool(self._gathered_rows)
        self._layouts = RowLayouts(function, ndim, self.axes, is_dropped, broadcast)
        self._dims = max(ROW_KERNEL_DIMS, ndim - len(self.axes)), max(1, len(self.axes))
        self._rendered = rendered = RowKernels(
            function,
            self._operands,
            self._dims,
            self._takes,
            self._gathered_rows,
            self.limits,
            schedule=self.schedule,
            has_fp64=fp64,
        )
        self._arrays, self._lanes = rendered.arrays, rendered.lanes
        self._passes, self._totals = rendered.passes, rendered.totals
        dtypes = ((k, function.operands[k].dtype) for k in rendered.scalars)
        self._scalars = [(k, np.dtype(dtype if dtype != "bool" else "uint8").type) for k, dtype in dtypes]
        self.value_arguments = value_arguments(self._scalars)
        self._pass_count = sum(not loop.is_empty for loop in self._passes)  # over a row
        # Three passes, as in a softmax, and row values of many operations take long for each row. Gathering one array
        # takes little time.
        is_cheap = self._pass_count <= 2 and function.row_cost < MIN_RECOMPUTE_COST
        self._full = [a for a, array in enumerate(self._arrays) if array.kind == "full"]
        self._light = self._full if is_cheap and len(self._full) >= 2 else []
        self._stage = None if self._totals else 0  # without reductions, chunks need no other kernel than whole rows
        self._kernels = KernelVariants(self._build)
        self._plans: Plans[Plan] = Plans()

    # Shapes

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the outputs, C-contiguous.

        Raises `ValueError`: the shapes differ, or it is ``maximum`` or ``minimum`` of no elements.
        """
        spread = self._layouts.spread(self._gathered_rows.seen([inputs[k] for k in self._operands]))
        return self._layouts.output_layouts(self._layouts.full_shape(spread))

    # Kernels

    def value_kernels(self) -> Iterable[Kernel]:
        """Return the kernels that take numbers of the host."""
        return self._kernels.values()

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for many contiguous rows; those for chunks are built when they are needed."""
        shape = tuple(2048 if d in self.axes else 4096 for d in range(self.ndim))
        rows = self._normal_form(self._layouts.contiguous(shape), shape)
        pattern = planning.pattern_of(rows, self._lanes if self.schedule == "cpu" else 1)
        index = self._index(rows, partial_bytes=0)
        if self.schedule == "simt":
            held = self._split_simt(rows, pattern).held
            variant = self._simt_variant(rows, pattern, held, [0] * len(self._arrays), index)
        else:
            variant = self._variant(rows, pattern, is_cached=True, index=index)
        return (self._rendered.source(variant, self._stage),)

    @property
    def _outputs(self) -> tuple[Array, ...]:
        return self._arrays[len(self._operands) :]

    def _simt_variant(self, rows: Rows, pattern: str, held: int, offsets: Sequence[int], index: str) -> Variant:
        if not held:
            return Variant(pattern, 1, (), False, index)
        access = planning.vector_access(rows, self._full, offsets, LOAD_LANES)
        lanes = LOAD_LANES if "vector" in access else 1
        return Variant(pattern, 1, access, True, index, held=held, load_lanes=lanes)

    def _variant(self, rows: Rows, pattern: str, *, is_cached: bool, index: str, is_whole: bool = True) -> Variant:
        tile_vectors = self._column_tile(rows, pattern)
        tile, steps = 0, planning.access_of(rows, pattern)
        if pattern == "columns" and tile_vectors == 1 and is_whole:
            tile, steps = planning.tiled(rows, steps, self._lanes, self._full, len(self._operands))
        kinds = zip(self._arrays, steps, strict=True)
        access = tuple("gather" if a.kind == "row" and pattern == "rows" else how for a, how in kinds)
        if not tile and any(self._is_scattered(a, how, pattern) for a, how in zip(self._arrays, access, strict=True)):
            access = ("gather",) * len(access)  # one kernel for all that is unusual: each costs the driver a while
        return Variant(pattern, tile_vectors, access, is_cached, index, tile=tile)

    @staticmethod
    def _is_scattered(array: Array, how: str, pattern: str) -> bool:
        """Return whether an array's lanes are neither neighbours nor one and the same element that is read."""
        if array.kind == "row" and pattern == "rows":
            return False
        return how == "gather" or (how == "splat" and array.is_output)

    def _column_tile(self, rows: Rows, pattern: str) -> int:
        """Return the most vectors of a tile; one, where neighbouring rows are one after the other."""
        lead = 1 + rows.lead
        if (
            pattern == "rows"
            or rows.columns <= self._lanes
            or (rows.outer and rows.reduced[0][lead] < rows.outer[0][lead])
        ):
            return 1
        return COLUMN_TILE_VECTORS

    def _build(self, key: tuple[Variant, int | None]) -> Kernel:
        return self.limits.kernel(self._rendered.source(*key), None, self._rendered.group)

    # Launch

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue one kernel, or one for each loop; the outputs may have any strides."""
        arrays: list[Any] = [inputs[k] for k in self._operands]
        arrays.extend(outputs)
        layouts = [layout_of(array) for array in arrays]
        # Without offsets: a plan serves arrays anywhere in buffers, but for the alignment of vectors.
        if self.schedule == "cpu":
            key: Any = tuple([layout[:2] for layout in layouts])
        else:
            key = tuple([(*layout[:2], layout[2] % LOAD_LANES) for layout in layouts])
        plan = self._plans.get(key)
        if plan is None:
            make = partial(self._plan, layouts)
            plan = self._plans.store(key, self.limits.with_fitting_groups(make, self._kernels.clear))
        tables: Any = inputs[len(self.function.operands) :]
        if tables:  # also where nothing is computed: wrong indices are reported
            self._takes.check(inputs, tables, is_idle=plan.is_idle)
        for number, rows in self._gathered_rows.gathered(arrays) if plan.gathers is None else ():
            arrays[number], layouts[number] = rows, rows.layout
        if not plan.steps:
            return
        for number, view in plan.pre_transposed:
            layout = view._replace(offset=view.offset + layouts[number].offset)
            arrays[number] = contiguous(GpuArray(self.context, arrays[number].buffer, arrays[number].dtype, layout))
            layouts[number] = arrays[number].layout
        memory = self.context.memory
        arguments: list[Any] = [convert(inputs[k]) for k, convert in self._scalars]
        arguments += [array.buffer for array in arrays]
        arguments += [memory.allocate(n) if n else None for n in (plan.scratch, plan.partials)]
        # The first one says whether stores bypass the cache: `Plan.shifts`.
        offsets = np.add([0, *(layout[2] for layout in layouts)], plan.shifts, dtype="int64").tobytes()
        more = *(self._takes.arguments(tables) if tables else ()), *self._gathered_rows.arguments(plan.gathers)
        if more:
            more = *more, self.error_flag.buffer if self.is_checked else None, self.number
        queue = self.context.queue
        for step in plan.steps:
            step.enqueue(queue, *arguments, offsets, step.geometry, *more)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's IndexError."""
        return out_of_bounds(finding.value, finding.detail, finding.limit)

    def _normal_form(self, layouts: Sequence[Layout], full: Shape) -> Rows:
        return planning.normal_form(full, layouts, self.axes, self._lead(layouts))

    def _lead(self, layouts: Sequence[Layout]) -> int:
        """Return the array whose order in memory the traversal follows: the largest, a full output if there is one."""
        return max(range(len(layouts)), key=lambda k: (prod(layouts[k].shape), self._arrays[k].is_output))

    def _index(self, rows: Rows, partial_bytes: int) -> str:
        if self.schedule == "cpu" or not planning.fits_int(rows):
            return "long"
        return index_type(partial_bytes)

    def _plan(self, given: list[Layout]) -> Plan:
        layouts = self._gathered_rows.seen(given)
        spread = self._layouts.spread(layouts)
        rows = self._normal_form(spread, self._layouts.full_shape(spread))
        if not rows.number or (not rows.total and all(a.kind == "full" for a in self._outputs)):
            return Plan((), is_idle=True)
        is_narrow, units = self._is_narrow(rows), self.context.info.compute_units
        lanes = self._lanes if self.schedule == "cpu" else 1
        pattern = "columns" if is_narrow else planning.pattern_of(rows, lanes, self._light)
        pre_transposed: tuple[planning.PreTransposed, ...] = ()
        if self.schedule == "simt":
            split = self._split_simt(rows, pattern)
        else:
            widen = planning.with_long_run if pattern == "rows" else planning.with_wide_columns
            rows, pre_transposed = planning.pre_transposed(widen(rows, self._lanes), pattern, self._full_inputs())
            split = self._split_cpu(rows, pattern, units)
        is_whole = split.chunks == 1 and not is_narrow
        partials = self._partials(split)
        index = self._index(rows, partials.nbytes)
        if self.schedule == "simt":
            variant = self._simt_variant(rows, pattern, split.held, [layout.offset for layout in layouts], index)
        else:
            variant = self._variant(rows, pattern, is_cached=split.is_cached, index=index, is_whole=is_whole)
        gathers = self._gathered_rows.geometry(given, variant) if self._gathered_rows and split.chunks == 1 else None
        variant = variant._replace(is_narrow=is_narrow, is_gathered=gathers is not None)
        scratch = self._scratch(rows, split, self._rendered.program(variant))
        shifts = int(self._is_past_cache(layouts)), *rows.shifts
        make = self._whole if split.chunks == 1 else self._by_stages
        steps = make(variant, rows, split, scratch, split.chunks, partials)
        return Plan(
            steps, scratch[0] * split.work_items, partials.nbytes, shifts, not rows.total, gathers, pre_transposed
        )

    def _is_narrow(self, rows: Rows) -> bool:
        is_plain = self.schedule == "cpu" and not self.function.takes
        return is_plain and planning.is_narrow(rows, self._lanes, self._full)

    def _full_inputs(self) -> list[int]:
        return [a for a in self._full if not self._arrays[a].is_output]

    def _is_past_cache(self, layouts: list[Layout]) -> bool:
        nbytes = (s.size * np.dtype(a.dtype).itemsize for s, a in zip(layouts, self._arrays, strict=True))
        return sum(nbytes) >= PAST_CACHE

    def _split_simt(self, rows: Rows, pattern: str) -> Split:
        units = self.context.info.compute_units
        return planning.split_simt(rows, pattern, units, self._rendered.group, self._rendered.most_held)

    def _split_cpu(self, rows: Rows, pattern: str, units: int) -> Split:
        full = sum(np.dtype(a.dtype).itemsize for a in self._arrays if a.kind == "full")
        return planning.split_cpu(
            rows,
            pattern,
            units,
            self._lanes,
            self._column_tile(rows, pattern),
            passes=self._pass_count,
            nbytes=full + sum(np.dtype(self.function.dtypes[v]).itemsize for v in self._rendered.cached.spills),
            is_rounded=any(t.acc_dtype == "float32" and not t.compensation for t in self._totals),
            min_task=MIN_CHUNK_ELEMENTS if self._totals else MIN_MAP_CHUNK_ELEMENTS,
        )

    def _scratch(self, rows: Rows, split: Split, program: Program) -> list[int]:
        """Return the bytes that a work-item puts aside, then where each value begins; registers take no bytes."""
        if split.held:
            return [0] * (1 + len(program.spills))
        at, places = 0, []
        for v in program.spills:
            places.append(at)
            items = rows.total * split.width + self._lanes
            at += round_up(items * np.dtype(self.function.dtypes[v]).itemsize, CACHE_LINE_BYTES)
        return [at, *places]

    def _partials(self, split: Split) -> PartialResults:
        """Return the offsets of the partial results of each reduction; none if one launch reduces whole rows."""
        count = split.chunks * split.blocks * split.width if split.chunks > 1 else 0
        return PartialResults.of(count, [(total.acc_dtype, bool(total.compensation)) for total in self._totals])

    def _step(
        self,
        variant: Variant,
        stage: int | None,
        rows: Rows,
        split: Split,
        scratch: list[int],
        parts: int,
        partials: PartialResults,
    ) -> KernelLaunch:
        geometry = planning.pack_geometry(rows, split, self._dims, scratch, parts, partials.offsets, variant.index_type)
        sizes: tuple[tuple[int, ...], tuple[int, ...]] = ((split.work_items,), (1,))
        if self.schedule == "simt":
            sizes = ((split.work_items * self._rendered.group, split.chunks), (self._rendered.group, 1))
        return KernelLaunch(self._kernels[variant, stage], *sizes, geometry)

    def _whole(self, variant: Variant, *rest: Any) -> tuple[KernelLaunch, ...]:
        return (self._step(variant, self._stage, *rest),)

    def _by_stages(self, variant: Variant, rows: Rows, split: Split, *rest: Any) -> tuple[KernelLaunch, ...]:
        """One launch for each loop; the last may have nothing but row values to finish."""
        missing = [s for s in range(len(self._passes)) if (variant, s) not in self._kernels]
        self.context.build([self._rendered.source(variant, s) for s in missing])
        finish = split._replace(chunk=rows.total, chunks=1)
        if self.schedule == "cpu":
            finish = finish._replace(work_items=min(split.work_items, split.blocks))
        return tuple(
            self._step(variant, s, rows, finish if loop.is_empty else split, *rest)
            for s, loop in enumerate(self._passes)
        )
