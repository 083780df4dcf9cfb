"""A call, recorded: its kernels with their arguments bound, in memory that is already there.

The first calls with inputs of some shapes run step by step. One of the next is listened to while it runs: what its
routines enqueue is a list of kernels of their own, whose arguments stay as they are but for a few bindings: uploaded
inputs, shared variables, results. Intermediate results lie in parts of the context's arena, where a `Plan` puts them.
Nothing there outlives a call, so all recordings of a context share it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pytensor_cl.linker.capture.dependencies import accesses, orders
from pytensor_cl.linker.capture.memory_plan import Plan
from pytensor_cl.linker.execution.errors import Noting
from pytensor_cl.linker.replay.bindings import Upload
from pytensor_cl.linker.replay.buffer_bindings import ArenaBinding, ArrayLocation, BufferBinding, BufferDonation
from pytensor_cl.linker.replay.sequence_step import SequenceStep
from pytensor_cl.linker.replay.slices import ReplayParameters, ReplayParameterSpec
from pytensor_cl.linker.steps.host import Cell, Thunk
from pytensor_cl.ops.transfer import download
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interfaces import BoundKernel, SequenceBuilder
from pytensor_cl.runtime.launch_capture import CapturedAllocation, Launch
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.host_mapping import pays

__all__ = ["CapturedGraph", "GraphBuilder", "MemoryUse"]


class GraphBuilder:
    """Collects a recording while the call runs.

    Parameters
    ----------
    context
        The one context of the function.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.places: dict[Variable, ArrayLocation] = {}
        self.plan = Plan()
        self._slots: dict[int, BufferBinding] = {}
        self._wholes: dict[BufferBinding, BufferBinding] = {}  # of parts
        self._looked_at: set[BufferBinding] = set()  # as arrays, not by kernels alone
        self._scratch: dict[int, BufferBinding] = {}  # number of the allocation to what stands for it
        self._blocks: list[ArenaBinding] = []
        self._constant: dict[int, int] = {}  # buffers that stay, and their sizes
        self._steps: list[tuple[int, Thunk]] = []
        self._sequences: SequenceBuilder = context.launcher
        self._pending: list[tuple[Launch, BoundKernel]] = []
        self._at = 0  # node of the first pending launch
        self._keep: list[Any] = []
        self._pauses = 0
        self._waits = False  # whether something was enqueued that nobody waited for
        self._fresh: list[tuple[BufferBinding, int]] = []
        self._donations: dict[Variable, BufferDonation] = {}
        self._given: set[int] = set()  # allocations whose memory becomes the host's
        self._transient: list[BufferBinding] = []
        self._alive: dict[int, GpuArray] = {}

    # While the call runs

    def note(self, variable: Variable, array: GpuArray) -> None:
        """Note where a variable is."""
        recorder = self.context.queue.recorder
        memory = array.buffer if recorder is None else recorder.place(array.buffer)
        self.places[variable] = ArrayLocation(memory, array.dtype, array.layout)

    def vary(self, variable: Variable, array: GpuArray) -> bool:
        """Note a variable whose buffer may be another one in each call; return whether it is nobody else's too."""
        handle = array.buffer.int_ptr
        is_new = handle not in self._slots
        if is_new:
            self._alive[handle] = array  # so that its handle stays its own
            self._transient.append(self._slots.setdefault(handle, BufferBinding()))
        self.places[variable] = ArrayLocation(self._slots[handle], array.dtype, array.layout)
        return is_new

    # Afterwards

    def slot_of(self, memory: Any) -> BufferBinding | None:
        """Return the slot that memory is, if it is one; of a part of its buffer, that of the whole."""
        slot = memory if isinstance(memory, BufferBinding) else self._slots.get(getattr(memory, "int_ptr", 0))
        return None if slot is None else self._wholes.get(slot, slot)

    def is_part(self, memory: Any) -> bool:
        """Whether memory is a part of the buffer of another slot."""
        slot = memory if isinstance(memory, BufferBinding) else self._slots.get(getattr(memory, "int_ptr", 0))
        return slot in self._wholes

    def vary_part(self, variable: Variable, array: GpuArray, whole: BufferBinding) -> BufferBinding:
        """Note a variable that is a part of a slot's buffer, another one in each call."""
        self.vary(variable, array)
        slot: BufferBinding = self.places[variable].memory
        self._wholes[slot] = whole
        return slot

    def donate(self, old: Variable, new: Variable, out: Cell, holders: int) -> BufferDonation:
        """Let the value of a variable lie where that of another one was, bound by `BufferDonation.offer`."""
        place = self.places[new]
        donation = BufferDonation(self.context, place, place.memory.nbytes, out, holders)
        self._scratch[place.memory.number] = donation.slot
        self._transient.append(donation.slot)
        self._donations[new] = donation
        return donation

    def renew(self, variable: Variable) -> None:
        """Give a variable that is in scratch memory new memory in each call."""
        memory = self.places[variable].memory
        if isinstance(memory, CapturedAllocation) and memory.number not in self._scratch:
            slot = self._scratch[memory.number] = BufferBinding()
            self._fresh.append((slot, memory.nbytes))
            self._transient.append(slot)

    def renew_large(self, variable: Variable) -> None:
        """Do so if the array is better handed to the host than copied; nobody else may see its memory."""
        memory, dtype, layout = self.places[variable]
        if isinstance(memory, CapturedAllocation) and pays(layout, dtype, memory.nbytes) and self.context.views.works():
            self.renew(variable)
            self._given.add(memory.number)

    def array(self, variable: Variable) -> Callable[[], GpuArray]:
        """Return what makes an array of a variable's place."""
        memory, dtype, layout = self.places[variable]
        context, found = self.context, self._found(memory)
        if isinstance(found, BufferBinding):
            self._looked_at.add(found)
            return lambda: GpuArray(context, found.buffer, dtype, layout)
        return lambda: GpuArray(context, found, dtype, layout)

    def _found(self, memory: Any) -> Any:
        """Return the slot or the buffer that stands for what a launch or a place names."""
        if isinstance(memory, CapturedAllocation):
            return self._scratch[memory.number]
        handle = getattr(memory, "int_ptr", 0)
        if handle and handle not in self._slots:
            self._constant[handle] = memory.size
        return self._slots.get(handle, memory)

    def settle(self, plan: Plan, numbers: Sequence[int]) -> None:
        """Note where what has no memory yet shall be; `numbers` are those of the allocations."""
        self.plan = plan
        for number, region in zip(numbers, plan.regions, strict=True):
            block = self._scratch[number] = ArenaBinding(region)
            self._blocks.append(block)

    def unsettled(self, memories: Iterable[Any]) -> list[CapturedAllocation]:
        """Return those that have no memory yet."""
        return [m for m in memories if isinstance(m, CapturedAllocation) and m.number not in self._scratch]

    def step(self, at: int, thunk: Thunk) -> None:
        """Add something that is done before the launches that are pending."""
        self._steps.append((at, thunk))

    def launch(self, at: int, launches: Sequence[Launch]) -> Sequence[BoundKernel]:
        """Add launches; return their kernels, whose arguments are set."""
        self._at = self._at if self._pending else at
        kernels = [self._bound(launch) for launch in launches]
        self._pending.extend(zip(launches, kernels, strict=True))
        return kernels

    def join(self, launches: Sequence[Launch], waits: bool) -> bool:
        """Choose how all launches that will be added are run; return whether their arguments are addresses.

        `waits` tells that the call waits for them.
        """
        own = self.context.batch_launcher
        batches = None if own is None else own.begin(launches, waits)
        self._sequences = batches or self.context.launcher
        return self._sequences.uses_addresses

    def _bound(self, launch: Launch) -> BoundKernel:
        """Return a kernel whose arguments are set, or bound by the slots that they are."""
        kernel = self._sequences.add(launch)
        for index, argument in enumerate(launch.arguments):
            if isinstance(argument, bytes | np.generic):
                continue
            found = self._found(argument)
            if isinstance(found, BufferBinding):
                found.add_use(kernel, index)
            else:
                kernel.bind(index, found)
                self._keep.append(found)
        return kernel

    def flush(self) -> None:
        """Run what is pending before what is added next."""
        if self._pending:
            self._steps.append((self._at, self._sequence_step()))
            self._pending, self._waits = [], True

    def _sequence_step(self) -> SequenceStep:
        """Return the step that runs the launches that are pending."""
        kernels = [kernel for _, kernel in self._pending]
        queue, builder = self.context.queue, self._sequences
        if not builder.uses_addresses:
            return SequenceStep(queue, builder.finish(kernels, ()), (), self._keep)
        memories = [[self._memory_of(argument) for argument in launch.arguments] for launch, _ in self._pending]
        slots = dict.fromkeys(m for found in memories for m in found if isinstance(m, BufferBinding))
        slots.update(dict.fromkeys(self._wholes[slot] for slot in list(slots) if slot in self._wholes))
        fresh = {slot for slot, _ in self._fresh}
        used = [accesses(k.access_modes, found, fresh) for k, found in zip(kernels, memories, strict=True)]
        step = SequenceStep(queue, builder.finish(kernels, orders(used)), list(slots), self._keep)
        step.writes_shared = any(donation.slot in slots for donation in self._donations.values())
        return step

    def _memory_of(self, argument: Any) -> Any:
        """Return the slot or the buffer that an argument is; None for values and null pointers."""
        is_value = argument is None or isinstance(argument, bytes | np.generic)
        return None if is_value else self._found(argument)

    def wait(self, at: int) -> None:
        """Wait for what was enqueued, if nobody has yet."""
        self.flush()
        if self._waits:
            last = self._steps[-1][1]
            if isinstance(last, SequenceStep):
                last.is_waited_for = True
            else:
                self._steps.append((at, self.context.queue.finish))
            self._pauses += 1
            self._waits = False

    def read(self, at: int, variable: Variable, out: Cell) -> None:
        """Add a download."""
        memory = self.places[variable].memory
        views, found = self.context.views, self._found(memory)
        array = self.array(variable)
        if isinstance(memory, CapturedAllocation) and memory.number in self._given:
            self.wait(at)
            self.step(at, lambda: out.__setitem__(0, views.own(array())))
            return
        view = self._view(found, variable)
        if view is None:
            self.flush()
            self._pauses += 1
            self._waits = False
            self.step(at, lambda: out.__setitem__(0, download(array())))
            return
        self.wait(at)
        self.step(at, lambda: out.__setitem__(0, view().copy()))

    def _view(self, found: Any, variable: Variable) -> Callable[[], np.ndarray] | None:
        """Return what finds a NumPy array over the memory of a variable; None if there is no such thing."""
        _, dtype, layout = self.places[variable]
        if not layout.is_contiguous or not self.context.views.works():
            return None
        if isinstance(found, ArenaBinding):
            return _BlockView(self.context, found, dtype, layout)
        view = None if isinstance(found, BufferBinding) else self.context.views.view(self.array(variable)())
        return None if view is None else lambda: view

    def _settled(self, step: Thunk) -> Thunk:
        """Return a step, now that it is known who uses what it brings."""
        if not isinstance(step, Upload):
            return step
        slot = step.place.memory
        is_array = slot in self._looked_at or slot in self._wholes or slot in self._wholes.values()
        return step.thunk if is_array else step.direct()

    def end(self, results: Sequence[tuple[Cell, Variable]], clear: Sequence[Cell]) -> "CapturedGraph":
        """Return the recording."""
        self.flush()
        donated = self._donations
        arrays = [(c, donated[v].take if v in donated else self.array(v)) for c, v in results]
        slots = self._fresh, self._transient, self._blocks, list(self._donations.values())
        steps = [(at, self._settled(step)) for at, step in self._steps]
        found = CapturedGraph(self.context, steps, *slots, arrays, list(clear))
        found.waits = self._pauses
        given = {h: a.buffer.size for h, a in self._alive.items() if self._slots[h] not in self._wholes}
        self._alive.clear()
        anew = sum(nbytes for _, nbytes in self._fresh)
        found.memory = MemoryUse(self.plan, sum(given.values()), sum(self._constant.values()), anew)
        return found


