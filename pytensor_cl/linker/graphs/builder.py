"""Build a captured graph from the trace of a call."""

from collections import Counter
from collections.abc import Sequence

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.graphs.assembler import GraphAssembler
from pytensor_cl.linker.graphs.bindings import (
    ArgumentBinding,
    DeviceInputBinding,
    SharedBinding,
    UploadSource,
    constant_step,
    scalar_binding,
    scalar_setter,
)
from pytensor_cl.linker.graphs.buffer_donation import BufferDonation
from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.linker.graphs.donation import find_donations
from pytensor_cl.linker.graphs.dynamic_slices import DynamicSlices
from pytensor_cl.linker.graphs.graph import CapturedGraph
from pytensor_cl.linker.graphs.guards import alias_guard, freeze_value, value_guard
from pytensor_cl.linker.graphs.host_values import HostValueClasses, launches_with_scalars, scalar_arguments
from pytensor_cl.linker.graphs.memory_plan import LifetimeRecorder, make_plan
from pytensor_cl.linker.graphs.parameters import slice_step
from pytensor_cl.linker.graphs.trace import CaptureTrace
from pytensor_cl.linker.types import Cell, StepProgram, peeking
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.interfaces import BoundKernel
from pytensor_cl.sharedvar import DeviceCell

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """Builds the captured graph of one call.

    Parameters
    ----------
    program
        The steps of the function's virtual machine.
    classes, slices
        What becomes of the host values.
    trace
        Of the captured call.

    Attributes
    ----------
    device_results
        Cells of results that are device arrays, and their variables.
    """

    def __init__(
        self, program: StepProgram, classes: HostValueClasses, slices: DynamicSlices, trace: CaptureTrace
    ) -> None:
        self._program, self._classes, self._slices, self._trace = program, classes, slices, trace
        self._guarded = set(classes.guarded)
        self._assembler = GraphAssembler(trace)
        self._live_host_nodes = self._find_live_host_nodes()
        variables = {id(cell): v for v, cell in program.storage.items() if context_of(v)}
        self.device_results: list[tuple[Cell, Variable]] = [
            (cell, variables[id(cell)]) for cell in program.results if id(cell) in variables
        ]

    def build(self) -> CapturedGraph:
        """Return the captured graph."""
        program, trace, assembler = self._program, self._trace, self._assembler
        donations = self._donate_buffers()
        self._allocate_results()
        self._plan_memory()
        is_waited_for = any(isinstance(node.op, HostFromGpu) for node in program.nodes)
        launches = [launch for launches in trace.launches for launch in launches]
        uses_addresses = assembler.begin_launches(launches, is_waited_for)
        self._add_inputs(donations)
        returned = {trace.owner_of(trace.locations[v].memory) for _, v in self.device_results}
        for at, node in enumerate(program.nodes):
            if isinstance(node.op, GpuOp):
                self._add_device_node(at, node)
            elif isinstance(node.op, GpuFromHost):
                # Staged copies are gone after the call, so a result must not be one.
                may_stage = uses_addresses and trace.locations[node.outputs[0]].memory not in returned
                self._add_upload(at, node, donations.get(node.outputs[0]), may_stage)
            elif isinstance(node.op, HostFromGpu):
                assembler.add_download(at, node.inputs[0], program.storage[node.outputs[0]])
                self._add_guards(at, node)
            elif node in self._live_host_nodes:
                self._add_host_node(at, node)
        results = {id(cell) for cell in program.results}
        cells = (program.storage[v] for n in program.nodes for v in n.outputs)
        graph = assembler.finish(self.device_results, [c for c in cells if id(c) not in results])
        if trace.parameters.slices:
            trace.parameters.captured_values = trace.values
            trace.parameters.layout_signature = self._layout_signature()
            graph.parameters = trace.parameters
        return graph

    # Memory

    def _donate_buffers(self) -> dict[Variable, BufferDonation]:
        """Find updates that may use the memory of the old value; return the donations by old value."""
        program, trace = self._program, self._trace
        if program.checks_at_end:
            return {}
        variables = {id(cell): v for cell, v in self.device_results}
        results = {id(cell) for cell in program.results}
        # An old value that is returned must still be there when the call ends.
        replaced = {v: k for v, k in program.updates.items() if id(program.storage[v]) not in results}
        updates = {v: variables[id(c)] for v, k in replaced.items() if id(c := program.results[k]) in variables}
        last_fallible = max((at for at, node in enumerate(program.nodes) if self._is_fallible(node)), default=-1)
        kept = [variable for _, variable in self.device_results]
        found = {}
        for old, new in find_donations(trace, program.nodes, updates, kept, last_fallible):
            holders = 1 if old.owner is None else 2  # the shared variable, and the cell of its device array
            found[old] = self._assembler.donate(old, new, program.storage[new], holders)
        return found

    def _is_fallible(self, node: Apply) -> bool:
        """Whether a step of a node may raise in a replay."""
        if isinstance(node.op, GpuFromHost):
            return not isinstance(node.inputs[0], Constant)
        if isinstance(node.op, HostFromGpu):
            return node.outputs[0] in self._guarded
        return node in self._live_host_nodes or not self._guarded.isdisjoint(node.outputs)

    def _allocate_results(self) -> None:
        """Allocate results in each call; also large downloads, unless two of them are the same memory."""
        locations = self._trace.locations
        downloads = [n for n in self._program.nodes if isinstance(n.op, HostFromGpu)]
        results = [variable for _, variable in self.device_results]
        owners = Counter(locations[v].memory for v in (*(n.inputs[0] for n in downloads), *results))
        for variable in results:
            self._assembler.allocate_per_call(variable)
        for node in downloads:
            if node in self._program.exclusive_downloads and owners[locations[node.inputs[0]].memory] == 1:
                self._assembler.export_if_large(node.inputs[0])

    def _plan_memory(self) -> None:
        """Choose the arena ranges of intermediate results."""
        trace, assembler, lifetimes = self._trace, self._assembler, LifetimeRecorder()
        for node, launches in zip(self._program.nodes, trace.launches, strict=True):
            for launch in launches:
                lifetimes.use(node, assembler.unassigned(launch.arguments))
            if isinstance(node.op, HostFromGpu):
                lifetimes.use(node, assembler.unassigned([trace.locations[node.inputs[0]].memory]))
        for variable, location in trace.locations.items():
            for memory in assembler.unassigned([location.memory]):
                lifetimes.name(memory, variable, location.layout.shape, location.dtype)
        arena = trace.context.memory.arena
        plan = make_plan(lifetimes.allocations(), arena.alignment, arena.limit)
        assembler.assign_memory(plan, lifetimes.numbers)

    # Host values

    def _is_known(self, variable: Variable) -> bool:
        return isinstance(variable, Constant) or variable in self._classes.constants

    def _changing_scalars(self, node: Apply) -> list[int]:
        """Return the inputs of a node that its kernels take by value and that differ from call to call."""
        routine = self._program.routines.get(node)
        if routine is None:
            return []
        return [k for k in scalar_arguments(routine) if not self._is_known(node.inputs[k])]

    def _find_live_host_nodes(self) -> set[Apply]:
        """Return the host nodes whose results a replay reads."""
        program = self._program
        read = {v for v, cell in program.storage.items() if any(cell is c for c in program.results)}
        read |= self._guarded
        live: set[Apply] = set()
        for node in reversed(program.nodes):
            if isinstance(node.op, GpuOp):
                read.update(node.inputs[k] for k in self._changing_scalars(node))
            elif isinstance(node.op, GpuFromHost):
                read.add(node.inputs[0])
            elif read.intersection(node.outputs) or not all(map(self._is_known, node.outputs)):
                live.add(node)
                if not all(map(self._is_known, node.outputs)):
                    read.update(node.inputs)
        return live.difference(self._classes.prologue)

    def _layout_signature(self) -> tuple[object, ...]:
        """Return what other calls must have in common with this one, if they differ in the offsets of slices."""
        storage, trace = self._program.storage, self._trace
        layouts = tuple(trace.locations[node.outputs[0]].layout for node, _ in trace.parameters.slices)
        known = {**trace.arguments, **trace.values}
        values = (known[v] if v in known else peeking(storage[v])[0] for v in trace.parameters.guarded)
        return layouts, tuple(map(freeze_value, values))

    # Steps

    def _add_inputs(self, donations: dict[Variable, BufferDonation]) -> None:
        """Bind the inputs of the graph that are device arrays."""
        program, trace = self._program, self._trace
        for variable in filter(trace.locations.__contains__, program.inputs):
            binding, cell = trace.locations[variable].memory, program.storage[variable]
            if variable in trace.aliases:
                self._assembler.add_step(0, alias_guard(cell, binding))
            else:
                self._assembler.add_step(0, DeviceInputBinding(cell, binding, donations.get(variable)))

    def _add_device_node(self, at: int, node: Apply) -> None:
        assembler, trace = self._assembler, self._trace
        for number, (sliced, binding) in enumerate(trace.parameters.slices):
            if sliced is node:
                assembler.add_step(at, slice_step(binding, trace.parameters, number))
                return
        routine, launches = self._program.routines[node], trace.launches[at]
        kernels = assembler.add_launches(at, launches)
        with_scalars = [kernels[i] for i in launches_with_scalars(routine, launches)]
        self._note_replay_parameters(node, with_scalars)
        arguments = scalar_arguments(routine)
        for k in self._changing_scalars(node) if with_scalars else ():
            cell, (convert, index) = peeking(self._program.storage[node.inputs[k]]), arguments[k]
            for kernel in with_scalars:
                assembler.add_step(at, scalar_binding(cell, convert, kernel, index))

    def _note_replay_parameters(self, node: Apply, kernels: Sequence[BoundKernel]) -> None:
        """Note the inputs of a node that depend on the index of a minibatch: passed by value, or guarded."""
        parameters, arguments = self._trace.parameters, scalar_arguments(self._program.routines[node])
        for k in (k for k, v in enumerate(node.inputs) if v in self._slices.variables):
            variable = node.inputs[k]
            if k not in arguments or not kernels:
                parameters.guarded.append(variable)
                continue
            convert, index = arguments[k]
            parameters.numbers += [(variable, scalar_setter(convert, kernel, index)) for kernel in kernels]

    def _add_upload(self, at: int, node: Apply, donation: BufferDonation | None, may_stage: bool) -> None:
        variable, storage = node.outputs[0], self._program.storage
        location, source = self._trace.locations[variable], storage[node.inputs[0]]
        if not isinstance(location.memory, BufferBinding):
            return  # a constant
        thunk = self._program.thunks[at]
        upload = UploadSource(self._trace.context, source, storage[variable], thunk, location, may_stage)
        is_shared = isinstance(source, DeviceCell)
        if variable in self._trace.aliases:
            binding = SharedBinding(upload, None) if is_shared else ArgumentBinding(upload)
            self._assembler.add_step(at, binding.to_device)
            self._assembler.add_step(at, alias_guard(storage[variable], location.memory))
        elif is_shared:
            self._assembler.add_step(at, SharedBinding(upload, donation))
        elif may_stage and node.inputs[0].owner is None:
            self._assembler.add_argument(at, ArgumentBinding(upload, node.inputs[0] in self._trace.imported))
        else:
            self._assembler.add_step(at, ArgumentBinding(upload))

    def _add_host_node(self, at: int, node: Apply) -> None:
        program, trace, assembler = self._program, self._trace, self._assembler
        if all(map(self._is_known, node.outputs)):
            for variable in node.outputs:
                cell = program.storage[variable]
                if trace.parameters.slices and variable in self._slices.variables:
                    trace.parameters.host_values.append((variable, cell))
                else:
                    assembler.add_step(at, constant_step(cell, trace.values[variable]))
            return
        if any(getattr(v.type, "ndim", 1) for v in node.outputs):
            assembler.submit()  # what takes long runs while the device computes
        assembler.add_step(at, program.thunks[at])
        self._add_guards(at, node)

    def _add_guards(self, at: int, node: Apply) -> None:
        for variable in self._guarded.intersection(node.outputs):
            expected = freeze_value(self._trace.values[variable])
            self._assembler.add_step(at, value_guard(self._program.storage[variable], expected))
