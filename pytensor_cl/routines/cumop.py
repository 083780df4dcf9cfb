"""Cumulative sums and products along an axis of a strided array."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.codegen.dtypes import ctype, is_complex, literal
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.along_axis import AlongAxis, Operands
from pytensor_cl.routines.base.limits import (
    BUSY_GROUPS_PER_UNIT,
    COLUMN_TILE_VECTORS,
    GROUP_ITEMS,
    ITEMS_PER_UNIT,
    KERNEL_DIMS,
)
from pytensor_cl.routines.base.routine import Routine, struct_argument
from pytensor_cl.routines.base.two_pass import chunks_of
from pytensor_cl.routines.elemwise.routine import Fill
from pytensor_cl.routines.reduction import plan as planning
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, contiguous_strides
from pytensor_cl.runtime.program import Kernel

RUN_BYTES = 64  # neighbouring elements that a work-item takes, as bytes of the local memory
MAX_RUN_ELEMENTS = 16  # most of them: each is in a register
MIN_GROUP_ROW = 128  # shorter rows are not worth a work-group of their own
MIN_SHARED_ELEMENTS = 1 << 16  # elements that are not shared out: totals of the chunks would have to be made first
MIN_CHUNK_ELEMENTS = 1 << 14  # elements that a chunk has at least

# Name -> combination of floats, of integers, of bools and of pairs of type {T}, and the value that changes nothing.
# Integers are handled as unsigned ones, which wrap; 1u keeps narrow ones from becoming int.
_PRODUCT = "({T})(a.even * b.even - a.odd * b.odd, a.even * b.odd + a.odd * b.even)"
OPERATIONS: dict[str, tuple[dict[str, str], int]] = {
    "add": ({"f": "a + b", "u": "a + b", "b": "a | b", "c": "a + b"}, 0),
    "mul": ({"f": "a * b", "u": "a * b", "b": "a & b", "c": _PRODUCT}, 1),
}
_BEFORE = {"rows": "sums", "columns": "totals"}  # kernels of schedule simt for the totals of chunks
_NARROW = {"mul": "1u * a * b"}


class _Problem(NamedTuple):
    """The rows: length and steps along the axis; length and steps (output, input, totals) of each other dimension."""

    length: int
    in_step: int
    out_step: int
    outer: tuple[tuple[int, ...], ...]
    in_shift: int
    out_shift: int
    total_shift: int

    @property
    def outputs(self) -> int:
        """Number of rows."""
        return int(np.prod([n for n, *_ in self.outer], dtype=object))

    @property
    def columns(self) -> tuple[int, int]:
        """Number of rows beside each other, and the step between them in the output."""
        return (self.outer[0][0], self.outer[0][1]) if self.outer else (1, 1)


class _Split(NamedTuple):
    """Split of the work: chunks of the axis, blocks of rows, and tiles across the innermost dimension."""

    pattern: str
    chunk: int
    chunks: int
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    blocks: int = 0
    tiles: int = 1


class _Plan(NamedTuple):
    """A launch, all but its buffers and the arrays' offsets; nothing is to be done without a kernel.

    `geometry`: the struct, or a buffer that holds it; `before`: on schedule simt, what makes the totals of chunks of
    rows, or scans those of columns.
    """

    kernel: Kernel | None
    problem: _Problem
    split: _Split
    geometry: Any = b""
    before: Any = None


@cache
def geometry_struct(index: str, outer_dims: int) -> Struct:
    """Return the struct with the layouts of the arrays and the partition of the work; rows are along the axis.

    `index`: C type of its members; `outer_dims`: other dimensions that it holds, from the innermost outwards; lengths
    and steps in elements.
    """
    return Struct(
        (index, "outputs length chunk chunks blocks tiles in_step out_step first_total"),
        (index, f"outer[{outer_dims}] outer_out[{outer_dims}] outer_in[{outer_dims}] outer_total[{outer_dims}]"),
        name="geometry",
    )


def _normal_form(layout: Layout, out_strides: Sequence[int], axis: int) -> _Problem:
    """Take the axis out, and put the other dimensions in the output's order in memory."""
    others = [d for d in range(layout.ndim) if d != axis]
    totals = contiguous_strides([layout.shape[d] for d in others])
    dims = [
        (layout.shape[d], out_strides[d], layout.strides[d], total) for d, total in zip(others, totals, strict=True)
    ]
    outer, (out_shift, in_shift, total_shift) = planning.canonicalize_dims(dims, 3)
    length, in_step = layout.shape[axis], layout.strides[axis]
    return _Problem(length, in_step, out_strides[axis], outer, in_shift, out_shift, total_shift)


