"""Functions of rows whose elements belong to groups: gathers, row functions and scatter-adds in one kernel."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.base.limits import CACHE_LINE_BYTES
from pytensor_cl.routines.base.routine import Checked, Plans, layout_of, value_arguments
from pytensor_cl.routines.elemwise.routine import ElementFunction
from pytensor_cl.routines.grouped_rows.limits import (
    CHUNK_ELEMENTS,
    MIN_ITEM_VECTORS,
    MIN_SHARED_ELEMENTS,
    TILE_COST,
    UNFUSED_BLOCKS,
)
from pytensor_cl.routines.grouped_rows.quotients import with_reciprocals
from pytensor_cl.routines.indexing.gather_scatter import Gather, Scatter
from pytensor_cl.routines.indexing.plan import Bounds, check_bounds, out_of_bounds
from pytensor_cl.routines.rowwise.common import Array, Value
from pytensor_cl.routines.rowwise.limits import MAX_SEQUENTIAL_TERMS
from pytensor_cl.routines.rowwise.program import Map, Program, RowFunction, RowPass, accumulator
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.error_flag import ErrorRecord
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel

ALONG_ROW = slice(None), 0
"""The index of a gather from the columns of a matrix, and of a scatter-add to them."""


class TableFunction(NamedTuple):
    """An elementwise function of matrices and row values, whose result is a table.

    `function`: a function of Maps only, with one full output; no operand is a number of the host; `source`: the
    operand, a full one of the dtype of the table, that is given in place of the table.
    """

    function: RowFunction
    source: int
    is_dropped: tuple[bool, ...]
    broadcast: tuple[tuple[bool, ...], ...]


class Groups(NamedTuple):
    """Gathers and scatters of a row function, along the rows.

    `bounds`: the least and the greatest index of each, if they are known; `is_constant`: whether every call gets the
    same index vectors; `gathers`: full operands of the row function that are gathered, each with the number of its
    index; `scatters`: full outputs that are scattered, each with the number of its index; `functions`: functions of the
    tables of `gathers`, each with its number among these.
    """

    dtypes: tuple[str, ...]
    bounds: tuple[Bounds | None, ...]
    is_constant: bool
    gathers: tuple[tuple[int, int], ...]
    scatters: tuple[tuple[int, int], ...]
    functions: tuple[tuple[int, TableFunction], ...] = ()


class _Index(NamedTuple):
    """An index vector, as the kernel sees it."""

    dtype: str
    is_checked: bool


class _Tile(NamedTuple):
    """A table, or a sum of groups: its array, its index, the number of its tile, and what it is added to.

    `output` is the number of the row function's output.
    """

    array: int
    index_number: int
    tile: int
    base: int = 0
    output: int = -1


class _Made(NamedTuple):
    """A table that is a function, as the kernel sees it.

    `tiles` has the tile of each full operand, `rows` the array of each row operand, by the operands' numbers.
    """

    table: _Tile
    tiles: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, int], ...]
    row_values: tuple[int, ...]
    loop: RowPass
    dtypes: tuple[str, ...]


class _Plan(NamedTuple):
    """A launch, all but its buffers and offsets; without work-items, gathers and scatters are kernels of their own."""

    work_items: int
    scratch: int = 0
    geometry: bytes = b""


class _Sizes(NamedTuple):
    """Numbers of rows, of elements of a row, and of the groups of each index."""

    rows: int
    elements: int
    groups: list[int]


UNFUSED = _Plan(0)


class GroupedRows(Checked):
    """Apply a row function to gathered columns, and add up its results by groups.

    It is called ``grouped(*operands, *indices, *bases, *others)``. An operand that is gathered is given as its table: a
    matrix with the same number of rows and a column for each group. An output that is scattered becomes its base, a
    matrix of that kind, to whose columns the elements of each row are added. Others are the operands of functions of
    tables, but for their sources.

    `function`: a function of the rows of matrices; `is_dropped`, `broadcast`: see `Rowwise`; of operands and outputs
    before they are scattered; `has_fp64`: whether to use double precision; None uses it if the device supports it.
    """

    def __init__(
        self,
        context: Context,
        function: RowFunction,
        groups: Groups,
        is_dropped: Sequence[bool],
        broadcast: Sequence[Sequence[bool]],
        schedule: str | None = None,
        has_fp64: bool | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.function = function
        self.groups = groups
        self.output_dtypes = tuple(function.dtypes[v] for v in function.outputs)
        self.is_checked = any(bounds is None for bounds in groups.bounds)
        self._rows = Rowwise(context, function, 2, (1,), is_dropped, broadcast, schedule, has_fp64)
        function = self._fused = with_reciprocals(function)
        fp64 = context.info.has_fp64 if has_fp64 is None else has_fp64
        self._program = Program(function, fp64)
        self._lanes = 8 if function.itemsize == 8 else 16
        self._passes = self._program.passes(self._lanes, self._lanes)
        self._totals = [total for loop in self._passes for total in loop.totals]
        self._operands = [k for k, operand in enumerate(function.operands) if operand.kind != "value"]
        self._scalars = [
            (k, np.dtype(t if t != "bool" else "uint8").type)
            for k, (kind, t) in enumerate(function.operands)
            if kind == "value"
        ]
        self.value_arguments = value_arguments(self._scalars)
        self._arrays = self._describe_arrays(broadcast)
        self._tables, self._sums, self._others, self._full = self._describe_tiles()
        self._made = [self._describe_made(g, f, fp64) for g, f in groups.functions]
        tiles = len(self._tables) + len(self._sums) + len(self._others) + len(self._full)
        indices = len(groups.dtypes)
        members = (
            f"rows count scratch row_step[{len(self._arrays)}] step[{len(self._arrays)}] tile_at[{tiles}]"
            f" spill_at[{max(1, len(self._program.spills))}] index_step[{indices}] length[{indices}]"
        )
        self._geometry = Struct(("long", members), name="geometry")
        self._kernel: Kernel | None = None
        self._plans: Plans[_Plan] = Plans()
        self._makers = [
            Rowwise(context, f.function, 2, (1,), f.is_dropped, f.broadcast, schedule, has_fp64)
            for _, f in groups.functions
        ]
        options: dict[str, Any] = {"constant": groups.is_constant, "schedule": schedule}
        self._gathers = [self._gather(k, i, options) for k, i in groups.gathers]
        self._scatters = [self._scatter(k, i, options) for k, i in groups.scatters]

    def _gather(self, operand: int, index: int, options: dict[str, Any]) -> Gather:
        kind, bounds = (self.groups.dtypes[index], 1), self.groups.bounds[index]
        return Gather(self.context, self.function.operands[operand].dtype, 2, ALONG_ROW, (kind,), (bounds,), **options)

    def _scatter(self, output: int, index: int, options: dict[str, Any]) -> Scatter:
        kind, bounds, dtype = (self.groups.dtypes[index], 1), self.groups.bounds[index], self.output_dtypes[output]
        values: dict[str, Any] = {"accumulate": True, "value_dtype": dtype, "value_ndim": 2}
        return Scatter(self.context, dtype, 2, ALONG_ROW, (kind,), (bounds,), **values, **options)

    def _describe_arrays(self, broadcast: Sequence[Sequence[bool]]) -> tuple[Array, ...]:
        function, gathered, scattered = self._fused, dict(self.groups.gathers), dict(self.groups.scatters)
        arrays = []
        for k in self._operands:
            kind, dtype = function.operands[k]
            access = "splat" if kind == "full" and broadcast[k][0] else "lanes"
            arrays.append(Array(f"x{k}", k, "table" if k in gathered else kind, dtype, False, access))
        arrays += [Array(f"b{k}", function.outputs[k], "base", self.output_dtypes[k], False) for k in scattered]
        for k, v in enumerate(function.outputs):
            kind = "sum" if k in scattered else function.kinds[v]
            arrays.append(Array(f"y{k}", v, kind, function.dtypes[v], True, "lanes"))
        for g, of_table in self.groups.functions:
            arrays += [
                Array(f"t{g}x{k}", k, "other" if kind == "full" else "parameter", dtype, False)
                for k, (kind, dtype) in enumerate(of_table.function.operands)
                if k != of_table.source
            ]
        return tuple(arrays)

    def _describe_tiles(self) -> tuple[list[_Tile], ...]:
        """Return the tiles of tables, sums of groups, other operands of tables, and full arrays with all elements."""
        numbers = {array.name: a for a, array in enumerate(self._arrays)}
        gathers, scatters = self.groups.gathers, self.groups.scatters
        tables = [_Tile(numbers[f"x{k}"], index, tile) for tile, (k, index) in enumerate(gathers)]
        sums = [
            _Tile(numbers[f"y{k}"], index, tile, numbers[f"b{k}"], k)
            for tile, (k, index) in enumerate(scatters, len(gathers))
        ]
        others: list[_Tile] = []
        count = len(tables) + len(sums)
        for g, of_table in self.groups.functions:
            for k, operand in enumerate(of_table.function.operands):
                if operand.kind == "full" and k != of_table.source:
                    others.append(_Tile(numbers[f"t{g}x{k}"], gathers[g][1], count + len(others)))
        count += len(others)
        rest = (a for a, array in enumerate(self._arrays) if array.kind == "full" and array.access == "lanes")
        full = [_Tile(a, -1, tile) for tile, a in enumerate(rest, count)]
        return tables, sums, others, full

    def _describe_made(self, gather: int, of_table: TableFunction, has_fp64: bool) -> _Made:
        function, table = of_table.function, self._tables[gather]
        numbers = {array.name: a for a, array in enumerate(self._arrays)}
        places = {tile.array: tile.tile for tile in self._others}
        arrays = [(k, numbers[f"t{gather}x{k}"]) for k in range(len(function.operands)) if k != of_table.source]
        tiles = [(k, places[a]) for k, a in arrays if a in places]
        program = Program(function, has_fp64)
        return _Made(
            table,
            ((of_table.source, table.tile), *tiles),
            tuple((k, a) for k, a in arrays if a not in places),
            tuple(program.row_values),
            program.passes(self._lanes, self._lanes)[0],
            function.dtypes,
        )

    # Shapes

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layouts of the outputs, C-contiguous.

        Raises `ValueError`: the shapes differ, or it is ``maximum`` or ``minimum`` of no elements.
        """
        found, bases = list(self._full_layouts(inputs)), self._split(inputs)[2]
        for (k, _), base in zip(self.groups.scatters, bases, strict=True):
            found[k] = Layout.contiguous(base.shape)
        return tuple(found)

    def _full_layouts(self, inputs: Sequence[Layout]) -> tuple[Layout, ...]:
        """Return the layouts of the row function's outputs, before they are scattered."""
        operands, indices = self._split(inputs)[:2]
        seen = list(operands)
        for k, maker, given in self._table_inputs(inputs):
            (seen[k],) = maker.layout(*given)
        for k, index in self.groups.gathers:
            seen[k] = Layout.contiguous((seen[k].shape[0], *indices[index].shape))
        return self._rows.layout(*seen)

    def _split[T](self, inputs: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T], Sequence[T]]:
        """Return the operands, the indices, the bases, and other operands of the functions of tables."""
        ends = np.cumsum([len(self.function.operands), len(self.groups.dtypes), len(self.groups.scatters)])
        first, second, third = map(int, ends)
        return inputs[:first], inputs[first:second], inputs[second:third], inputs[third:]

    def _table_inputs[T](self, inputs: Sequence[T]) -> Iterator[tuple[int, Rowwise, list[T]]]:
        """Yield for each table that is a function the operand that it is, the routine of its own, and its inputs."""
        rest = list(self._split(inputs)[3])
        for (g, of_table), maker in zip(self.groups.functions, self._makers, strict=True):
            k, count = self.groups.gathers[g][0], len(of_table.function.operands) - 1
            given, rest = rest[:count], rest[count:]
            given.insert(of_table.source, inputs[k])
            yield k, maker, given

    # Kernels

    def value_kernels(self) -> Iterable[Kernel]:
        """Return the kernels that take numbers of the host."""
        return (*(() if self._kernel is None else (self._kernel,)), *self._rows.value_kernels())

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel; on schedule simt, those of the gathers, the row function and the scatters."""
        if self.schedule == "cpu":
            return (self._source(),)
        routines = *self._makers, *self._gathers, *self._scatters
        others = (source for routine in routines for source in routine.sources())
        return (*self._rows.sources(), *others)

    def _source(self) -> KernelSource:
        program, lanes, dtypes = self._program, self._lanes, self._fused.dtypes
        read = (k for k in self._operands if self.function.operands[k].kind == "row")
        steps = *program.element_functions(), *(f for _, t in self.groups.functions for f in _element_functions(t))
        functions = dict.fromkeys(text for f in steps for text in f.preambles)
        kinds = dict.fromkeys(array.dtype for array in self._arrays)
        turned = dict.fromkeys(self._arrays[t.array].dtype for t in (*self._group_tiles, *self._full))
        block: dict[str, Any] = {"lanes": lanes, "tile": lanes, "is_gathered_tile": True, "space": "__global"}
        return kernel_source(
            "grouped_rows/cpu",
            preambles=(
                *(render("common/vector_access", dtype=dtype, lanes=lanes) for dtype in kinds),
                *(render("rowwise/transpose_tile", dtype=dtype, **block) for dtype in turned),
                render("runtime/error_flag"),
                render("common/to_long"),
                *functions,
                *dict.fromkeys(accumulator(total, lanes, fold=False) for total in self._totals),
            ),
            geometry=self._geometry,
            lanes=lanes,
            arrays=self._arrays,
            values=tuple(Value(f"c{k}", self.function.operands[k].dtype) for k, _ in self._scalars),
            indices=tuple(
                _Index(dtype, bounds is None)
                for dtype, bounds in zip(self.groups.dtypes, self.groups.bounds, strict=True)
            ),
            tables=self._tables,
            sums=self._sums,
            others=self._others,
            made=self._made,
            full=self._full,
            chunk=CHUNK_ELEMENTS,
            passes=self._passes,
            row_values=tuple((v, dtypes[v]) for v in (*read, *program.row_values)),
            spills=tuple((v, dtypes[v]) for v in program.spills),
            totals=self._totals,
        )

    # Launch

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel, or the kernels of the parts where that is faster or the arrays are unusual."""
        indices, bases, others = self._split(inputs)[1:]
        arrays: list[Any] = [*(inputs[k] for k in self._operands), *bases, *outputs, *others, *indices]
        key = tuple([array.layout[:2] for array in arrays])
        plan = self._plans.lookup(key, lambda: self._plan([a.layout for a in arrays], [*map(layout_of, inputs)]))
        if not plan.work_items:
            self._launch_parts(outputs, inputs)
            return
        if self._kernel is None:
            self._kernel = self.context.kernel(self._source())
        arguments: list[Any] = [convert(inputs[k]) for k, convert in self._scalars]
        arguments += [array.buffer for array in arrays]
        offsets = np.array([array.layout.offset for array in arrays], "int64").tobytes()
        arguments += [self.context.memory.allocate(plan.scratch), offsets, plan.geometry]
        arguments += [self.error_flag.buffer if self.is_checked else None, self.number]
        self._kernel.launch(self.context.queue, (plan.work_items,), (1,), *arguments)

    def _launch_parts(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Gather, apply the row function, and scatter, each with kernels of its own."""
        for routine in (*self._gathers, *self._scatters) if self.is_checked else ():
            routine.set_error_flag(self.error_flag, int(self.number))
        operands, indices, bases, _ = self._split(inputs)
        given, results = list(operands), list(outputs)
        for k, maker, arrays in self._table_inputs(inputs):
            (given[k],) = maker(*arrays)
        for (k, index), gather in zip(self.groups.gathers, self._gathers, strict=True):
            (given[k],) = gather(given[k], indices[index])
        if self.groups.scatters:
            layouts = self._rows.layout(*map(layout_of, given))
            for k, _ in self.groups.scatters:
                results[k] = self.context.empty(layouts[k].shape, self.output_dtypes[k])
        self._rows.launch(results, given)
        for (k, index), scatter, base in zip(self.groups.scatters, self._scatters, bases, strict=True):
            scatter.launch((outputs[k],), (base, results[k], indices[index]))

    @property
    def _group_tiles(self) -> tuple[_Tile, ...]:
        """The tiles with a vector for each group, in the order of their numbers."""
        return (*self._tables, *self._sums, *self._others)

    def error(self, finding: ErrorRecord) -> Exception:
        """Return NumPy's IndexError."""
        return out_of_bounds(finding.value, finding.detail, finding.limit)

    def _plan(self, arrays: Sequence[Layout], inputs: Sequence[Layout]) -> _Plan:
        """Plan for the arrays of the kernel, in its order; `inputs` are the layouts of all inputs."""
        count = len(self._arrays)
        spread, indices = [_spread(layout) for layout in arrays[:count]], arrays[count:]
        sizes = self._sizes(spread, inputs)
        if sizes is None:
            return UNFUSED
        blocks = ceil_div(sizes.rows, self._lanes)
        tiles = self._group_tiles
        vectors = [(self._arrays[t.array].dtype, sizes.groups[t.index_number]) for t in tiles]
        vectors += [(self._arrays[t.array].dtype, CHUNK_ELEMENTS) for t in self._full]
        vectors += [(self._fused.dtypes[v], sizes.elements) for v in self._program.spills]
        at, places = 0, []
        for dtype, number in vectors:
            places.append(at)
            at += round_up(number * self._lanes * np.dtype(dtype).itemsize, CACHE_LINE_BYTES)
        work = blocks * (sizes.elements + sum(sizes.groups[t.index_number] for t in tiles))
        work_items = max(1, min(blocks, self.context.info.compute_units, work // MIN_ITEM_VECTORS))
        geometry = self._geometry.pack(
            rows=sizes.rows,
            count=sizes.elements,
            scratch=at,
            row_step=[layout.strides[0] for layout in spread],
            step=[layout.strides[1] for layout in spread],
            tile_at=places[: len(tiles) + len(self._full)],
            spill_at=places[len(tiles) + len(self._full) :] or [0],
            index_step=[layout.strides[0] for layout in indices],
            length=sizes.groups,
        )
        return _Plan(work_items, at * work_items, geometry)

    def _sizes(self, arrays: Sequence[Layout], inputs: Sequence[Layout]) -> _Sizes | None:
        """Return the sizes of a launch; None where the parts are launched.

        Raises `IndexError`: the bounds of an index are known and too wide.
        """
        counts = {index.shape[0] for index in self._split(inputs)[1]}
        tiled = [(t.array, t.index_number) for t in (*self._tables, *self._others)]
        tiled += [(t.base, t.index_number) for t in self._sums]
        heights = {arrays[a].shape[0] for a, _ in tiled}
        lengths = [{arrays[a].shape[1] for a, index in tiled if index == i} for i in range(len(self.groups.dtypes))]
        is_regular = len(counts) == len(heights) == 1 and all(len(found) == 1 for found in lengths)
        if self.schedule == "simt" or not is_regular:
            return None
        sizes = _Sizes(heights.pop(), counts.pop(), [found.pop() for found in lengths])
        full = self._full_layouts(inputs)
        if any(full[k].shape != (sizes.rows, sizes.elements) for k, _ in self.groups.scatters):
            return None
        if not sizes.rows or not sizes.elements or not all(sizes.groups) or not self._is_faster(sizes):
            return None
        for bounds, length in zip(self.groups.bounds, sizes.groups, strict=True):
            if bounds is not None:
                check_bounds(bounds, 1, length)
        return sizes

    def _is_faster(self, sizes: _Sizes) -> bool:
        """Return whether one kernel takes less time than its parts, and its sums are as accurate."""
        is_rounded = any(t.acc_dtype == "float32" and not t.compensation for t in self._totals)
        if is_rounded and sizes.elements > MAX_SEQUENTIAL_TERMS:
            return False
        if 2 * sizes.rows < self._lanes:
            return False
        blocks, units = ceil_div(sizes.rows, self._lanes), self.context.info.compute_units
        if blocks * UNFUSED_BLOCKS < units and blocks * self._lanes * sizes.elements > MIN_SHARED_ELEMENTS:
            return False
        groups = sum(sizes.groups[t.index_number] for t in self._group_tiles)
        return TILE_COST * min(sizes.rows, self._lanes) * sizes.elements >= self._lanes * groups


def _element_functions(of_table: TableFunction) -> Iterator[ElementFunction]:
    """Yield the functions of all steps."""
    return (step.function for step in of_table.function.steps if isinstance(step, Map))


def _spread(layout: Layout) -> Layout:
    """Return the layout of an array as one of a matrix, without steps along dimensions of length 1."""
    if layout.ndim == 1:
        layout = layout.dimshuffle((0, "x"))
    strides = (0 if n == 1 else step for n, step in zip(layout.shape, layout.strides, strict=True))
    return layout._replace(strides=tuple(strides))
