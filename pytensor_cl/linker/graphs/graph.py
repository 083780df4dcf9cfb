"""Captured graphs: the kernel launches of a call with their arguments bound, and the replay.

The first calls with inputs of some shapes run step by step. A later one is captured: its launches get kernel objects of
their own, whose arguments stay as they are but for a few bindings of inputs and results. Intermediate results are in
ranges of the context's arena, according to a `MemoryPlan`. Nothing in the arena is used after the call,
so all captured graphs of a context share it.
"""

from collections.abc import Callable, Sequence
from threading import active_count
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.linker.graphs.buffer_donation import BufferDonation
from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding
from pytensor_cl.linker.graphs.memory import MemoryUse
from pytensor_cl.linker.graphs.parameters import ReplayParameters, ReplayParameterSpec
from pytensor_cl.linker.types import Cell, Thunk
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import LaunchSequence
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.queue import Queue

__all__ = ["ArenaDownload", "CapturedGraph", "GraphBindings", "SequenceStep"]

REPLAYS_PER_NOTE = 15
"""Replays between two notes to the buffer pool, which frees buffers that were idle for many calls."""


class SequenceStep:
    """The step that runs a launch sequence.

    Parameters
    ----------
    queue
        Of the context.
    sequence
        Kernels whose arguments are set.
    bindings
        Of the buffers that the kernels use, where the driver does not keep them.
    keep
        Objects that must stay until the kernels have run.
    writes_shared
        Whether kernels may write the memory of a shared variable. Kernels of other threads must then run before or
        after them.

    Attributes
    ----------
    is_waited_for
        Whether the kernels have run when the step ends.
    """

    def __init__(
        self,
        queue: Queue,
        sequence: LaunchSequence,
        bindings: Sequence[BufferBinding] = (),
        keep: Sequence[Any] = (),
        writes_shared: bool = False,
    ) -> None:
        self.sequence = sequence
        self._queue, self._bindings, self._keep = queue, bindings, keep
        self._writes_shared = writes_shared
        self.is_waited_for = False

    def __call__(self) -> None:
        """Run the kernels."""
        if self.is_waited_for and not self._queue.may_take_long and not (self._writes_shared and active_count() > 1):
            self.sequence.run_and_wait()
            return
        self.sequence.submit(self._keep, [binding.buffer for binding in self._bindings])
        if self.is_waited_for:
            self._queue.finish()

    def thunk(self) -> Thunk:
        """Return the shortest function that runs the step."""
        return self.sequence.run_and_wait if self.is_waited_for and not self._writes_shared else self


class ArenaDownload:
    """The step that copies an array in the arena to the host, where the host can read the arena's memory.

    Parameters
    ----------
    context
        Of the arena.
    source
        Where the array is.
    dtype, layout
        Of the array, which is contiguous.
    out
        Cell of the result.
    """

    def __init__(self, context: Context, source: ArenaBinding, dtype: np.dtype, layout: Layout, out: Cell) -> None:
        self._context, self._source, self._out = context, source, out
        self._dtype, self._layout = dtype, layout
        self._buffer: Any = None
        self._view: Any = None

    def __call__(self) -> None:
        """Copy the array; its kernels have run."""
        source = self._source
        if source.buffer is not self._buffer:
            self._view = self._context.mappings.part(source.whole, source.range.offset, self._dtype, self._layout)
            self._buffer = source.buffer
        self._out[0] = self._view.copy()


class GraphBindings(NamedTuple):
    """The bindings of buffers that a captured graph sets itself, besides those in its steps.

    Attributes
    ----------
    outputs
        Of the results, and the bytes of each. A replay allocates them.
    arena
        Of intermediate results.
    per_call
        Those that hold nothing between two calls.
    donations
        Updates that may be written to the memory of the old value.
    """

    outputs: Sequence[tuple[BufferBinding, int]]
    arena: Sequence[ArenaBinding]
    per_call: Sequence[BufferBinding]
    donations: Sequence[BufferDonation]