def _chunks_of(problem: _Problem, wanted: int) -> tuple[int, int]:
    """Return length and number of chunks, close to the target number."""
    wanted = min(wanted, problem.length * problem.outputs // MIN_CHUNK_ELEMENTS)
    if wanted <= 1 or problem.length * problem.outputs < MIN_SHARED_ELEMENTS:
        return problem.length, 1
    return chunks_of(problem.length, wanted)


def split_cpu(problem: _Problem, units: int, lanes: int) -> _Split:
    """Share out the work to a few work-items, each with a run of tasks."""
    columns, step = problem.columns
    along = columns < lanes or (problem.length >= lanes and abs(problem.out_step) < abs(step))
    tiles = 1 if along else ceil_div(columns, COLUMN_TILE_VECTORS * lanes)
    blocks = problem.outputs if along else problem.outputs // columns * tiles
    is_small = problem.length * problem.outputs < MIN_SHARED_ELEMENTS
    chunk, chunks = _chunks_of(problem, ceil_div(2 * units, blocks) if blocks < 2 * units else 1)
    workers = 1 if is_small else min(ITEMS_PER_UNIT * units, blocks * chunks)
    return _Split("rows" if along else "columns", chunk, chunks, (workers,), (1,), blocks, tiles)


def split_simt(problem: _Problem, units: int, group: int) -> _Split:
    """Share out the work to many work-items, or to work-groups where rows are long."""
    outputs, (columns, step) = problem.outputs, problem.columns
    along = problem.length >= MIN_GROUP_ROW and (columns < 32 or abs(problem.out_step) < abs(step))
    groups = outputs if along else ceil_div(outputs, group)
    chunk, chunks = _chunks_of(problem, BUSY_GROUPS_PER_UNIT * units // groups)
    return _Split("rows" if along else "columns", chunk, chunks, (groups * group, chunks), (group, 1))


class CumOp(AlongAxis[_Plan]):
    """Combine each element with all before it along an axis.

    Integers wrap, and bools stay bools (``or`` for sums, ``and`` for products): the output has the input's
    dtype. The elements are combined in blocks, so sums of floats are more accurate than one after another;
    a product overflows or underflows where a block's own product does.

    `operation`: ``"add"`` or ``"mul"``; `ndim`: number of dimensions, at least one; `axis`: along which; not negative.
    """

    _noun = "a cumulative operation"

    def __init__(
        self, context: Context, operation: str, dtype: str, ndim: int, axis: int, *, schedule: str | None = None
    ) -> None:
        super().__init__(context, ndim, axis, "simt" if is_complex(dtype) else schedule)
        if dtype == "float16":
            raise UnsupportedDtype("cumulative operations on float16 are computed in float32")
        self.output_dtypes = (dtype,)
        kind = np.dtype(dtype)
        self._stored = f"uint{8 * kind.itemsize}" if kind.kind in "iu" else dtype
        self._lanes = 8 if kind.itemsize == 8 else 16
        combine, identity = OPERATIONS[operation]
        is_narrow = self.schedule == "simt" and kind.kind in "iu"
        self._arguments: dict[str, Any] = {
            "dtype": self._stored,
            "combine": _NARROW.get(operation, combine["u"]) if is_narrow else self._combine(combine),
            "identity": literal(identity, self._stored),
            "outer_dims": max(KERNEL_DIMS, ndim - 1),
        }
        self._reduction = Reduction(
            context, operation, self._stored, self._stored, self._stored, ndim + 1, (axis + 1,), schedule=schedule
        )

    @property
    def _group(self) -> int:
        """Work-items of a work-group on schedule simt; each has a run of elements and its sum in local memory."""
        return self.limits.size(GROUP_ITEMS, (self._run + self._run // 8 + 3) * np.dtype(self._stored).itemsize)

    @property
    def _run(self) -> int:
        """Neighbouring elements that a work-item takes on schedule simt; a run is within 128 bytes."""
        return max(8, min(MAX_RUN_ELEMENTS, RUN_BYTES // np.dtype(self._stored).itemsize))

    def _combine(self, by_kind: dict[str, str]) -> str:
        return by_kind[np.dtype(self._stored).kind].replace("{T}", ctype(self._stored))

    def _source(self, pattern: str, index: str) -> KernelSource:
        if self.schedule == "simt":
            return kernel_source(
                "cumop/simt",
                geometry=geometry_struct(index, self._arguments["outer_dims"]),
                index=index,
                in_buffer=self._in_buffer(index),
                run=self._run,
                group=self._group,
                **self._arguments,
            )
        access = render("common/vector_access", dtype=self._stored, lanes=self._lanes)
        vectors: dict[str, Any] = {"lanes": self._lanes, "tile_vectors": COLUMN_TILE_VECTORS}
        return kernel_source(
            "cumop/cpu",
            preambles=(access,),
            geometry=geometry_struct("long", self._arguments["outer_dims"]),
            in_buffer=self._in_buffer("long"),
            pattern=pattern,
            **vectors,
            **self._arguments,
        )

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for contiguous inputs; what makes the totals of chunks is built when it is needed."""
        return (self._source("rows" if self.axis == self.ndim - 1 else "columns", "int"),)

    def _enqueue(self, plan: _Plan, source: GpuArray, operands: Operands) -> None:
        """Enqueue the kernel, after that of the totals if there are several chunks."""
        kernel, _, split, geometry, _ = plan
        if kernel is None:
            return
        sizes = split.global_size, split.local_size
        totals = source.buffer if split.chunks == 1 else self._totals(plan, source, operands)
        kernel.launch(self.context.queue, *sizes, *operands.input, *operands.output, totals, geometry)

    def _totals(self, plan: _Plan, source: GpuArray, operands: Operands) -> Any:
        """Return what the kernel needs of each chunk but the last: its total, or that of it and of all before it."""
        _, problem, split, geometry, before = plan
        queue, count, group = self.context.queue, split.chunks - 1, split.local_size[0]
        if self.schedule == "simt" and split.pattern == "rows":
            totals = self.context.empty((count * problem.outputs,), np.dtype(self._stored)).buffer
            before.launch(queue, (split.global_size[0], count), (group, 1), *operands.input, totals, geometry)
            return totals
        totals = self._reduced(source, split)
        if before is not None:
            numbers = np.int64(count), np.int64(problem.outputs)
            before.launch(queue, (problem.outputs * group,), (group,), totals, *numbers)
        return totals

    def _reduced(self, source: GpuArray, split: _Split) -> Any:
        """Return the total of each chunk but the last: one row per chunk."""
        count, axis = split.chunks - 1, self.axis
        shape, strides, offset = source.layout
        step = strides[axis]
        chunks = Layout((count, *shape[:axis], split.chunk, *shape[axis + 1 :]), (split.chunk * step, *strides), offset)
        (totals,) = self._reduction(GpuArray(self.context, source.buffer, np.dtype(self._stored), chunks))
        return totals.buffer

    def _plan(self, layout: Layout, out_strides: tuple[int, ...]) -> _Plan:
        problem = _normal_form(layout, out_strides, self.axis)
        units = self.context.info.compute_units
        if 0 in layout.shape:
            return _Plan(None, problem, _Split("", 0, 0, (), ()))
        is_simt = self.schedule == "simt"
        split = split_simt(problem, units, self._group) if is_simt else split_cpu(problem, units, self._lanes)
        index = self._index(problem) if is_simt else "long"
        kernel = self._kernel(split.pattern, index, split.local_size[0])
        packed = self._geometry(problem, split, index)
        geometry = struct_argument(self.context, packed, self._in_buffer(index))
        before = None
        if is_simt and split.chunks > 1:
            before = self._kernel(_BEFORE[split.pattern], index, split.local_size[0])
        return _Plan(kernel, problem, split, geometry, before)

    def _index(self, problem: _Problem) -> str:
        """Return the C type that holds every index and step, with room for one tile more."""
        steps = (problem.length, problem.in_step, problem.out_step), *problem.outer
        reach = sum(n * max(1, *map(abs, step)) for n, *step in steps)
        return "int" if max(reach, problem.outputs * problem.length) < 1 << 30 else "long"

    def _kernel(self, pattern: str, index: str, work_items: int) -> Kernel:
        key = pattern, index
        if key not in self._kernels:
            source = self._source(pattern, index)
            suffix = f"_{pattern}" if self.schedule == "simt" else ""
            self._kernels[key] = self.limits.kernel(source, source.name + suffix, work_items)
        return self._kernels[key]

    def _in_buffer(self, index: str) -> bool:
        """Return whether the kernels' struct leaves no room for the other arguments: buffers and offsets."""
        return geometry_struct(index, self._arguments["outer_dims"]).size + 40 > self.context.info.max_parameter_size

    def _geometry(self, problem: _Problem, split: _Split, index: str) -> bytes:
        dims = self._arguments["outer_dims"]
        outer = problem.outer + ((1, 0, 0, 0),) * (dims - len(problem.outer))
        lengths, out_steps, in_steps, total_steps = zip(*outer, strict=True)
        return geometry_struct(index, dims).pack(
            outputs=problem.outputs,
            length=problem.length,
            chunk=split.chunk,
            chunks=split.chunks,
            blocks=split.blocks,
            tiles=split.tiles,
            in_step=problem.in_step,
            out_step=problem.out_step,
            first_total=problem.total_shift,
            outer=lengths,
            outer_out=out_steps,
            outer_in=in_steps,
            outer_total=total_steps,
        )


class CumOpWithInitial(Routine):
    """Combine each element with all before it, after the neutral one: one element more along the axis than the input.

    For parameters see `CumOp`; the initial element is 0 of sums, and 1 of products.
    """

    def __init__(
        self, context: Context, operation: str, dtype: str, ndim: int, axis: int, *, schedule: str | None = None
    ) -> None:
        super().__init__(context, schedule)
        self.axis = axis
        self.output_dtypes = (dtype,)
        self._rest = CumOp(context, operation, dtype, ndim, axis, schedule=schedule)
        self._fill = Fill(context, dtype, ndim, schedule)
        self._initial = np.dtype(dtype).type(OPERATIONS[operation][1])

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernels for contiguous inputs."""
        return (*self._rest.sources(), *self._fill.sources())

    def layout(self, *inputs: Layout) -> tuple[Layout, ...]:
        """Return the layout of the output: one more along the axis.

        Raises `ValueError`: the input has another number of dimensions.
        """
        (layout,) = self._rest.layout(*inputs)
        axis = self.axis
        return (Layout.contiguous((*layout.shape[:axis], layout.shape[axis] + 1, *layout.shape[axis + 1 :])),)

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[GpuArray | np.generic]) -> None:
        """Enqueue the kernels; the output may have any strides."""
        (output,) = outputs
        before = (slice(None),) * self.axis
        self._fill.launch((output[(*before, slice(0, 1))],), (self._initial,))
        self._rest.launch((output[(*before, slice(1, None))],), inputs)