class _BlockView:
    """The memory of a part of the arena, as the host sees it.

    Parameters
    ----------
    context, block, dtype, layout
        What an array of it is made of.
    """

    def __init__(self, context: Context, block: ArenaBinding, dtype: np.dtype, layout: Layout) -> None:
        self._context, self._block = context, block
        self._dtype, self._layout = dtype, layout
        self._buffer: Any = None
        self._view: np.ndarray | None = None

    def __call__(self) -> np.ndarray:
        if self._block.buffer is not self._buffer or self._view is None:
            offset = self._block.region.offset
            self._view = self._context.views.part(self._block.whole, offset, self._dtype, self._layout)
            self._buffer = self._block.buffer
        assert self._view is not None
        return self._view


@dataclass(frozen=True)
class MemoryUse:
    """The device memory of a repeated call.

    Attributes
    ----------
    plan
        Of its intermediate results.
    given
        Bytes of arguments and shared variables.
    constants
        Bytes of constants and tables.
    results
        Bytes that each call allocates anew, or gets back from the call before.
    """

    plan: Plan = field(default_factory=Plan)
    given: int = 0
    constants: int = 0
    results: int = 0

    @property
    def peak(self) -> int:
        """Bytes in use at once."""
        return self.plan.nbytes + self.given + self.constants + self.results

    @property
    def bound(self) -> int:
        """Bytes that any plan needs at once."""
        return self.plan.bound + self.given + self.constants + self.results


