"""Build a captured graph from the trace of a call: its launches, bindings, downloads and waits."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding
from pytensor_cl.linker.graphs.dependencies import accesses, predecessor_index
from pytensor_cl.linker.graphs.graph import (
    ArenaDownload,
    ArgumentBinding,
    CapturedGraph,
    DeviceInputBinding,
    SequenceStep,
    SharedBinding,
    UploadSource,
)
from pytensor_cl.linker.graphs.guards import (
    HostValues,
    alias_guard,
    freeze_value,
    launches_with_scalars,
    scalar_arguments,
    value_guard,
)
from pytensor_cl.linker.graphs.launch_groups import is_long
from pytensor_cl.linker.graphs.memory import MemoryUse
from pytensor_cl.linker.graphs.plan import GraphPlan, plan_graph
from pytensor_cl.linker.graphs.slices import DynamicSlices
from pytensor_cl.linker.graphs.trace import Trace
from pytensor_cl.linker.graphs.transfers import ArgumentBlock, ResultReads, is_together
from pytensor_cl.linker.types import Cell, StepProgram, Thunk, peeking
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu, download
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.interfaces import BoundKernel, SequenceBuilder
from pytensor_cl.runtime.launch_capture import CapturedAllocation, Launch
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.sharedvar import DeviceCell


def build_graph(program: StepProgram, values: HostValues, slices: DynamicSlices | None, trace: Trace) -> CapturedGraph:
    """Return the captured graph of a traced call."""
    builder = _GraphBuilder(program, values, slices, trace, plan_graph(program, values, trace))
    builder.add_inputs()
    for at, node in enumerate(program.nodes):
        builder.add_node(at, node)
    return builder.finish()


class _GraphBuilder:
    """Collects the steps of a captured graph in the order of execution."""

    def __init__(
        self,
        program: StepProgram,
        values: HostValues,
        slices: DynamicSlices | None,
        trace: Trace,
        plan: GraphPlan,
    ) -> None:
        self._program, self._values, self._trace, self._plan = program, values, trace, plan
        self._context = trace.context
        self._dynamic = set() if slices is None else slices.variables
        self._steps: list[tuple[int, Thunk]] = []
        self._sequences: list[SequenceStep] = []
        self._pending: list[tuple[Launch, BoundKernel]] = []  # launches that are not in a sequence yet
        self._first_pending_node = 0
        self._submitted = 0  # launches that are in a sequence
        self._is_running = False  # whether kernels were submitted for which nothing has waited
        self._sync_count = 0
        self._keep: list[Any] = []  # buffers that the launch sequences must keep
        self._constants: dict[int, int] = {}  # handles of buffers that stay the same, and their bytes
        self._arguments: list[ArgumentBinding] = []
        self._small_arguments: list[tuple[int, ArgumentBinding]] = []  # may be uploaded together; indices of the nodes
        self._block_bytes = 0
        self._reads: ResultReads | None = None  # downloads that nothing waits for yet
        self._read_as_arrays: set[BufferBinding] = set()  # bindings that steps read as arrays
        self._sequence_builder: SequenceBuilder = self._choose_sequence_builder()
        # A result must not be a staged copy of an argument, which is gone after the call.
        self._returned = {trace.owner_of(trace.locations[v].memory) for _, v in program.device_results()}

    def _choose_sequence_builder(self) -> SequenceBuilder:
        """Return the context's batch launcher, if it takes all launches; else they are enqueued one by one."""
        launcher = self._context.batch_launcher
        if launcher is None:
            return self._context.launcher
        is_waited_for = any(isinstance(node.op, HostFromGpu) for node in self._program.nodes)
        launches = [launch for launches in self._trace.launches for launch in launches]
        return launcher.begin(launches, is_waited_for) or self._context.launcher

    # Memory

    def _resolve(self, memory: Any) -> Any:
        """Return the binding of memory that a launch or a location names; a buffer that stays the same as it is."""
        if isinstance(memory, CapturedAllocation):
            return self._plan.assigned[memory.number]
        binding = self._trace.binding_of(memory)
        if binding is not None:
            return binding
        if getattr(memory, "int_ptr", 0):
            self._constants[memory.int_ptr] = memory.size
        return memory

    def _array_maker(self, variable: Variable) -> Callable[[], GpuArray]:
        """Return a function that makes the array of a variable in a replay."""
        memory, dtype, layout = self._trace.locations[variable]
        context, found = self._context, self._resolve(memory)
        if isinstance(found, BufferBinding):
            self._read_as_arrays.add(found)
            return lambda: _array_like(found.array_ref(), GpuArray(context, found.buffer, dtype, layout))
        return lambda: GpuArray(context, found, dtype, layout, readonly=True)  # a constant

    # Steps of nodes

    def add_inputs(self) -> None:
        """Bind the inputs of the graph that are device arrays."""
        program, trace = self._program, self._trace
        for variable in filter(trace.locations.__contains__, program.inputs):
            binding, cell = trace.locations[variable].memory, program.storage[variable]
            if variable in trace.aliases:
                self._add_step(0, alias_guard(cell, binding))
            else:
                self._add_step(0, DeviceInputBinding(cell, binding, self._plan.donated.get(variable)))

    def add_node(self, at: int, node: Apply) -> None:
        """Add the steps of node number `at`."""
        if isinstance(node.op, GpuOp):
            self._add_device_node(at, node)
        elif isinstance(node.op, GpuFromHost):
            self._add_upload(at, node)
        elif isinstance(node.op, HostFromGpu):
            self._add_download(at, node.inputs[0], self._program.storage[node.outputs[0]])
            self._add_guards(at, node)
        elif node in self._plan.live_host_nodes:
            self._add_host_node(at, node)

    def _add_step(self, at: int, thunk: Thunk) -> None:
        """Add a step, which may read what was downloaded; pending launches run after it."""
        self._finish_reads(at)
        self._steps.append((at, thunk))

    def _add_device_node(self, at: int, node: Apply) -> None:
        trace = self._trace
        for number, (sliced, _) in enumerate(trace.parameters.slices):
            if sliced is node:
                self._add_step(at, trace.parameters.slice_step(number))
                return
        routine, launches = self._program.routines[node], trace.launches[at]
        kernels = self._add_launches(at, launches)
        with_scalars = [kernels[i] for i in launches_with_scalars(routine, launches)]
        self._note_parameters(node, with_scalars)
        arguments = scalar_arguments(routine)
        for k in self._values.changing_scalars(node, routine) if with_scalars else ():
            cell, (convert, index) = peeking(self._program.storage[node.inputs[k]]), arguments[k]
            for kernel in with_scalars:
                self._add_step(at, _scalar_step(cell, convert, kernel, index))

    def _note_parameters(self, node: Apply, kernels: Sequence[BoundKernel]) -> None:
        """Note the inputs of a node that depend on the index of a minibatch: passed by value, or guarded."""
        parameters, arguments = self._trace.parameters, scalar_arguments(self._program.routines[node])
        for k in (k for k, v in enumerate(node.inputs) if v in self._dynamic):
            variable = node.inputs[k]
            if k not in arguments or not kernels:
                parameters.guarded.append(variable)
                continue
            convert, index = arguments[k]
            parameters.numbers += [(variable, _scalar_setter(convert, kernel, index)) for kernel in kernels]

    def _add_upload(self, at: int, node: Apply) -> None:
        (argument,), (variable,) = node.inputs, node.outputs
        storage, trace = self._program.storage, self._trace
        location, source = trace.locations[variable], storage[argument]
        if not isinstance(location.memory, BufferBinding):
            return  # a constant
        uses_addresses = self._sequence_builder.uses_addresses
        may_stage = uses_addresses and location.memory not in self._returned
        thunk = self._program.thunks[at]
        upload = UploadSource(self._context, source, storage[variable], thunk, location, may_stage)
        is_shared = isinstance(source, DeviceCell)
        if variable in trace.aliases:
            self._add_step(at, (SharedBinding(upload, None) if is_shared else ArgumentBinding(upload)).to_device)
            self._add_step(at, alias_guard(storage[variable], location.memory))
        elif is_shared:
            self._add_step(at, SharedBinding(upload, self._plan.donated.get(variable)))
        elif may_stage and argument.owner is None:
            binding = ArgumentBinding(upload, argument in trace.imported)
            self._arguments.append(binding)
            self._add_step(at, binding)
        else:
            binding = ArgumentBinding(upload)
            is_first = argument.owner is None and location.memory not in self._returned and not location.layout.offset
            if is_first and not uses_addresses and is_together(self._context, location.dtype, location.layout):
                self._small_arguments.append((at, binding))
            self._add_step(at, binding)

    def _add_host_node(self, at: int, node: Apply) -> None:
        program, parameters = self._program, self._trace.parameters
        if all(map(self._values.is_known, node.outputs)):
            for variable in node.outputs:
                cell = program.storage[variable]
                if parameters.slices and variable in self._dynamic:
                    parameters.host_values.append((variable, cell))
                else:
                    self._add_step(at, _constant_step(cell, self._trace.values[variable]))
            return
        if is_long(node):
            self._submit()  # submit now, so that the device computes during the step
        self._add_step(at, program.thunks[at])
        self._add_guards(at, node)

    def _add_guards(self, at: int, node: Apply) -> None:
        for variable in self._values.guarded.intersection(node.outputs):
            expected = freeze_value(self._trace.values[variable])
            self._add_step(at, value_guard(self._program.storage[variable], expected))

    # Launches

    def _add_launches(self, at: int, launches: Sequence[Launch]) -> list[BoundKernel]:
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

    def _submit(self) -> None:
        """Run the pending launches before the steps that are added next."""
        if not self._pending:
            return
        self._start_reads(self._first_pending_node)  # its kernels may write where they read
        step = self._sequence_step()
        self._sequences.append(step)
        self._steps.append((self._first_pending_node, step))
        self._submitted += len(self._pending)
        self._pending, self._is_running = [], True

    def _sequence_step(self) -> SequenceStep:
        """Return the step that runs the pending launches."""
        kernels = [kernel for _, kernel in self._pending]
        queue, builder = self._context.queue, self._sequence_builder
        if not builder.uses_addresses:  # the queue runs them in order, and the driver keeps their buffers
            groups = self._plan.groups.part(self._submitted, self._submitted + len(kernels))
            return SequenceStep(queue, builder.finish(kernels, (), groups), keep=self._keep)
        memories = [[self._memory_of(argument) for argument in launch.arguments] for launch, _ in self._pending]
        bindings = dict.fromkeys(m for found in memories for m in found if isinstance(m, BufferBinding))
        for binding in list(bindings):
            whole = self._trace.owner_of(binding)  # the buffer of a slice, which has no memory of its own
            if whole is not None:
                bindings[whole] = None
        # Two bindings may be the same memory in some call, but new outputs never are: they need no dependency.
        fresh = {binding for binding, _ in self._plan.outputs}
        used = [accesses(k.access_modes, found, fresh) for k, found in zip(kernels, memories, strict=True)]
        writes_shared = any(donation.binding in bindings for donation in self._plan.donations.values())
        sequence = builder.finish(kernels, predecessor_index(used))
        return SequenceStep(queue, sequence, list(bindings), self._keep, writes_shared)

    def _memory_of(self, argument: Any) -> Any:
        """Return the binding or the buffer of an argument; None for values and null pointers."""
        is_value = argument is None or isinstance(argument, bytes | np.generic)
        return None if is_value else self._resolve(argument)

    def _wait(self, at: int) -> None:
        """Wait for all kernels, unless nothing runs."""
        self._submit()
        if not self._is_running:
            return
        if self._sequences and self._steps[-1][1] is self._sequences[-1]:
            self._sequences[-1].is_waited_for = True  # the step can wait itself, and this thread computes meanwhile
        else:
            self._add_step(at, self._context.queue.finish)
        self._sync_count += 1
        self._is_running = False

    # Results

    def _add_download(self, at: int, variable: Variable, out: Cell) -> None:
        memory, dtype, layout = self._trace.locations[variable]
        mappings, found = self._context.mappings, self._resolve(memory)
        make_array = self._array_maker(variable)
        if isinstance(memory, CapturedAllocation) and memory.number in self._plan.exported:
            self._wait(at)
            self._add_step(at, lambda: out.__setitem__(0, mappings.to_numpy(make_array())))
            return
        is_visible = layout.is_contiguous and mappings.are_supported()
        if is_visible and isinstance(found, ArenaBinding):
            self._wait(at)
            self._add_step(at, ArenaDownload(self._context, found, dtype, layout, out))
            return
        view = mappings.view(make_array()) if is_visible and not isinstance(found, BufferBinding) else None
        if view is not None:
            self._wait(at)
            self._add_step(at, lambda: out.__setitem__(0, view.copy()))
            return
        self._submit()
        if is_together(self._context, dtype, layout):
            self._read_later(at, found, dtype, layout, out)
            return
        self._start_reads(at)
        self._sync_count += 1  # the download waits
        self._is_running = False
        self._steps.append((at, lambda: out.__setitem__(0, download(make_array()))))

    def _read_later(self, at: int, memory: Any, dtype: np.dtype, layout: Layout, out: Cell) -> None:
        """Download a small result together with those that follow."""
        if self._reads is not None and not self._reads.has_room(layout.size * dtype.itemsize):
            self._finish_reads(at)
        if self._reads is None:
            self._reads = ResultReads(self._context)
        self._reads.add(memory, dtype, layout, out)

    def _start_reads(self, at: int) -> None:
        """Enqueue the downloads that were collected."""
        if self._reads is not None and self._reads.has_new:
            self._steps.append((at, self._reads.start()))

    def _finish_reads(self, at: int) -> None:
        """Wait for the downloads, if there are any."""
        self._start_reads(at)
        if self._reads is not None:
            self._steps.append((at, self._reads.finish))
            self._reads = None
            self._sync_count += 1
            self._is_running = False

    def finish(self) -> CapturedGraph:
        """Return the captured graph."""
        self._submit()
        program, trace, plan = self._program, self._trace, self._plan
        last = len(program.nodes) - 1
        if self._reads is not None:
            self._start_reads(last)
            self._steps += [(last, self._reads.start_flag(flag)) for flag in program.error_flags]
            self._finish_reads(last)
        donations = plan.donations
        makers = [
            (c, donations[v].take if v in donations else self._array_maker(v)) for c, v in program.device_results()
        ]
        for argument in self._arguments:
            if self._is_for_kernels(argument):
                argument.read_by_address()
        self._group_arguments()
        if trace.parameters.slices:
            trace.parameters.captured_values = trace.values
            trace.parameters.layout_signature = self._layout_signature()
        results = {id(cell) for cell in program.results}
        cells = (program.storage[v] for n in program.nodes for v in n.outputs)
        output_bytes = sum(nbytes for _, nbytes in plan.outputs)
        constant_bytes = sum(self._constants.values()) + self._block_bytes
        return CapturedGraph(
            self._context,
            plan,
            steps=self._steps,
            inputs=trace.bindings,
            results=makers,
            clear=[c for c in cells if id(c) not in results],
            parameters=trace.parameters,
            memory=MemoryUse(plan.memory, trace.release(), constant_bytes, output_bytes),
            sync_count=self._sync_count,
        )

    def _is_for_kernels(self, argument: ArgumentBinding) -> bool:
        """Return whether only kernels read an argument, and all of it."""
        binding, trace = argument.binding, self._trace
        only_kernels = binding not in self._read_as_arrays
        return only_kernels and not trace.is_slice(binding) and not trace.is_sliced(binding)

    def _group_arguments(self) -> None:
        """Upload small arguments together, by the first step."""
        found = [argument for _, argument in self._small_arguments if self._is_for_kernels(argument)]
        chosen = set(ArgumentBlock.fitting(self._context, found))
        if chosen:
            block = ArgumentBlock(self._context, [argument for argument in found if argument in chosen])
            first = next(at for at, argument in self._small_arguments if argument in chosen)
            self._steps = [(first, block), *(step for step in self._steps if step[1] not in chosen)]
            self._block_bytes = block.nbytes

    def _layout_signature(self) -> tuple[object, ...]:
        """Return the layout signature of this call, which other calls of the graph share (`DynamicSlices`)."""
        storage, trace = self._program.storage, self._trace
        layouts = tuple(trace.locations[node.outputs[0]].layout for node, _ in trace.parameters.slices)
        known = {**trace.arguments, **trace.values}
        values = (known[v] if v in known else peeking(storage[v])[0] for v in trace.parameters.guarded)
        return layouts, tuple(map(freeze_value, values))


def _array_like(source: GpuArray | None, array: GpuArray) -> GpuArray:
    """Return an array in the memory of another one with what that says of the memory: who owns it, and who writes."""
    if source is not None:
        array.readonly, array.owner = source.readonly, source.owner
    return array


def _scalar_setter(convert: Any, kernel: BoundKernel, index: int) -> Callable[[Any], None]:
    """Return a function that passes a number to a kernel by value."""
    set_bytes = kernel.set_bytes
    return lambda value: set_bytes(index, convert(value))


def _scalar_step(cell: Cell, convert: Any, kernel: BoundKernel, index: int) -> Thunk:
    """Return a step that passes a 0-d value to a kernel by value."""
    set_bytes = kernel.set_bytes
    return lambda: set_bytes(index, convert(cell[0][()]))


def _constant_step(cell: Cell, value: Any) -> Thunk:
    """Return a step that puts a copy of a host value into its cell."""

    def copy() -> None:
        cell[0] = np.array(value)

    return copy
