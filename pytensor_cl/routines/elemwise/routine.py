"""Functions of each element, with broadcasting; copies, casts and fills."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from threading import get_ident
from typing import Any, NamedTuple, Protocol

import numpy as np

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.codegen.emitter import Emitter, Scalar, unroll_of
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import CACHE_WAY_BYTES, INT_LIMIT
from pytensor_cl.routines.base.ndrange import local_memory, ndrange
from pytensor_cl.routines.base.routine import KernelVariants, Plans, Routine, ValueArgument, struct_argument
from pytensor_cl.routines.base.units import MEMBERS, rows_have_vectors, share_out, vector_lanes
from pytensor_cl.routines.elemwise.limits import (
    LONG_TILE_ROW_BYTES,
    MAX_CALLS,
    MAX_TRANSPOSED,
    MIN_TILED_ELEMENTS,
    MIN_TRANSPOSED_ELEMENTS,
    SPREAD_BYTES,
    TILE_GROUP_ROWS,
    TILE_SIDE_ELEMENTS,
    TRANSPOSED_TILE_BYTES,
    TRANSPOSED_TILE_COLUMNS,
    TRANSPOSED_TILE_ROWS,
    WIDE_ROW_ELEMENTS,
)
from pytensor_cl.routines.elemwise.row_packing import Fold, find_fold
from pytensor_cl.runtime.array import GpuArray, share_memory
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device_copy import PAST_CACHE
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.runtime.program import Kernel

_CALL = re.compile(r"\b([a-z]\w*)\(")
_DEFINITION = re.compile(r"^static\b[^;{}()]*?\b(\w+)\(", re.MULTILINE)
_CHEAP = re.compile("as_|convert_|f(abs|ma|max|min)$|floor|is|m(ax|in|odulo)|select|sqrt")

Shape = tuple[int, ...]
Strides = tuple[tuple[int, ...], ...]


class ElementFunction(Protocol):
    """C code of a function of one element of each input.

    `input_dtypes`, `output_dtypes`: dtypes of ``i0..`` and ``o0..``; bool is a byte that is 0 or 1; `preambles`:
    functions that the statements call, for any number of lanes; `itemsize`: bytes of the widest type; `operations`:
    statements for one element.
    """

    @property
    def input_dtypes(self) -> tuple[str, ...]: ...
    @property
    def output_dtypes(self) -> tuple[str, ...]: ...
    @property
    def preambles(self) -> tuple[str, ...]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def operations(self) -> int: ...

    def statements(self, lanes: int) -> str:
        """Return statements that assign ``o0..`` (declared by the kernel) from ``i0..``, all of `lanes` lanes."""


@dataclass(frozen=True)
class Cast:
    """The element function of ``astype``, and of a copy."""

    source: str
    target: str

    @property
    def preambles(self) -> tuple[str, ...]:
        """OpenCL C functions that convert float16 numbers."""
        return tuple(self._write(1)[0].preambles)

    @property
    def input_dtypes(self) -> tuple[str, ...]:
        """The one dtype read."""
        return (self.source,)

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """The one dtype written."""
        return (self.target,)

    @property
    def itemsize(self) -> int:
        """Bytes of the wider dtype."""
        return max(np.dtype(self.source).itemsize, np.dtype(self.target).itemsize)

    def statements(self, lanes: int) -> str:
        """Return the assignment of ``o0``."""
        writer, value = self._write(lanes)
        return writer.body((value,))

    @property
    def operations(self) -> int:
        """Statements for one element."""
        writer, value = self._write(1)
        return writer.operations((value,))

    def _write(self, lanes: int) -> tuple[Emitter, Scalar]:
        writer = Emitter(lanes)
        return writer, writer.cast(writer.input("i0", self.source), self.target)


def lanes_of(function: ElementFunction) -> int:
    """Return how many lanes the vectors of a CPU kernel have."""
    return 8 if function.itemsize > 4 else 16


class _Plan(NamedTuple):
    """Launch parameters for one set of layouts; `kernel` is None if no array has elements."""

    kernel: Kernel | None
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    argument: Any  # the packed struct, or a buffer that holds it
    is_past_cache: bool = False  # the arrays exceed the cache, so that stores bypass it
    tables: tuple[Any, ...] = ()  # buffers of the offsets of column elements


class Access(NamedTuple):
    """Arrays, by their numbers, that a kernel reads in another way than the rest.

    `columns`: one element serves several lanes; `is_wide`: whether a vector has at most two elements of columns;
    `transposed`: pass through tiles.
    """

    columns: tuple[int, ...] = ()
    is_wide: bool = False
    transposed: tuple[int, ...] = ()


NONE = Access()


class _PackedRows(NamedTuple):
    """Launch parameters for rows that are folded."""

    fold: Fold
    parts: tuple[tuple[_Plan, tuple[int, ...]], ...]  # launches, each with the shifts of the arrays in elements


def _pad(values: Sequence[int], length: int, fill: int) -> list[int]:
    return [fill] * (length - len(values)) + list(values)


def _memory_order(shape: Shape, strides: Strides) -> tuple[Shape, Strides]:
    """Put the dimensions in the order of the last operand, an output, in memory."""
    steps = [abs(s) for s in strides[-1]]
    order = sorted(range(len(shape)), key=lambda d: -steps[d])
    if order == list(range(len(shape))):
        return shape, strides
    return tuple(shape[d] for d in order), tuple(tuple(s[d] for d in order) for s in strides)


def collapsed_ndim(layouts: Sequence[Layout]) -> int:
    """Return the dimensions that remain of the last layout, an output's, when adjacent ones are merged."""
    shape = layouts[-1].shape
    strides = tuple(layout.broadcast_to(shape).strides for layout in layouts)
    return len(collapse(*_memory_order(shape, strides))[0])