class CapturedGraph:
    """A captured call, which can be replayed with other values.

    Parameters
    ----------
    context
        Where it runs.
    steps
        Index of the node, and what is done.
    sequences
        Those of the steps that run kernels.
    bindings
        Of buffers.
    results
        Cells of device arrays that a call returns, and what makes the arrays.
    clear
        Cells that are emptied after a call.

    Attributes
    ----------
    sync_count
        How often a replay waits for the device.
    memory
        How much device memory it uses.
    parameters
        How the calls may differ that it serves.
    signature
        Under which it is kept.
    guard_failures
        How many calls turned out to differ from the captured one.
    recorded_shapes
        Steps that record what they read, and what they read in the captured call.
    current_node
        Index of the node whose step runs, or has failed.
    """

    def __init__(
        self,
        context: Context,
        *,
        steps: Sequence[tuple[int, Thunk]],
        sequences: Sequence[SequenceStep],
        bindings: GraphBindings,
        results: Sequence[tuple[Cell, Callable[[], GpuArray]]],
        clear: Sequence[Cell],
        memory: MemoryUse,
        sync_count: int,
    ) -> None:
        self.context = context
        self.steps, self.sequences = steps, sequences
        self.donations = bindings.donations
        self.memory, self.sync_count = memory, sync_count
        self.parameters = ReplayParameterSpec()
        self._outputs, self._results = bindings.outputs, results
        self._per_call, self._clear = bindings.per_call, clear
        self._arena_bindings = bindings.arena
        self._arena = context.memory.arena
        self._arena_version = -1
        self.signature: Any = None
        self._replays_until_note = 0
        self.guard_failures = 0
        self.recorded_shapes: list[tuple[Any, list[Any]]] = []
        self.current_node = 0

    @property
    def kernels(self) -> int:
        """Number of kernels."""
        return sum(len(step.sequence) for step in self.sequences)

    @property
    def launches(self) -> int:
        """Number of OpenCL launches that run them."""
        return sum(step.sequence.launches for step in self.sequences)

    def replay(self, parameters: ReplayParameters | None = None) -> None:
        """Run the call again; `unbind` must follow.

        Raises
        ------
        GuardFailure
            A value of this call differs from that of the captured one.
        """
        if parameters is not None:
            self.parameters.apply(parameters)
        memory = self.context.memory
        self._replays_until_note -= 1
        if self._replays_until_note < 0:
            self._replays_until_note = REPLAYS_PER_NOTE
            memory.buffers.count_calls(1 + REPLAYS_PER_NOTE)
        if self._arena_version != self._arena.version:
            self._bind_arena()
        for binding, nbytes in self._outputs:
            binding.bind(memory.allocate(nbytes))
        # A batch that takes long runs in the driver's threads, so that this one can handle signals.
        steps = self._interruptible_steps() if self.context.queue.may_take_long else self.steps
        for at, step in steps:
            self.current_node = at
            step()
        for cell, make_array in self._results:
            cell[0] = make_array()

    def _interruptible_steps(self) -> list[tuple[int, Thunk]]:
        """Return the steps with `SequenceStep` objects, which look at the queue, in place of their shortest thunks."""
        sequences = {step.thunk(): step for step in self.sequences}
        return [(at, sequences.get(step, step)) for at, step in self.steps]

    def _bind_arena(self) -> None:
        """Bind the ranges of the arena, whose buffers have changed."""
        self.context.memory.reserve(self.memory.plan.buffer_sizes)
        for binding in self._arena_bindings:
            binding.bind_arena(self._arena)
        self._arena_version = self._arena.version

    def release_arena(self) -> None:
        """Drop the references to the arena's buffers, which will be replaced."""
        self._arena_version = -1
        for binding in self._arena_bindings:
            binding.unbind()

    def unbind(self) -> None:
        """Drop the references to the buffers and values of the call."""
        for binding in self._per_call:
            binding.buffer = None
        for donation in self.donations:
            donation.array = None
        for cell in self._clear:
            cell[0] = None
        self.context.queue.release_done()  # host arrays whose buffers are gone now
