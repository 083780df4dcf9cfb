"""Loops whose steps are affine maps of the states, parallel over time.

Time is divided into chunks. One kernel multiplies the maps of the steps of each chunk, one finds the states before each
chunk by a prefix scan over the chunks (Blelloch 1990), and one runs the steps of each chunk from there, with the code
of the loop itself. So results differ from those of steps in turn by rounding errors of the states before the chunks.
"""

from functools import cached_property
from math import isqrt, prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.codegen.template import KernelSource, kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import CACHE_LINE_BYTES, ITEMS_PER_UNIT, SMALL_GROUP_ITEMS
from pytensor_cl.routines.base.ndrange import Sizes, WorkGroupLimits, ndrange
from pytensor_cl.routines.scan_loop import limits
from pytensor_cl.routines.scan_loop.places import Places, inputs_of, lost_rows, outputs_of
from pytensor_cl.routines.scan_loop.program import STATE, LinearStep, LoopProgram
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.program import Kernel


class Chunks(NamedTuple):
    """A division of time.

    `steps`: steps of each chunk but the last one, which has the rest; `number`: how many chunks there are.
    """

    steps: int
    number: int


class LoopArguments(NamedTuple):
    """Arguments of a launch of a loop.

    `rows`: rows of the whole trace of each array of the program; `order`, `shape`: axes that share each dimension, and
    its length; `arrays`: inputs and outputs.
    """

    steps: int
    rows: list[int]
    order: list[tuple[int, ...]]
    shape: list[int]
    arrays: list[GpuArray]


def wanted_chunks(info: DeviceInfo, schedule: str, lanes: int, steps: int, members: int) -> int:
    """Return into how many chunks the steps of a batch of series are divided; 0 where steps in turn are as fast.

    `lanes`: chunks that a work-item runs at a time.
    """
    if schedule == "simt":
        # A work-item runs steps / chunks steps, and one of the scan multiplies chunks / SCAN_ITEMS maps.
        shortest = isqrt(steps * limits.SCAN_ITEMS // limits.SCAN_STEPS)
        in_flight = limits.CHUNKS_PER_UNIT_SIMT * info.compute_units // members
        wanted = min(steps // limits.CHUNK_STEPS_SIMT, in_flight, shortest)
        return wanted if wanted >= limits.LEAST_CHUNKS and steps >= limits.LEAST_STEPS_SIMT else 0
    if members > max(1, lanes // 4):
        return 0
    return min(max(1, info.compute_units // members), steps // (lanes * limits.CHUNK_STEPS_CPU)) * lanes


def chunks_of(wanted: int, lanes: int, itemsize: int, steps: int, free: int) -> Chunks:
    """Return the division of time.

    `free`: steps, from the first one, of which every output has all rows or none: the last chunk has the others.
    """
    if lanes == 1:
        length = ceil_div(steps, wanted)
        return Chunks(length, ceil_div(steps, length))
    length = free // wanted
    # Lanes that are an even number of cache lines apart share few sets of the cache.
    while length * itemsize >= 2 * CACHE_LINE_BYTES and length * itemsize // CACHE_LINE_BYTES % 2 == 0:
        length -= 1
    return Chunks(length, wanted + 1)


class ChunkedLoop:
    """The kernels of a loop in chunks of time.

    `refusal`: the reason why there are none; empty if there are.
    """

    def __init__(self, context: Context, program: LoopProgram, schedule: str) -> None:
        self._context = context
        self._program = program
        self._schedule = schedule
        self._lanes = chunk_lanes(program, schedule)
        self._limits = WorkGroupLimits(context)
        found = program.step.linear(program.arrays, self._lanes)
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
        access: tuple[str, ...] = ()
        if self._lanes > 1:
            dtypes = dict.fromkeys(a.dtype for a in program.arrays)
            access = tuple(render("common/vector_access", dtype=dtype, lanes=self._lanes) for dtype in dtypes)
        functions = dict.fromkeys((*access, *step.preambles, *self._linear.preambles))
        return kernel_source(
            "scan_loop/loop",
            preambles=(render("common/partition"), places.place.c_typedef(), *functions),
            arrays=program.arrays,
            operands=places.operands,
            statements=step.statements(self._lanes),
            geometry=places.struct,
            axes=places.axes,
            has_axes=program.axes > 0,
            lanes=self._lanes,
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
                group=group,
            )
            return self._limits.kernel(source, None, group), group

        return self._limits.with_fitting_groups(make, lambda: None)

    def launch(self, wanted: int, given: LoopArguments) -> None:
        """Enqueue the kernels; `wanted`: about how many chunks."""
        chunks = chunks_of(wanted, self._lanes, self._program.step.itemsize, given.steps, self._free_steps(given))
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
        for again in (0, 1):
            self._launch("steps", chunks, given, starts, in_turn, np.int32(again))

    def _free_steps(self, given: LoopArguments) -> int:
        """Return how many of the first steps write into all outputs or, for outputs with the last rows only, none."""
        free = given.steps
        outputs = zip(self._program.outputs, given.arrays[len(inputs_of(self._program)) :], strict=True)
        for number, output in outputs:
            array = self._program.arrays[number]
            lost = lost_rows(array, output, given.rows[number], given.steps)
            if lost:
                free = min(free, lost - (array.window if array.role == STATE else 0))
        return max(0, free)

    def _launch(self, part: str, chunks: Chunks, given: LoopArguments, *scratch: object) -> None:
        places, kernel = self._kernels[part]
        arrays = given.arrays[: len(places.operands)]
        axes = self._program.axes
        order, shape = given.order[:axes], given.shape[:axes]
        numbers = {"vectors": 1, "chunk": chunks.steps, "shape": [*shape, chunks.number]}
        geometry = places.argument(arrays, [*order, ()], given.rows, given.steps, numbers)
        sizes = self._sizes(kernel, prod(shape) * ceil_div(chunks.number, self._lanes))
        kernel.launch(self._context.queue, *sizes, geometry, *(array.buffer for array in arrays), *scratch)

    def _sizes(self, kernel: Kernel, items: int) -> Sizes:
        if self._schedule == "cpu":
            return (min(items, ITEMS_PER_UNIT * self._context.info.compute_units),), (1,)
        return ndrange(self._context, kernel, items, SMALL_GROUP_ITEMS)


def chunk_lanes(program: LoopProgram, schedule: str) -> int:
    """Return how many chunks a work-item runs at a time."""
    if schedule == "simt":
        return 1
    return 8 if program.step.itemsize > 4 else 16


def _refusal(linear: LinearStep) -> str:
    """Return why chunks of a loop with affine steps do not pay; empty if they do."""
    numbers = len(linear.entries) + len(linear.carried)
    most = limits.MOST_MAP_NUMBERS
    return f"the map of its states has {numbers} numbers, more than {most}" if numbers > most else ""
