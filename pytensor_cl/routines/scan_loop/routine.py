"""A loop over time in one kernel: each work-item, or each lane of a vector, has an element of a batch."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.errors import NegativeStepsError
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import ndrange
from pytensor_cl.routines.base.routine import KernelVariants, Routine
from pytensor_cl.routines.elemwise.routine import Copy
from pytensor_cl.routines.scan_loop.chunks import ChunkedLoop, LoopArguments, chunk_lanes, wanted_chunks
from pytensor_cl.routines.scan_loop.limits import HELD_BYTES, MAX_VECTORS
from pytensor_cl.routines.scan_loop.places import Places, inputs_of, outputs_of
from pytensor_cl.routines.scan_loop.program import OUTPUT, SEQUENCE, STATE, SUM, TIME, LoopArray, LoopProgram
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.program import Kernel


class ScanLoop(Routine):
    """Run a loop over time.

    The inputs are the number of steps, and for each array of the program the array, or for an OUTPUT the number of its
    rows; then the numbers of rows of those arrays that have initial values only. Numbers are integers of the host. A
    STATE or an OUTPUT may have fewer rows than there are steps: it then has the last ones. What is behind the last
    row that a loop reaches is zero in STATE and OUTPUT, and unchanged in SUM. An OUTPUT of no steps has no rows. A loop
    with a condition may end early: a call waits for it, and its outputs lack as many rows as steps have not been run.

    `program`: the loop.
    """

    def __init__(self, context: Context, program: LoopProgram, schedule: str | None = None) -> None:
        super().__init__(context, schedule)
        self.program = program
        self.output_dtypes = tuple(program.arrays[k].dtype for k in program.outputs)
        operands = (*inputs_of(program), *outputs_of(program))
        self._places = Places(context, program, operands, max(1, program.axes), "steps vectors")
        self._lanes = chunk_lanes(program, self.schedule) if program.axes else 1
        self._is_while = program.condition is not None
        self._rolled = {
            (program.arrays[k].dtype, len(program.arrays[k].out_dims)): Copy(
                context, program.arrays[k].dtype, len(program.arrays[k].out_dims)
            )
            for k in program.outputs
            if self._is_while and TIME in program.arrays[k].out_dims
        }
        self._kernels = KernelVariants(self._build)
        self._sources: dict[int, KernelSource] = {}
        self.methods: set[str] = set()  # how calls have run loops of so many steps that chunks of time may pay

    @cached_property
    def _chunked(self) -> ChunkedLoop:
        return ChunkedLoop(self.context, self.program, self.schedule)

    # Kernels

    def sources(self) -> tuple[KernelSource, ...]:
        """Return the kernel for large batches; the one for small batches is built when it is needed."""
        copies = (source for copy in self._rolled.values() for source in copy.sources())
        return (self._source(self._lanes), *copies)

    def _vectors(self, lanes: int) -> int:
        """Return how many vectors a work-item advances in turn, at most."""
        if lanes == 1:
            return 1
        held = max(1, self.program.held) * lanes * self.program.step.itemsize
        return max(1, min(MAX_VECTORS, HELD_BYTES // held))

    def _source(self, lanes: int) -> KernelSource:
        if lanes not in self._sources:
            program = self.program
            access: tuple[str, ...] = ()
            if lanes > 1:
                used = dict.fromkeys(a.dtype for a in program.arrays)
                access = tuple(render("common/vector_access", dtype=dtype, lanes=lanes) for dtype in used)
            self._sources[lanes] = kernel_source(
                "scan_loop/loop",
                preambles=(
                    render("common/partition"),
                    self._places.place.c_typedef(),
                    *access,
                    *program.step.preambles,
                ),
                arrays=program.arrays,
                operands=self._places.operands,
                statements=program.step.statements(lanes),
                geometry=self._places.struct,
                axes=max(1, program.axes),
                has_axes=program.axes > 0,
                lanes=lanes,
                vectors=self._vectors(lanes),
                schedule=self.schedule,
                in_buffer=self._places.in_buffer,
                condition=program.condition,
                condition_dtype=program.condition_dtype,
            )
        return self._sources[lanes]

    def _build(self, lanes: int) -> Kernel:
        return self.context.kernel(self._source(lanes))

    # Shapes

    def _split(self, inputs: Sequence[Any]) -> tuple[int, list[Any], list[int]]:
        """Return the number of steps, for each array itself or None, and the number of rows of each array.

        An array may be given by its layout.
        """
        arrays = self.program.arrays
        steps, values = _integer(inputs[0]), list(inputs[1 : 1 + len(arrays)])
        extra = iter(inputs[1 + len(arrays) :])
        rows: list[int] = []
        for k, array in enumerate(arrays):
            if array.role == OUTPUT:
                rows.append(_integer(values[k]) if steps else 0)
                values[k] = None
            elif array.has_rows:
                rows.append(_integer(next(extra)))
            else:
                rows.append(values[k].shape[array.dims.index(TIME)] if TIME in array.dims else 0)
        return steps, values, rows

    def layout(self, *inputs: Any) -> tuple[Layout, ...]:
        """Return the layouts of the outputs, of a loop with a condition those if all steps are run.

        `*inputs`: arguments of a call, with layouts in place of arrays.

        Raises `ValueError`: lengths differ that must be equal, an array has too few rows, or a number of rows is
        negative. Raises `IndexError`: the number of steps is negative.
        """
        steps, values, rows = self._split(inputs)
        lengths = self._axis_lengths(values)
        self._check_rows(steps, values, rows)
        return tuple(
            Layout.contiguous(tuple(self._extents(self.program.arrays[k], rows[k], lengths)))
            for k in self.program.outputs
        )

    def _axis_lengths(self, values: Sequence[Any]) -> dict[int, int]:
        """Return the length of each axis."""
        lengths: dict[int, int] = {}
        for array, value in zip(self.program.arrays, values, strict=True):
            for dim, n in zip(array.dims, () if value is None else value.shape, strict=True):
                if dim.kind in ("core", "one") and dim.number != n:
                    raise ValueError(f"a dimension of length {n} in a loop whose arrays have {dim.number} there")
                if dim.kind == "axis" and lengths.setdefault(dim.number, n) != n:
                    raise ValueError(
                        f"Input dimension mismatch: arrays of a loop have lengths {lengths[dim.number]} and {n}"
                    )
        return lengths

    def _check_rows(self, steps: int, values: Sequence[Any], rows: Sequence[int]) -> None:
        """Check the lengths along time."""
        if steps < 0:
            raise NegativeStepsError(f"Scan was asked to run for negative number of step {steps}")
        for number, (array, value, have) in enumerate(zip(self.program.arrays, values, rows, strict=True)):
            if array.role == SEQUENCE and have < steps:
                raise ValueError(
                    f"Sequence {number} has shape {value.shape} but the Scan's required number of steps is {steps}"
                )
            least = {STATE: array.window, SUM: steps + array.window - 1 if steps else 0}.get(array.role, 0)
            given = value.shape[array.dims.index(TIME)] if array.has_rows and TIME in array.dims else have
            if min(have, given) < least:
                raise ValueError(
                    f"a {array.role} of {min(have, given)} rows in a loop of {steps} steps, which needs {least}"
                )

    @staticmethod
    def _extents(array: LoopArray, rows: int, lengths: dict[int, int]) -> Iterator[int]:
        rows = rows if array.kept is None else min(rows, array.kept)
        for dim in array.out_dims:
            yield {"time": rows, "axis": lengths.get(dim.number, 1)}.get(dim.kind, dim.number)

    # Launch

    def __call__(self, *inputs: Any) -> tuple[GpuArray, ...]:
        """Allocate the outputs and enqueue the kernel; see `layout`."""
        layouts = self.layout(*(v.layout if isinstance(v, GpuArray) else v for v in inputs))
        outputs = [self.context.empty(o.shape, t) for o, t in zip(layouts, self.output_dtypes, strict=True)]
        if not self._is_while:
            self.launch(outputs, inputs)
            return tuple(outputs)
        run = self.context.empty((1,), "int64")
        self._launch(outputs, inputs, run)
        steps, _, rows = self._split(inputs)
        done = int(run.to_host()[0])
        return tuple(
            self._ended(self.program.arrays[k], output, steps, done, rows[k])
            for k, output in zip(self.program.outputs, outputs, strict=True)
        )

    def _ended(self, array: LoopArray, output: GpuArray, steps: int, done: int, rows: int) -> GpuArray:
        """Return an output of a loop that has ended: its rows in order, without those that no step has written."""
        if TIME not in array.out_dims or not rows:
            return output
        used = done + (array.window if array.role == STATE else 0)
        if rows > used:
            return output[: rows - (steps - done)] if done < steps else output
        if used % rows == 0:
            return output
        ordered = self.context.empty(output.shape, output.dtype)
        kept = rows - used % rows
        copy = self._rolled[array.dtype, output.ndim]
        copy.launch((ordered[:kept],), (output[used % rows :],))
        copy.launch((ordered[kept:],), (output[: used % rows],))
        return ordered

    def launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any]) -> None:
        """Enqueue the kernel of a loop without a condition; inputs and outputs may have any strides."""
        if any(output.size for output in outputs):
            self._launch(outputs, inputs)

    def _launch(self, outputs: Sequence[GpuArray], inputs: Sequence[Any], *extra: GpuArray) -> None:
        steps, values, rows = self._split(inputs)
        operands = self._places.operands
        arrays = [values[o.number] for o in operands if not o.is_output] + list(outputs)
        lengths = self._axis_lengths(values)
        merged = self.merged_axes(lengths)
        # Lanes and neighbouring work-items run along the longest axis, or the last of several.
        order = sorted(merged, key=lambda axes: (merged[axes] > 1, merged[axes] >= self._lanes, axes))
        order = [()] * (max(1, self.program.axes) - len(order)) + order
        shape = [max(1, merged.get(axes, 1)) for axes in order]
        given = LoopArguments(steps, rows, order, shape, list(self._with_memory(arrays)))
        if self._in_chunks(given):
            return
        lanes = self._lanes if shape[-1] > self._lanes // 4 else 1
        kernel = self._kernels[lanes]
        units = ceil_div(shape[-1], lanes)
        vectors = self._vectors_at_a_time(units, prod(shape[:-1]), lanes)
        geometry = self._places.argument(arrays, order, rows, steps, {"vectors": vectors, "shape": shape})
        sizes = self._sizes(kernel, ceil_div(units, vectors) * prod(shape[:-1]))
        buffers = [array.buffer for array in (*given.arrays, *extra)]
        kernel.launch(self.context.queue, *sizes, geometry, *buffers)

    def _in_chunks(self, given: LoopArguments) -> bool:
        """Run the loop in chunks of time if that is faster; return whether it was run."""
        lanes = chunk_lanes(self.program, self.schedule)
        chunks = wanted_chunks(self.context.info, self.schedule, lanes, given.steps, prod(given.shape))
        if self._is_while or not chunks:
            return False
        reason = self._chunked.refusal
        self.methods.add(f"in turn: {reason}" if reason else "parallel over time")
        if not reason:
            self._chunked.launch(chunks, given)
        return not reason

    def merged_axes(self, lengths: Mapping[int, int]) -> dict[tuple[int, ...], int]:
        """Return groups of axes and the length of each. Work-items have one index for all axes of a group.

        Axes of the same length form a group where no array has two of them, as the batch axes of loops that PyTensor
        has joined. Without groups the work would be the product of their lengths.
        """
        sets = [{d.number for d in (*a.dims, *a.out_dims) if d.kind == "axis"} for a in self.program.arrays]
        groups: list[list[int]] = []
        for axis in range(self.program.axes):
            for group in groups:
                alone = not any(axis in axes and not axes.isdisjoint(group) for axes in sets)
                if alone and lengths.get(axis, 1) == lengths.get(group[0], 1):
                    group.append(axis)
                    break
            else:
                groups.append([axis])
        return {tuple(group): lengths.get(group[0], 1) for group in groups}

    def _with_memory(self, arrays: Sequence[GpuArray]) -> Iterator[GpuArray]:
        """Replace arrays without elements: kernels may read one element, which nothing depends on."""
        for array in arrays:
            yield array if array.size else self.context.from_host(np.zeros(1, array.dtype))

    def _vectors_at_a_time(self, units: int, rows: int, lanes: int) -> int:
        """Return how many vectors a work-item advances in turn, so that all compute units have work."""
        share = ceil_div(units * rows, max(1, self.context.info.compute_units))
        return max(1, min(self._vectors(lanes), units, share))

    def _sizes(self, kernel: Kernel, chunks: int) -> Any:
        if self.schedule == "cpu":
            return (max(1, min(chunks, ITEMS_PER_UNIT * self.context.info.compute_units)),), (1,)
        return ndrange(self.context, kernel, chunks, SMALL_GROUP_ITEMS)


def _integer(value: Any) -> int:
    """Return an integer of the host.

    Raises `ValueError`: it is an array of different numbers: members of a batch would have different lengths.
    """
    numbers = np.asarray(value).reshape(-1)
    if len(numbers) != 1 and (not len(numbers) or (numbers != numbers[0]).any()):
        raise ValueError("members of a batch of loops have different numbers of steps or rows")
    return int(numbers[0])
