"""Loops whose steps are affine maps of the states, parallel over time.

Time is divided into chunks. One kernel multiplies the maps of the steps of each chunk, one finds the states before each
chunk by a prefix scan over the chunks (Blelloch 1990), and one runs the steps of each chunk from there, with the code
of the loop itself. So results differ from those of steps in turn by rounding errors of the states before the chunks.
"""

from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import ITEMS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import Sizes, WorkGroupLimits, ndrange
from pytensor_cl.routines.scan_loop import limits
from pytensor_cl.routines.scan_loop.places import Places, inputs_of, outputs_of
from pytensor_cl.routines.scan_loop.program import LinearStep, LoopProgram
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.program import Kernel


class Chunks(NamedTuple):
    """A division of time.

    `steps`: steps of each chunk, but for the last one; `number`: how many chunks there are.
    """

    steps: int
    number: int


class LoopArguments(NamedTuple):
    """What a launch of a loop is about.

    `rows`: rows of the whole trace of each array of the program; `order`, `shape`: axes that share each dimension, and
    its length; `arrays`: inputs and outputs.
    """

    steps: int
    rows: list[int]
    order: list[tuple[int, ...]]
    shape: list[int]
    arrays: list[GpuArray]


def chunks_of(info: DeviceInfo, schedule: str, steps: int, members: int) -> Chunks | None:
    """Return the division of time of a batch of series; None where steps in turn are as fast."""
    least, per_unit = {
        "cpu": (limits.CHUNK_STEPS_CPU, limits.CHUNKS_PER_UNIT_CPU),
        "simt": (limits.CHUNK_STEPS_SIMT, limits.CHUNKS_PER_UNIT_SIMT),
    }[schedule]
    wanted = min(steps // least, per_unit * info.compute_units // members)
    if wanted < limits.LEAST_CHUNKS:
        return None
    length = ceil_div(steps, wanted)
    return Chunks(length, ceil_div(steps, length))


class ChunkedLoop:
    """The kernels of a loop in chunks of time.

    `refusal`: the reason why there are none; empty if there are.
    """

    def __init__(self, context: Context, program: LoopProgram, schedule: str) -> None:
        self._context = context
        self._program = program
        self._schedule = schedule
        self._limits = WorkGroupLimits(context)
        found = program.step.linear(program.arrays)
        self.refusal = found if isinstance(found, str) else _refusal(found)
        if not isinstance(found, str):
            self._linear = found

    def _places(self, part: str) -> Places:
        """Return the places of the arrays of one of the kernels; the last dimension is that of the chunks."""
        operands = (*inputs_of(self._program), *(outputs_of(self._program) if part == "steps" else ()))
        return Places(self._context, self._program, operands, self._program.axes + 1, "steps vectors chunk")

    @cached_property
    def _kernels(self) -> dict[str, tuple[Places, Kernel]]:
        """The kernel that makes the maps, and the one that runs the steps."""
        places = {part: self._places(part) for part in ("maps", "steps")}
        return {part: (own, self._context.kernel(self._source(part, own))) for part, own in places.items()}

    def _source(self, part: str, places: Places) -> KernelSource:
        program, step = self._program, self._program.step
        functions = dict.fromkeys((*step.preambles, *self._linear.preambles))
        return kernel_source(
            "scan_loop/loop",
            preambles=(render("common/partition"), places.place.c_typedef(), *functions),
            arrays=program.arrays,
            operands=places.operands,
            statements=step.statements(1),
            geometry=places.struct,
            axes=places.axes,
            has_axes=program.axes > 0,
            lanes=1,
            vectors=1,
            schedule=self._schedule,
            in_buffer=places.in_buffer,
            condition=None,
            condition_dtype="bool",
            part=part,
            linear=self._linear,
        )

    @property
    def _map_numbers(self) -> int:
        return len(self._linear.entries) + len(self._linear.carried)

    @cached_property
    def _starts(self) -> tuple[Kernel, int]:
        """The kernel that finds the states before the chunks, and its work-group size."""
        linear = self._linear

        def make() -> tuple[Kernel, int]:
            size = self._map_numbers * np.dtype(linear.dtype).itemsize
            group = self._limits.size(limits.SCAN_ITEMS, size) if self._schedule == "simt" else 1
            source = kernel_source(
                "scan_loop/starts",
                dtype=linear.dtype,
                states=len(linear.carried),
                columns=linear.columns,
                entries=linear.entries,
                bound=float(np.finfo(linear.dtype).eps ** -0.5),
                group=group,
            )
            return self._limits.kernel(source, None, group), group

        return self._limits.with_fitting_groups(make, lambda: None)

    def launch(self, chunks: Chunks, given: LoopArguments) -> None:
        """Enqueue the kernels."""
        members = prod(given.shape)
        allocate, queue = self._context.memory.allocate, self._context.queue
        itemsize = np.dtype(self._linear.dtype).itemsize
        maps = allocate(self._map_numbers * members * chunks.number * itemsize)
        starts = allocate(len(self._linear.carried) * members * chunks.number * itemsize)
        in_turn = allocate(members * np.dtype("int32").itemsize)
        self._launch("maps", chunks, given, maps, starts)
        kernel, group = self._starts
        numbers = np.int64(members), np.int64(chunks.number)
        kernel.launch(queue, (group * members,), (group,), maps, starts, in_turn, *numbers)
        self._launch("steps", chunks, given, starts, in_turn)

    def _launch(self, part: str, chunks: Chunks, given: LoopArguments, *scratch: object) -> None:
        places, kernel = self._kernels[part]
        arrays = given.arrays[: len(places.operands)]
        axes = self._program.axes
        order, shape = given.order[:axes], given.shape[:axes]
        numbers = {"vectors": 1, "chunk": chunks.steps, "shape": [*shape, chunks.number]}
        geometry = places.argument(arrays, [*order, ()], given.rows, given.steps, numbers)
        sizes = self._sizes(kernel, prod(shape) * chunks.number)
        kernel.launch(self._context.queue, *sizes, geometry, *(array.buffer for array in arrays), *scratch)

    def _sizes(self, kernel: Kernel, items: int) -> Sizes:
        if self._schedule == "cpu":
            return (min(items, ITEMS_PER_UNIT * self._context.info.compute_units),), (1,)
        return ndrange(self._context, kernel, items, SMALL_GROUP_ITEMS)


def _refusal(linear: LinearStep) -> str:
    """Return why chunks of a loop with affine steps do not pay; empty if they do."""
    numbers = len(linear.entries) + len(linear.carried)
    most = limits.MOST_MAP_NUMBERS
    return f"the map of its states has {numbers} numbers, more than {most}" if numbers > most else ""
