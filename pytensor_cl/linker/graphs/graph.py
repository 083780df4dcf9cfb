"""Captured graphs: the kernel launches of a call with their arguments bound, and the replay.

The launches of a captured call have kernel objects of their own, whose arguments stay as they are but for a few
bindings: arguments of the function, shared variables and results have other buffers in each call. Intermediate results
are in ranges of the context's arena, according to a `MemoryPlan`. Nothing in the arena is used after the call, so all
captured graphs of a context share it.
"""

from collections.abc import Callable, Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass
from threading import active_count
from typing import Any

import numpy as np

from pytensor_cl.linker.graphs.buffers import ArenaBinding, ArrayLocation, BufferBinding, no_array
from pytensor_cl.linker.graphs.donation import BufferDonation
from pytensor_cl.linker.graphs.memory import MemoryUse
from pytensor_cl.linker.graphs.plan import GraphPlan
from pytensor_cl.linker.graphs.slices import GraphParameters, ParameterValues
from pytensor_cl.linker.types import Cell, GuardFailure, Thunk
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import LaunchSequence
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.host_mapping import address_of
from pytensor_cl.runtime.queue import Queue
from pytensor_cl.sharedvar import DeviceCell, is_held_elsewhere

REPLAYS_PER_NOTE = 15
"""Replays between two notes to the buffer pool, which frees buffers that were idle for many calls."""


class CapturedGraph:
    """A captured call, which can be replayed with other values."""

    def __init__(
        self,
        context: Context,
        plan: GraphPlan,
        *,
        steps: Sequence[tuple[int, Thunk]],
        inputs: Sequence[BufferBinding],
        results: Sequence[tuple[Cell, Callable[[], GpuArray]]],
        clear: Sequence[Cell],
        parameters: GraphParameters,
        memory: MemoryUse,
        sync_count: int,
    ) -> None:
        self.context = context
        self.sequences = [step for _, step in steps if isinstance(step, SequenceStep)]
        self.steps = [(at, step.thunk() if isinstance(step, SequenceStep) else step) for at, step in steps]  # at: node
        self.parameters = parameters
        self.memory = memory
        self.sync_count = sync_count  # number of waits for the device in a replay
        self.donations = list(plan.donations.values())
        self._outputs = plan.outputs
        self._results = results  # cells of device arrays that a call returns, and what makes the arrays
        self._clear = clear  # cells that are emptied after a call
        # Bindings that hold nothing between two calls
        self._per_call = [*inputs, *(d.binding for d in self.donations), *(binding for binding, _ in plan.outputs)]
        self._arena_bindings = plan.arena
        self._arena = context.memory.arena
        self._arena_version = -1
        self._replays_until_note = 0
        self.current_node = 0  # index of the node whose step runs, or has failed
        # Notes of the graph cache: the key of the graph, calls that turned out to differ from the captured one, and
        # steps that record what they read, with what they read in the captured call.
        self.signature: Any = None
        self.guard_failures = 0
        self.recorded_shapes: list[tuple[Any, list[Any]]] = []

    @property
    def kernels(self) -> int:
        """Number of kernels."""
        return sum(len(step.sequence) for step in self.sequences)

    @property
    def launches(self) -> int:
        """Number of OpenCL launches that run them."""
        return sum(step.sequence.launches for step in self.sequences)

    @property
    def range_count(self) -> int:
        """Number of ranges of the arena."""
        return len(self._arena_bindings)

    def replay(self, values: ParameterValues | None = None) -> None:
        """Run the call again; `unbind` must follow. GuardFailure: a value differs from the captured call's."""
        if values is not None:
            self.parameters.apply(values)
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


class SequenceStep:
    """The step that runs a launch sequence."""

    def __init__(
        self,
        queue: Queue,
        sequence: LaunchSequence,
        bindings: Sequence[BufferBinding] = (),
        keep: Sequence[Any] = (),
        writes_shared: bool = False,
    ) -> None:
        self.sequence = sequence
        self.is_waited_for = False  # whether the kernels have run when the step ends
        self._queue = queue
        # Until the kernels have run, these must stay: the buffers of the bindings, where the driver does not keep them,
        # and the objects.
        self._bindings, self._keep = bindings, keep
        # Kernels that write a shared variable's memory must run before or after the kernels of other threads.
        self._writes_shared = writes_shared

    def __call__(self) -> None:
        """Run the kernels."""
        # `run_and_wait` computes in this thread: only the queue keeps the order with other threads' kernels.
        if self.is_waited_for and not self._queue.may_take_long and not (self._writes_shared and active_count() > 1):
            self.sequence.run_and_wait()
            return
        self.sequence.submit(self._keep, [binding.buffer for binding in self._bindings])
        if self.is_waited_for:
            self._queue.finish()

    def thunk(self) -> Thunk:
        """Return the shortest function that runs the step."""
        # It does not look at `may_take_long`: while that is true, `replay` runs `_interruptible_steps`.
        return self.sequence.run_and_wait if self.is_waited_for and not self._writes_shared else self


class DeviceInputBinding:
    """Binds an input of the function that is a device array."""

    def __init__(self, cell: Cell, binding: BufferBinding, donation: BufferDonation | None) -> None:
        self._cell, self._binding, self._donation = cell, binding, donation

    def __call__(self) -> None:
        """Bind the array of this call."""
        if self._donation is not None:
            self._donation.acquire(self._cell)
        self._binding.bind_array(self._cell[0])


@dataclass(frozen=True)
class UploadSource:
    """The upload of a captured call, which a binding replaces."""

    context: Context
    source: Cell
    out: Cell
    thunk: Thunk
    location: ArrayLocation  # location of the device array in the captured call
    may_stage: bool  # whether small values may be copied to host memory that kernels read, instead of a device buffer