def _move(values: tuple[int, ...], source: int, target: int) -> tuple[int, ...]:
    moved = [*values[:source], *values[source + 1 :]]
    moved.insert(target, values[source])
    return tuple(moved)


def _arrange(shape: Shape, strides: Strides, lanes: int) -> tuple[Shape, Strides]:
    """Choose the dimension of the lanes (put last) and that of the rows (put before it)."""
    last = len(shape) - 1
    if last < 1:
        return shape, strides
    lane = last if 2 * shape[-1] >= lanes else shape.index(max(shape))
    shape, strides = _move(shape, lane, last), tuple(_move(s, lane, last) for s in strides)
    row = _row_dimension(strides)
    return _move(shape, row, last - 1), tuple(_move(s, row, last - 1) for s in strides)


def _row_dimension(strides: Strides) -> int:
    """Return the dimension along which the first gathered operand uses the rest of the cache lines it touched."""
    last = len(strides[0]) - 1
    gathered = next((s for s in strides if abs(s[-1]) > 1), None)
    if gathered is None:
        return last - 1
    return min(reversed(range(last)), key=lambda d: abs(gathered[d]) or abs(gathered[-1]))


def _crossing_columns(shape: Shape, strides: Strides, itemsize: int, columns: int) -> int:
    """Return the columns of a tile where an operand is transposed, if there should be `columns` of four bytes.

    Where others are read along the rows, these are longer: stores, and loads about a page further on, seem to hold each
    other up. But the lines of the transposed one must not fall on the same few sets of the cache.
    """
    steps = [gcd(s[-1] * itemsize, CACHE_WAY_BYTES) for s in strides if 0 < abs(s[-2]) < abs(s[-1])]
    along = sum(abs(s[-1]) == 1 for s in strides)
    if along > 1 and max(steps, default=CACHE_WAY_BYTES) <= SPREAD_BYTES:
        return LONG_TILE_ROW_BYTES // itemsize
    return columns if itemsize <= 4 or shape[-1] < WIDE_ROW_ELEMENTS else max(1, 4 * columns // itemsize)


def _tiles(shape: Shape, strides: Strides, tile: int, crossing_columns: int) -> tuple[int, int, int, int, int]:
    """Return rows and columns of a tile, the tiles along each, and the tiles in all."""
    crossing = any(0 < abs(s[-2]) < abs(s[-1]) for s in strides)
    width = max(crossing_columns, tile // shape[-2]) if crossing else tile
    columns = min(shape[-1], width)
    return _count_tiles(shape, min(shape[-2], max(1, tile // columns)), columns)


def _count_tiles(shape: Shape, rows: int, columns: int) -> tuple[int, int, int, int, int]:
    row_tiles, column_tiles = ceil_div(shape[-2], rows), ceil_div(shape[-1], columns)
    return rows, columns, row_tiles, column_tiles, row_tiles * column_tiles * prod(shape[:-2])


def _calls(statements: str) -> list[str]:
    """Return the functions of many operations that are called."""
    return [name for name in _CALL.findall(statements) if not _CHEAP.match(name)]


def _has_many_calls(statements: str, preambles: Iterable[str]) -> bool:
    """Return whether a function calls one of its preambles, or many functions of many operations.

    It has no registers for several elements at a time, and it hides the latency of memory by itself. Compilers inline
    what it calls into each copy, and some take minutes for the copies of a long function.
    """
    calls = _calls(statements)
    own = {name for text in preambles for name in _DEFINITION.findall(text)} if calls else set()
    return len(calls) > MAX_CALLS or not own.isdisjoint(calls)


def common_shape(shapes: Sequence[Shape], broadcast: Sequence[Sequence[bool]]) -> Shape:
    """Return the shape to which inputs of a graph are broadcast.

    `broadcast`: for each dimension of each input whether it may be repeated.

    Raises `ValueError`: the shapes differ, or a dimension of length 1 would have to be repeated that may not be.
    """
    if len(set(shapes)) == 1:
        return shapes[0]
    result = tuple(next((n for n in lengths if n != 1), 1) for lengths in zip(*shapes, strict=True))
    for shape, known in zip(shapes, broadcast, strict=True):
        if any(n == 1 != m and not one for n, m, one in zip(shape, result, known, strict=True)):
            raise ValueError(
                "Runtime broadcasting not allowed. At least one input has a distinct dimension length of 1, but "
                f"was not marked as broadcastable (input shapes: {', '.join(map(str, shapes))}).\n"
                "If broadcasting was intended, use `specify_broadcastable` on the relevant input."
            )
    if any(n not in (1, m) for shape in shapes for n, m in zip(shape, result, strict=True)):
        raise ValueError(f"Input dimension mismatch: the input shapes are {', '.join(map(str, shapes))}")
    return result


class Elemwise(Routine):
    """Apply an element function.

    `broadcast`: whether the length of each dimension of each input is known to be 1, so that it may be repeated;
    `ndim`: dimensions of every array; `by_value`: for each input, whether it is a NumPy scalar instead of an array.
    """

    def __init__(
        self,
        context: Context,
        function: ElementFunction,
        broadcast: Sequence[Sequence[bool | None]],
        ndim: int,
        by_value: Sequence[bool],
        schedule: str | None = None,
    ) -> None:
        super().__init__(context, schedule)
        self.function = function
        self.ndim = ndim
        self.by_value = tuple(by_value)
        self.output_dtypes = tuple(function.output_dtypes)
        self._places = [k for k, value in enumerate(self.by_value) if not value]
        self._broadcast = [tuple(map(bool, broadcast[k])) for k in self._places]
        scalar = {k: np.dtype(t if t != "bool" else "uint8").type for k, t in enumerate(function.input_dtypes)}
        self._scalars = [(k, scalar[k]) for k, value in enumerate(self.by_value) if value]
        self.value_arguments = {k: ValueArgument(convert, k) for k, convert in self._scalars}
        self._count = len(self._places) + len(self.output_dtypes)
        flags = "non_temporal " if self.schedule == "cpu" else ""
        self._offsets = Struct(("long", f"{flags}at[{self._count}]"), name="offsets")
        self._plans: Plans[_Plan | _PackedRows] = Plans()
        self._kernels = KernelVariants(self._build)
        self._lanes = self._unit_lanes() if self.schedule == "simt" else lanes_of(function)
        known = [a for a, row in enumerate(self._broadcast) if row[-1:] == (True,)]
        self._repeated_inputs = tuple(known) if len(known) < len(self._places) else ()
        self._sources = {("int", NONE): self._render("int")}

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel with 32-bit indices; the one with 64-bit indices is built when an array needs it."""
        return (self._sources["int", NONE],)

    # The kernels

    def value_kernels(self) -> Iterable[Kernel]:
        """Return the kernels that take numbers of the host."""
        return self._kernels.values()

    @property
    def _kernel_ndim(self) -> int:
        return max(self.ndim, 2 if self.schedule == "cpu" else 1)

    def _plan_struct(self, index: str, access: Access = NONE) -> Struct:
        """Return the struct of shapes and strides, in elements, and of the tiles that share out the work."""
        ndim = self._kernel_ndim
        dims = f"shape[{ndim}] stride[{self._count}][{ndim}]"
        if self.schedule == "cpu":
            return Struct((index, dims), (index, "rows columns row_tiles column_tiles tiles"), name="plan")
        return Struct((index, f"{MEMBERS if access == NONE else 'tiles'} {dims}"), name="plan")

    def _in_buffer(self, index: str) -> bool:
        pointers = 8 * (1 + self._count + len(self._scalars))
        used = pointers + self._offsets.size + self._plan_struct(index).size
        return used > self.context.info.max_parameter_size

    @property
    def _array_dtypes(self) -> tuple[str, ...]:
        return (*(self.function.input_dtypes[k] for k in self._places), *self.output_dtypes)

    @property
    def _is_long(self) -> bool:
        """Return whether a work-item of schedule simt has registers for one element only."""
        function = self.function
        return unroll_of(function.operations) == 1 or _has_many_calls(function.statements(1), function.preambles)

    def _unit_lanes(self) -> int:
        """Return how many elements a work-item of schedule simt computes at a time."""
        return 1 if self._is_long else vector_lanes(self.function.itemsize, unroll_of(self.function.operations))

    def _render(self, index: str, access: Access = NONE) -> KernelSource:
        lanes = self._lanes if self.schedule == "cpu" else 1
        arguments = {
            "inputs": tuple(self.function.input_dtypes),
            "by_value": self.by_value,
            "outputs": self.output_dtypes,
            "statements": self.function.statements(lanes),
            "plan": self._plan_struct(index, access),
            "offsets": self._offsets,
            "ndim": self._kernel_ndim,
            "index": index,
            "plan_in_buffer": self._in_buffer(index),
        }
        if self.schedule == "simt":
            preambles = tuple(self.function.preambles)
            if access != NONE:
                transposed = tuple(self._places[a] for a in access.transposed)
                arguments |= {"transposed": transposed, "is_long": self._is_long}
                return kernel_source("elemwise/simt_tiled", preambles=preambles, **arguments)
            arguments |= {
                "lanes": self._lanes,
                "vectors": self._lanes > 1 and not any(map(is_complex, self._array_dtypes)),
                "one_by_one": self._lanes == 1 or len(_calls(str(arguments["statements"]))) > 1,
                "repeated": tuple(self._places[a] for a in self._repeated_inputs),
            }
            return kernel_source("elemwise/simt", preambles=preambles, **arguments)
        used = dict.fromkeys((*(self.function.input_dtypes[k] for k in self._places), *self.output_dtypes))
        vectors = tuple(render("common/vector_access", dtype=dtype, lanes=lanes) for dtype in used)
        spread = (
            render("common/splat_index", dtype=dtype, lanes=lanes, is_wide=access.is_wide)
            for dtype in dict.fromkeys(self.function.input_dtypes[self._places[a]] for a in access.columns)
        )
        preambles = (*vectors, *spread, render("common/non_temporal"), *self.function.preambles)
        repeated = tuple(f"i{k}" for k, known in zip(self._places, self._broadcast, strict=True) if True in known[-1:])
        return kernel_source(
            "elemwise/cpu",
            preambles=preambles,
            lanes=lanes,
            broadcast_inputs=repeated,
            columns=access.columns,
            transposed=access.transposed,
            tile=(self._tile_rows, TRANSPOSED_TILE_COLUMNS),
            **arguments,
        )

    def _build(self, variant: tuple[str, str, Access]) -> Kernel:
        index, suffix, access = variant
        if (index, access) not in self._sources:
            self._sources[index, access] = self._render(index, access)
        source = self._sources[index, access]
        return self.context.kernel(source, source.name + suffix)

    # Shapes

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the common shape of the inputs, C-contiguous, once per output.

        Raises `ValueError`: the shapes differ, or a dimension that is not known to have length 1 would have to be
        repeated.
        """
        shapes = [inputs[k].shape for k in self._places]
        result = Layout.contiguous(self._common_shape(shapes))
        return (result,) * len(self.output_dtypes)

    def _common_shape(self, shapes: list[Shape]) -> Shape:
        if not shapes:  # values only: each stands for an array of one element
            return (1,) * self.ndim
        return common_shape(shapes, self._broadcast)

    # Launch

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernel; the outputs may have any strides, and may be inputs of the same layout."""
        arrays: list[Any] = [inputs[k] for k in self._places]
        arrays.extend(outputs)
        self.launch_plan(self.plan_for([array.layout for array in arrays]), arrays, inputs)

    def plan_for(self, layouts: list[Layout]) -> _Plan | _PackedRows:
        """Return what a launch of these layouts (inputs that are arrays, then outputs) needs, for `launch_plan`.

        It holds for any offsets.
        """
        key = tuple([layout[:2] for layout in layouts])
        plan = self._plans.get(key)
        return self._plans.store(key, self._plan(layouts)) if plan is None else plan

    def launch_plan(
        self, plan: _Plan | _PackedRows, arrays: list[Any], inputs: Sequence[GpuArray | np.generic]
    ) -> None:
        """Enqueue the kernel of a plan; `arrays`: inputs that are arrays, then outputs."""
        if isinstance(plan, _PackedRows):
            for k in plan.fold.numbers("row"):
                arrays[k] = self._repeated(arrays[k], plan.fold, k)
            for part, shifts in plan.parts:
                self._run(part, arrays, inputs, shifts)
        elif plan.kernel is not None:
            self._run(plan, arrays, inputs, ())

    def _run(
        self, plan: _Plan, arrays: Sequence[Any], inputs: Sequence[GpuArray | np.generic], shifts: Sequence[int]
    ) -> None:
        arguments: list[Any] = [array.buffer for array in arrays]
        for k, convert in self._scalars:
            arguments.insert(k, convert(inputs[k]))
        starts = [array.layout[2] for array in arrays]
        if shifts:
            starts = [start + shift for start, shift in zip(starts, shifts, strict=True)]
        if self.schedule == "cpu":
            starts.insert(0, plan.is_past_cache and not self._is_inplace(arrays))
        offsets = self._offsets.pack_values(*starts)
        assert plan.kernel is not None
        plan.kernel.launch(
            self.context.queue, plan.global_size, plan.local_size, *arguments, offsets, plan.argument, *plan.tables
        )

    def _repeated(self, array: GpuArray, fold: Fold, number: int) -> GpuArray:
        """Return a row, as often as it is in a group."""
        result = self.context.empty((fold.group, *fold.shape[1:]), array.dtype)
        copy = _copy(self.context, array.dtype.name, result.ndim, get_ident())
        copy.launch((result,), (array.with_layout(fold.row(number, array.layout.offset)),))
        return result

    def _is_inplace(self, arrays: Sequence[GpuArray]) -> bool:
        places = len(self._places)
        read = {array.buffer for array in arrays[:places]}
        return any(array.buffer in read for array in arrays[places:])

    def _plan(self, layouts: list[Layout]) -> _Plan | _PackedRows:
        shape = layouts[-1].shape
        if 0 in shape:
            return _Plan(None, (), None, b"")
        spread = tuple(layout.broadcast_to(shape) for layout in layouts)
        small = all(low > -INT_LIMIT and high < INT_LIMIT for low, high in map(_relative_span, spread))
        index = "int" if small else "long"
        strides = tuple(layout.strides for layout in spread)
        shape, strides = collapse(*_memory_order(shape, strides))
        is_past_cache = self._is_past_cache(layouts)
        if self.schedule == "simt":
            return self._simt_plan(index, shape, strides)._replace(is_past_cache=is_past_cache)
        fold = find_fold(shape, strides, lanes_of(self.function), len(self.output_dtypes)) if small else None
        if fold is None:
            return self._cpu_plan(index, shape, strides)._replace(is_past_cache=is_past_cache)
        return self._packed_rows(fold, is_past_cache)

    def _packed_rows(self, fold: Fold, is_past_cache: bool) -> _PackedRows:
        columns = fold.numbers("column")
        access = Access(columns, fold.width >= lanes_of(self.function)) if columns else NONE
        tables = tuple(self.context.from_host(fold.places(k)).buffer for k in columns)
        parts = []
        for shape, strides, shifts in fold.parts():
            plan = self._cpu_plan("int", shape, strides, access)
            parts.append((plan._replace(is_past_cache=is_past_cache, tables=tables), shifts))
        return _PackedRows(fold, tuple(parts))

    def _is_past_cache(self, layouts: list[Layout]) -> bool:
        sizes = (s.size * np.dtype(t).itemsize for s, t in zip(layouts, self._array_dtypes, strict=True))
        return sum(sizes) >= PAST_CACHE

    def _argument(self, plan: Struct, index: str, shape: Shape, strides: Strides, **others: int) -> Any:
        padded = [_pad(s, self._kernel_ndim, 0) for s in strides]
        packed = plan.pack(shape=_pad(shape, self._kernel_ndim, 1), stride=padded, **others)
        return struct_argument(self.context, packed, self._in_buffer(index))

    def _cpu_plan(self, index: str, shape: Shape, strides: Strides, access: Access = NONE) -> _Plan:
        shape, strides = _arrange(shape, strides, lanes_of(self.function))
        padded = tuple(_pad(shape, 2, 1)), tuple(tuple(_pad(s, 2, 0)) for s in strides)
        tuning = self.context.tuning
        itemsize = self.function.itemsize
        if access == NONE:
            access = Access(transposed=self._transposed(*padded))
        most = tuning["elemwise.items_per_unit"] * self.context.info.compute_units
        if access.transposed:
            share = ceil_div(prod(shape), most * TRANSPOSED_TILE_COLUMNS * self._lanes)
            tiles = _count_tiles(padded[0], min(self._tile_rows, share * self._lanes), TRANSPOSED_TILE_COLUMNS)
        else:
            crossing = _crossing_columns(*padded, itemsize, tuning["elemwise.crossing_columns"])
            tiles = _tiles(*padded, tuning["elemwise.tile"], crossing)
        work_items = min(tiles[-1], most)
        names = ("rows", "columns", "row_tiles", "column_tiles", "tiles")
        argument = self._argument(
            self._plan_struct(index), index, shape, strides, **dict(zip(names, tiles, strict=True))
        )
        return _Plan(self._kernels[index, "", access], (work_items,), (1,), argument)

    @property
    def _tile_rows(self) -> int:
        """Rows of the tiles of operands that are transposed in registers."""
        return min(TRANSPOSED_TILE_ROWS, TRANSPOSED_TILE_BYTES // (TRANSPOSED_TILE_COLUMNS * self.function.itemsize))

    def _transposed(self, shape: Shape, strides: Strides) -> tuple[int, ...]:
        """Return the arrays that pass through tiles: their neighbours are along the last dimension but one."""
        if prod(shape) < MIN_TRANSPOSED_ELEMENTS or min(shape[-2:]) < 2 * self._lanes:
            return ()
        dtypes = self._array_dtypes
        found = [a for a in range(len(self._places)) if abs(strides[a][-2]) == 1 and abs(strides[a][-1]) > 1]
        return tuple(a for a in found if not is_complex(dtypes[a]))[:MAX_TRANSPOSED]

    def _simt_plan(self, index: str, shape: Shape, strides: Strides) -> _Plan:
        tuning = self.context.tuning
        tiled = self._tiled_plan(index, shape, strides)
        if tiled is not None:
            return tiled
        kernel = self._kernels[index, "", NONE]
        units = share_out(shape, self._lanes, self._has_vectors(shape, strides))
        sizes = ndrange(
            self.context, kernel, units.expected, tuning["elemwise.group"], tuning["elemwise.groups_per_unit"]
        )
        argument = self._argument(self._plan_struct(index), index, shape, strides, **units._asdict())
        return _Plan(kernel, *sizes, argument)

    def _has_vectors(self, shape: Shape, strides: Strides) -> bool:
        """Return whether the kernel of schedule simt can move vectors of this layout, if addresses are aligned."""
        repeated = self._repeated_inputs
        moved = [s for a, s in enumerate(strides) if a not in repeated]
        return rows_have_vectors(shape, moved, self._lanes) and not any(strides[a][-1] for a in repeated)

    def _tiled_plan(self, index: str, shape: Shape, strides: Strides) -> _Plan | None:
        """Return the plan of the kernel with tiles, if inputs run along another dimension than outputs."""
        tiling, info = _find_tiling(shape, strides, len(self._places)), self.context.info
        if tiling is None or info.max_work_group_size < TILE_SIDE_ELEMENTS * TILE_GROUP_ROWS:
            return None
        itemsizes = (np.dtype(self.function.input_dtypes[self._places[a]]).itemsize for a in tiling.transposed)
        if TILE_SIDE_ELEMENTS * (TILE_SIDE_ELEMENTS + 1) * sum(itemsizes) > local_memory(info) // 2:
            return None
        kernel = self._kernels[index, "", Access(transposed=tiling.transposed)]
        if kernel.max_work_group_size(self.context.device) < TILE_SIDE_ELEMENTS * TILE_GROUP_ROWS:
            return None
        most = self.context.tuning["elemwise.groups_per_unit"] * info.compute_units
        plan = self._plan_struct(index, Access(transposed=tiling.transposed))
        argument = self._argument(plan, index, tiling.shape, tiling.strides, tiles=tiling.tiles)
        return _Plan(
            kernel,
            (min(tiling.tiles, most) * TILE_SIDE_ELEMENTS, TILE_GROUP_ROWS),
            (TILE_SIDE_ELEMENTS, TILE_GROUP_ROWS),
            argument,
        )


class _Tiling(NamedTuple):
    """Dimensions in the order that kernels/elemwise/simt_tiled.mako takes, and which arrays are transposed."""

    shape: Shape
    strides: Strides
    transposed: tuple[int, ...]

    @property
    def tiles(self) -> int:
        """Their number."""
        return prod(self.shape[:-2]) * prod(ceil_div(n, TILE_SIDE_ELEMENTS) for n in self.shape[-2:])


def _find_tiling(shape: Shape, strides: Strides, inputs: int) -> _Tiling | None:
    """Return how some inputs pass through tiles, if their neighbours are along another dimension than the outputs'."""
    last = len(shape) - 1
    if last < 1 or shape[last] < MIN_TILED_ELEMENTS or any(abs(s[last]) != 1 for s in strides[inputs:]):
        return None
    for d in range(last - 1, -1, -1):
        transposed = tuple(a for a in range(inputs) if abs(strides[a][d]) == 1 and abs(strides[a][last]) > 1)
        if transposed and shape[d] >= MIN_TILED_ELEMENTS:
            order = [*(i for i in range(last) if i != d), d, last]
            return _Tiling(
                tuple(shape[i] for i in order), tuple(tuple(s[i] for i in order) for s in strides), transposed
            )
    return None


def _relative_span(layout: Layout) -> tuple[int, int]:
    low, high = layout.span
    return low - layout.offset, max(high - layout.offset, layout.size)


class Copy(Elemwise):
    """Copy arrays of one dtype and number of dimensions, with a cast if the dtypes differ.

    ``launch`` repeats an input's dimensions of length 1 to the shape of the output.
    """

    def __init__(
        self, context: Context, dtype: str, ndim: int, target: str | None = None, schedule: str | None = None
    ) -> None:
        super().__init__(context, Cast(dtype, target or dtype), ((False,) * ndim,), ndim, (False,), schedule)


class Fill(Elemwise):
    """Set every element of an output to a NumPy scalar: ``launch((output,), (value,))``."""

    def __init__(self, context: Context, dtype: str, ndim: int, schedule: str | None = None) -> None:
        super().__init__(context, Cast(dtype, dtype), ((),), ndim, (True,), schedule)


@lru_cache(maxsize=256)
def _copy(context: Context, dtype: str, ndim: int, thread: int) -> Copy:
    """Return the thread's own routine: a kernel holds its arguments between two calls of the driver."""
    return Copy(context, dtype, ndim)


def contiguous(array: GpuArray) -> GpuArray:
    """Return the array itself if it is C-contiguous (at any offset), else a C-contiguous copy."""
    return array if array.layout.is_contiguous else dense_copy(array)


def dense_copy(array: GpuArray) -> GpuArray:
    """Return a C-contiguous copy."""
    return _copy(array.context, array.dtype.name, array.ndim, get_ident())(array)[0]


def without_overlap(array: GpuArray, target: GpuArray) -> GpuArray:
    """Return the array itself if it has no memory that may be the target's, else a copy: for what writes the target."""
    return dense_copy(array) if share_memory(array, target) else array
