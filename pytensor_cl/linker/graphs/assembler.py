"""Assemble a captured graph from launches, downloads and other steps: buffers, launch sequences, waits."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pytensor_cl.linker.graphs.bindings import ArgumentBinding
from pytensor_cl.linker.graphs.buffer_donation import BufferDonation
from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding
from pytensor_cl.linker.graphs.dependencies import accesses, predecessor_index
from pytensor_cl.linker.graphs.graph import ArenaDownload, CapturedGraph, GraphBindings, SequenceStep
from pytensor_cl.linker.graphs.memory import MemoryPlan, MemoryUse
from pytensor_cl.linker.graphs.trace import CaptureTrace
from pytensor_cl.linker.types import Cell, Thunk
from pytensor_cl.ops.transfer import download
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interfaces import BoundKernel, SequenceBuilder
from pytensor_cl.runtime.launch_capture import CapturedAllocation, Launch
from pytensor_cl.runtime.memory.host_mapping import is_worthwhile

__all__ = ["GraphAssembler"]


class GraphAssembler:
    """Collects the steps of a captured graph.

    Memory is assigned first: donations, results, then the memory plan. Steps follow in the order of execution.

    Parameters
    ----------
    trace
        Of the captured call.

    Attributes
    ----------
    plan
        Of the intermediate results.
    """

    def __init__(self, trace: CaptureTrace) -> None:
        self.trace, self.context = trace, trace.context
        self.plan = MemoryPlan()
        self._assigned: dict[int, BufferBinding] = {}  # by the number of the allocation
        self._arena_bindings: list[ArenaBinding] = []
        self._constants: dict[int, int] = {}  # handles of buffers that stay the same, and their sizes
        self._outputs: list[tuple[BufferBinding, int]] = []
        self._exported: set[int] = set()  # numbers of allocations whose memory becomes the host's
        self._donations: dict[Variable, BufferDonation] = {}  # by the new value
        self._per_call = list(trace.bindings)
        self._steps: list[tuple[int, Thunk]] = []
        self._sequences: list[SequenceStep] = []
        self._sequence_builder: SequenceBuilder = self.context.launcher
        self._pending: list[tuple[Launch, BoundKernel]] = []
        self._first_pending_node = 0
        self._keep: list[Any] = []
        self._is_running = False  # whether kernels were submitted for which nothing has waited
        self._sync_count = 0
        self._read_as_arrays: set[BufferBinding] = set()  # by other readers than kernels
        self._arguments: list[ArgumentBinding] = []

    # Memory

    def donate(self, old: Variable, new: Variable, out: Cell, holders: int) -> BufferDonation:
        """Let the new value of a shared variable use the memory of the old one (`BufferDonation`)."""
        location = self.trace.locations[new]
        donation = BufferDonation(self.context, location, location.memory.nbytes, out, holders)
        self._assigned[location.memory.number] = donation.binding
        self._per_call.append(donation.binding)
        self._donations[new] = donation
        return donation

    def allocate_per_call(self, variable: Variable) -> None:
        """Allocate memory for a variable in each call, unless it has memory already."""
        memory = self.trace.locations[variable].memory
        if isinstance(memory, CapturedAllocation) and memory.number not in self._assigned:
            binding = self._assigned[memory.number] = BufferBinding()
            self._outputs.append((binding, memory.nbytes))
            self._per_call.append(binding)

    def export_if_large(self, variable: Variable) -> None:
        """Let the memory of a downloaded array become the host's, if that costs less than a copy.

        Nothing else may read the memory.
        """
        memory, dtype, layout = self.trace.locations[variable]
        is_large = isinstance(memory, CapturedAllocation) and is_worthwhile(layout, dtype, memory.nbytes)
        if is_large and self.context.mappings.are_supported():
            self.allocate_per_call(variable)
            self._exported.add(memory.number)

    def unassigned(self, memories: Iterable[Any]) -> list[CapturedAllocation]:
        """Return the allocations that have no memory yet."""
        return [m for m in memories if isinstance(m, CapturedAllocation) and m.number not in self._assigned]

    def assign_memory(self, plan: MemoryPlan, numbers: Sequence[int]) -> None:
        """Give allocations, whose `numbers` are in the order of the plan, their ranges of the arena."""
        self.plan = plan
        for number, arena_range in zip(numbers, plan.ranges, strict=True):
            binding = self._assigned[number] = ArenaBinding(arena_range)
            self._arena_bindings.append(binding)

    def _resolve(self, memory: Any) -> Any:
        """Return the binding of memory that a launch or a location names; a buffer that stays the same as it is."""
        if isinstance(memory, CapturedAllocation):
            return self._assigned[memory.number]
        binding = self.trace.binding_of(memory)
        if binding is not None:
            return binding
        if getattr(memory, "int_ptr", 0):
            self._constants[memory.int_ptr] = memory.size
        return memory

    def array_maker(self, variable: Variable) -> Callable[[], GpuArray]:
        """Return a function that makes the array of a variable in a replay."""
        memory, dtype, layout = self.trace.locations[variable]
        context, found = self.context, self._resolve(memory)
        if isinstance(found, BufferBinding):
            self._read_as_arrays.add(found)
            return lambda: GpuArray(context, found.buffer, dtype, layout)
        return lambda: GpuArray(context, found, dtype, layout)

    # Steps

    def add_step(self, at: int, thunk: Thunk) -> None:
        """Add a step of node number `at`; pending launches run after it."""
        self._steps.append((at, thunk))

    def add_argument(self, at: int, binding: ArgumentBinding) -> None:
        """Add the binding of an argument, which kernels may read by its address."""
        self._arguments.append(binding)
        self._steps.append((at, binding))

    def begin_launches(self, launches: Sequence[Launch], is_waited_for: bool) -> bool:
        """Choose the launcher of all launches that will be added.

        Parameters
        ----------
        launches
            All of them.
        is_waited_for
            Whether a replay waits for the kernels.

        Returns
        -------
        bool
            Whether kernels read the addresses of their arguments from a table.
        """
        launcher = self.context.batch_launcher
        builder = None if launcher is None else launcher.begin(launches, is_waited_for)
        self._sequence_builder = builder or self.context.launcher
        return self._sequence_builder.uses_addresses

    def add_launches(self, at: int, launches: Sequence[Launch]) -> list[BoundKernel]:
        """Add the launches of node number `at`; return their kernels."""
        if not self._pending:
            self._first_pending_node = at
        kernels = [self._bind_kernel(launch) for launch in launches]
        self._pending.extend(zip(launches, kernels, strict=True))
        return kernels

    def _bind_kernel(self, launch: Launch) -> BoundKernel:
        """Return a kernel whose buffer arguments are set, or will be set by bindings."""
        # Without the buffers of the captured call, which would be kept as long as the graph.
        by_value = tuple(a if isinstance(a, bytes | np.generic) else None for a in launch.arguments)
        kernel = self._sequence_builder.add(launch._replace(arguments=by_value))
        for index, argument in enumerate(launch.arguments):
            if isinstance(argument, bytes | np.generic):
                continue
            found = self._resolve(argument)
            if isinstance(found, BufferBinding):
                found.add_argument(kernel, index)
            else:
                kernel.bind(index, found)
                self._keep.append(found)
        return kernel

    def submit(self) -> None:
        """Run the pending launches before what is added next."""
        if not self._pending:
            return
        step = self._sequence_step()
        self._sequences.append(step)
        self._steps.append((self._first_pending_node, step))
        self._pending, self._is_running = [], True

    def _sequence_step(self) -> SequenceStep:
        """Return the step that runs the pending launches."""
        kernels = [kernel for _, kernel in self._pending]
        queue, builder = self.context.queue, self._sequence_builder
        if not builder.uses_addresses:  # the queue runs them in order, and the driver keeps their buffers
            return SequenceStep(queue, builder.finish(kernels, ()), keep=self._keep)
        memories = [[self._memory_of(argument) for argument in launch.arguments] for launch, _ in self._pending]
        bindings = dict.fromkeys(m for found in memories for m in found if isinstance(m, BufferBinding))
        for binding in list(bindings):
            whole = self.trace.owner_of(binding)
            if whole is not None:
                bindings[whole] = None
        fresh = {binding for binding, _ in self._outputs}
        used = [accesses(k.access_modes, found, fresh) for k, found in zip(kernels, memories, strict=True)]
        writes_shared = any(donation.binding in bindings for donation in self._donations.values())
        sequence = builder.finish(kernels, predecessor_index(used))
        return SequenceStep(queue, sequence, list(bindings), self._keep, writes_shared)

    def _memory_of(self, argument: Any) -> Any:
        """Return the binding or the buffer of an argument; None for values and null pointers."""
        is_value = argument is None or isinstance(argument, bytes | np.generic)
        return None if is_value else self._resolve(argument)

    def wait(self, at: int) -> None:
        """Wait for all kernels, unless nothing runs."""
        self.submit()
        if not self._is_running:
            return
        if self._sequences and self._steps[-1][1] is self._sequences[-1]:
            self._sequences[-1].is_waited_for = True
        else:
            self._steps.append((at, self.context.queue.finish))
        self._sync_count += 1
        self._is_running = False

    def add_download(self, at: int, variable: Variable, out: Cell) -> None:
        """Add the download of a variable, by node number `at`."""
        memory, dtype, layout = self.trace.locations[variable]
        mappings, found = self.context.mappings, self._resolve(memory)
        make_array = self.array_maker(variable)
        if isinstance(memory, CapturedAllocation) and memory.number in self._exported:
            self.wait(at)
            self.add_step(at, lambda: out.__setitem__(0, mappings.to_numpy(make_array())))
            return
        is_visible = layout.is_contiguous and mappings.are_supported()
        if is_visible and isinstance(found, ArenaBinding):
            self.wait(at)
            self.add_step(at, ArenaDownload(self.context, found, dtype, layout, out))
            return
        view = mappings.view(make_array()) if is_visible and not isinstance(found, BufferBinding) else None
        if view is not None:
            self.wait(at)
            self.add_step(at, lambda: out.__setitem__(0, view.copy()))
            return
        self.submit()
        self._sync_count += 1
        self._is_running = False
        self.add_step(at, lambda: out.__setitem__(0, download(make_array())))

    def finish(self, results: Sequence[tuple[Cell, Variable]], clear: Sequence[Cell]) -> CapturedGraph:
        """Return the captured graph.

        Parameters
        ----------
        results
            Cells of device arrays that a call returns, and their variables.
        clear
            Cells that are emptied after a call.
        """
        self.submit()
        donated = self._donations
        makers = [(c, donated[v].take if v in donated else self.array_maker(v)) for c, v in results]
        for argument in self._arguments:
            binding = argument.binding
            only_kernels = binding not in self._read_as_arrays
            if only_kernels and not self.trace.is_slice(binding) and not self.trace.is_sliced(binding):
                argument.read_by_address()
        output_bytes = sum(nbytes for _, nbytes in self._outputs)
        return CapturedGraph(
            self.context,
            steps=[(at, s.thunk() if isinstance(s, SequenceStep) else s) for at, s in self._steps],
            sequences=self._sequences,
            bindings=GraphBindings(self._outputs, self._arena_bindings, self._per_call, list(donated.values())),
            results=makers,
            clear=list(clear),
            memory=MemoryUse(self.plan, self.trace.release(), sum(self._constants.values()), output_bytes),
            sync_count=self._sync_count,
        )