class CapturedGraph:
    """A call that can be repeated.

    Attributes
    ----------
    steps
        Node number and what is done.
    transient
        Slots, which hold nothing between two calls.
    donations
        Updates that may be written where the old value is.
    waits
        How often a call waits for the device.
    memory
        How much it uses.
    variation
        How calls differ that it serves.
    """

    def __init__(
        self,
        context: Context,
        steps: list[tuple[int, Thunk]],
        fresh: list[tuple[BufferBinding, int]],
        transient: list[BufferBinding],
        blocks: list[ArenaBinding],
        donations: list[BufferDonation],
        results: list[tuple[Cell, Callable[[], GpuArray]]],
        clear: list[Cell],
    ) -> None:
        self.context = context
        self.steps = steps
        self.transient = transient
        self.memory = MemoryUse()
        self.donations = donations
        self.variation = ReplayParameterSpec()
        self._blocks = blocks
        self._fresh = fresh
        self._results = results
        self._clear = clear
        self._arena = context.memory.arena
        self._version = -1
        self.waits = 0
        self.key: Any = None  # under which it is kept
        self.misses = 0  # calls that turned out to differ
        self.noted: list[tuple[Noting, list[Any]]] = []  # what nodes read that check their data
        self.at = 0  # the node that runs, or that failed

    @property
    def kernels(self) -> int:
        """Number of kernels."""
        return sum(len(thunk) for _, thunk in self.steps if isinstance(thunk, SequenceStep))

    @property
    def launches(self) -> int:
        """Number of launches that run them."""
        return sum(thunk.launches for _, thunk in self.steps if isinstance(thunk, SequenceStep))

    def __call__(self, variant: ReplayParameters | None = None) -> None:
        """Do it again; `let_go` must follow."""
        if variant is not None:
            self.variation.apply(variant)
        memory = self.context.memory
        memory.buffers.tick()
        if self._version != self._arena.version:
            self._settle()
        allocate = memory.allocate
        for slot, nbytes in self._fresh:
            slot.bind(allocate(nbytes))
        for at, step in self.steps:
            self.at = at
            step()
        for cell, array in self._results:
            cell[0] = array()

    def _settle(self) -> None:
        """Bind the parts of the arena, after it has changed."""
        self.context.memory.reserve(self.memory.plan.extents)
        for block in self._blocks:
            block.settle(self._arena)
        self._version = self._arena.version

    def release(self) -> None:
        """Let go of the arena: it is going to be another one."""
        self._version = -1
        for block in self._blocks:
            block.leave()

    def let_go(self) -> None:
        """Drop what the call computed on its way."""
        for slot in self.transient:
            slot.buffer = None
        for donation in self.donations:
            donation.array = None
        for cell in self._clear:
            cell[0] = None
        self.context.queue.drop_used()  # arguments, of which there are no buffers any more