class SharedBinding:
    """Binds the device copy of a shared variable."""

    def __init__(self, upload: UploadSource, donation: BufferDonation | None) -> None:
        self._upload, self._donation = upload, donation
        self._source: DeviceCell = upload.source
        self._out, self._name = upload.out, upload.context.name
        self._binding: BufferBinding = upload.location.memory
        self._layout = upload.location.layout

    def __call__(self) -> None:
        """Bind the device copy; kernel arguments stay as they are if it is the array of the last call."""
        out = self._out
        try:
            out[0] = self._source.devices[self._name]
        except KeyError:
            self.to_device()
        layout = out[0].layout
        if layout is not self._layout and layout != self._layout:
            raise GuardFailure
        if self._donation is not None:
            self._donation.acquire(out)  # before a variable of this function refers to the array
        array: GpuArray = out[0]
        binding = self._binding
        if binding.array_ref() is not array:
            binding.bind_array(array)
        binding.buffer = array.buffer

    def to_device(self) -> None:
        """Put the value into the cell of the device array.

        A host array that other code may change is read in each call. If it is small, a staged copy takes 10 us less
        than an upload.
        """
        source, upload = self._source, self._upload
        is_kept = self._name in source.devices or not is_held_elsewhere(source)
        if upload.may_stage and not is_kept:
            dtype = upload.location.dtype
            staged = upload.context.stage(np.asarray(source.peek(), dtype))
            if staged is not None:
                self._out[0] = staged
                return
        upload.thunk()


class ArgumentBinding:
    """Binds an argument of the function, or a value that a host node has computed.

    Kernels of a batch read addresses from a table. `read_by_address` then lets them read the value in host memory, or a
    staged copy of it if it is small, and no buffer is made. Else the value gets a buffer in each call.
    """

    def __init__(self, upload: UploadSource, is_imported: bool = False) -> None:
        self.binding: BufferBinding = upload.location.memory
        self.dtype, self.layout = upload.location.dtype, upload.location.layout
        self._upload = upload
        self._source = upload.source
        self._is_imported = is_imported  # whether the device reads the caller's memory, if the value is contiguous
        self._is_staged = False
        self._misalignment = self.layout.offset * self.dtype.itemsize
        self._alignment = upload.context.info.host_alignment
        self._pointers: list[tuple[np.ndarray, int]] | None = None

    @property
    def nbytes(self) -> int:
        """Size of the value in bytes."""
        return self.layout.size * self.dtype.itemsize

    def checked_value(self) -> np.ndarray:
        """Return the value of this call; GuardFailure: its kind is not the captured one's."""
        value = self._source[0]
        is_array = isinstance(value, np.ndarray) and value.shape == self.layout.shape
        if not is_array or (value.dtype != self.dtype and value.dtype.newbyteorder("=") != self.dtype):
            raise GuardFailure  # the step of the node raises the error, with its name
        return value

    def read_by_address(self) -> None:
        """Let kernels read host memory, where that is possible; all of them read addresses from a table."""
        self._is_staged = self._upload.context.is_small(self.nbytes)
        if self._is_staged or self._is_imported:
            words = [kernel.argument_word(index) for kernel, index in self.binding.arguments]
            self._pointers = [word for word in words if word is not None]

    def __call__(self) -> None:
        """Set the kernel arguments for the value of this call."""
        pointers, value = self._pointers, self._source[0]
        if pointers is None or value.dtype != self.dtype:
            self.bind_buffer()
            return
        if self._is_staged and value.shape == self.layout.shape:
            value = np.array(value, order="C")  # a copy: the array may change before kernels read it
        elif self._is_staged or not value.flags.c_contiguous:
            self.bind_buffer()
            return
        try:
            address = addressof(c_char.from_buffer(value))  # `address_of`, without a call
        except (TypeError, ValueError, BufferError):
            address = address_of(value)  # it is read-only, or empty
        if not self._is_staged:
            if address % self._alignment != self._misalignment:
                self.bind_buffer()
                return
            address -= self._misalignment  # kernels add the offset of the captured layout
        for table, index in pointers:
            table[index] = address
        binding = self.binding
        binding.buffer = value  # kept until the call has ended: the caller may drop it before
        binding.array_ref = no_array

    def bind_buffer(self) -> None:
        """Make a buffer of the value, and bind it; its layout must be as in the captured call."""
        self.to_device()
        array = self._upload.out[0]
        if array.layout != self.layout:
            raise GuardFailure
        self.binding.bind(array.buffer)

    def to_device(self) -> None:
        """Put the value into the cell of the device array."""
        upload = self._upload
        value = self._source[0]
        staged = upload.context.stage(value) if upload.may_stage and value.dtype == self.dtype else None
        if staged is None:
            upload.thunk()
        else:
            upload.out[0] = staged


class ArenaDownload:
    """The step that copies a contiguous array in the arena to the host, where the host can read the arena's memory."""

    def __init__(self, context: Context, source: ArenaBinding, dtype: np.dtype, layout: Layout, out: Cell) -> None:
        self._context, self._source, self._out = context, source, out
        self._dtype, self._layout = dtype, layout
        self._buffer: Any = None
        self._view: Any = None

    def __call__(self) -> None:
        """Copy the array; its kernels have run."""
        source = self._source
        if source.buffer is not self._buffer:  # the arena's buffers have been replaced since the last call
            self._view = self._context.mappings.part(source.whole, source.range.offset, self._dtype, self._layout)
            self._buffer = source.buffer
        self._out[0] = self._view.copy()
