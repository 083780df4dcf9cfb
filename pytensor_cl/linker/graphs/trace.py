"""Trace a call: run it step by step, and note its launches, where its arrays are, and its host values."""

from copy import copy
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.graphs.buffers import ArrayLocation, BufferBinding
from pytensor_cl.linker.graphs.guards import HostValues, launches_with_scalars
from pytensor_cl.linker.graphs.slices import DynamicSlices, GraphParameters, SliceBinding, split_offset
from pytensor_cl.linker.types import StepProgram, StepRunner
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.names import short_name
from pytensor_cl.ops.transfer import GpuFromHost
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.launch_capture import Launch, LaunchCapture
from pytensor_cl.runtime.memory.parts import parts_of
from pytensor_cl.sharedvar import DeviceCell

PERMANENT = ("a wait", "a download")
"""Obstacles of a capture that every call has: the shape of a result depends on values."""


class CaptureFailure(NamedTuple):
    """Why a call cannot be captured, and the index of the node that causes it; None if no single node does."""

    reason: str
    at: int | None

    @property
    def is_permanent(self) -> bool:
        """Whether other calls will fail as well."""
        return self.reason in PERMANENT


class Trace:
    """Record of a captured call: launches, places of device variables, host values."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.failure: CaptureFailure | None = None
        self.launches: list[list[Launch]] = []  # kernel launches of each node
        self.locations: dict[Variable, ArrayLocation] = {}  # places of the device variables
        self.bindings: list[BufferBinding] = []  # buffers of inputs, shared variables and slices
        self.aliases: set[Variable] = set()  # variables in the memory of another input
        self.parameters = GraphParameters()
        # Host values. Those of the arguments, and those that the device reads in the host's memory, may be gone when
        # the graph is built.
        self.values: dict[Variable, Any] = {}  # values that are, or must be, the same in each replay
        self.arguments: dict[Variable, Any] = {}  # arguments at the start of a call with slices
        self.imported: set[Variable] = set()  # host arrays that the device reads in place
        self._by_handle: dict[int, BufferBinding] = {}
        self._wholes: dict[BufferBinding, BufferBinding] = {}  # slices to the buffers that they are parts of
        self._pinned: dict[int, GpuArray] = {}  # arrays whose handles must not be used again

    def fail(self, reason: str, at: int | None) -> None:
        """Note why the call cannot be captured, if it is the first reason."""
        if reason and self.failure is None:
            self.failure = CaptureFailure(reason, at)

    def locate(self, variable: Variable, array: GpuArray) -> None:
        """Note where a variable is."""
        recorder = self.context.queue.capture
        memory = array.buffer if recorder is None else recorder.resolve(array.buffer)
        self.locations[variable] = ArrayLocation(memory, array.dtype, array.layout)

    def bind_external(self, variable: Variable, array: GpuArray) -> None:
        """Note a variable whose buffer differs from call to call."""
        handle = array.buffer.int_ptr
        if handle in self._by_handle:
            self.aliases.add(variable)
        else:
            self._pinned[handle] = array
            self._by_handle[handle] = BufferBinding()
            self.bindings.append(self._by_handle[handle])
        self.locations[variable] = ArrayLocation(self._by_handle[handle], array.dtype, array.layout)

    def bind_slice(self, variable: Variable, array: GpuArray, whole: BufferBinding) -> BufferBinding:
        """Note a variable that is a part of the buffer of a binding, another part in each call."""
        self.bind_external(variable, array)
        binding: BufferBinding = self.locations[variable].memory
        self._wholes[binding] = whole
        return binding

    def binding_of(self, memory: Any) -> BufferBinding | None:
        """Return the binding of memory; None if the memory is the same in each call, or the arena's."""
        return memory if isinstance(memory, BufferBinding) else self._by_handle.get(getattr(memory, "int_ptr", 0))

    def owner_of(self, memory: Any) -> BufferBinding | None:
        """Return the binding of memory; a slice has the binding of its whole buffer."""
        binding = self.binding_of(memory)
        return None if binding is None else self._wholes.get(binding, binding)

    def is_slice(self, memory: Any) -> bool:
        """Return whether memory is a part of the buffer of another binding."""
        return self.binding_of(memory) in self._wholes

    def is_sliced(self, binding: BufferBinding) -> bool:
        """Return whether parts of the buffer of a binding have bindings of their own."""
        return binding in self._wholes.values()

    def release(self) -> int:
        """Drop the arrays of the call; return how many bytes its inputs and shared variables have."""
        nbytes = sum(a.buffer.size for h, a in self._pinned.items() if self._by_handle[h] not in self._wholes)
        self._pinned.clear()
        return nbytes


def trace_call(
    program: StepProgram, values: HostValues, slices: DynamicSlices | None, context: Context, vm: StepRunner
) -> Trace:
    """Run a call step by step and return its trace."""
    trace, recorder = Trace(context), LaunchCapture()
    for variable in program.inputs:
        if context_of(variable) and not isinstance(variable, Constant):
            trace.bind_external(variable, program.storage[variable][0])
        elif slices is not None and not isinstance(program.storage[variable], DeviceCell):
            trace.arguments[variable] = program.storage[variable][0]

    def before(at: int) -> None:
        recorder.is_on = isinstance(program.nodes[at].op, GpuOp)
        recorder.launches = []

    def after(at: int) -> None:
        recorder.is_on = False
        trace.launches.append(recorder.launches)
        _note_results(trace, program, at, values, slices)
        trace.fail(recorder.unsupported, at)

    context.queue.capture = recorder
    try:
        program.run(vm, before, after)
    finally:
        context.queue.capture = None
    trace.fail(recorder.unsupported, None)
    _free_intermediates(program)
    return trace


def _note_results(
    trace: Trace, program: StepProgram, at: int, values: HostValues, slices: DynamicSlices | None
) -> None:
    """Note the locations and the host values of a node's results."""
    node, storage = program.nodes[at], program.storage
    is_upload = isinstance(node.op, GpuFromHost) and not isinstance(node.inputs[0], Constant)
    for variable in node.outputs:
        value = storage[variable][0]
        if not context_of(variable):
            if values.is_known(variable) or variable in values.guarded:
                # A later node may compute in place.
                trace.values[variable] = copy(value)
        elif is_upload:
            trace.bind_external(variable, value)
            if _is_imported(program, node.inputs[0]):
                trace.imported.add(node.inputs[0])
        elif slices is None or node not in slices.slices or not _bind_dynamic_slice(trace, program, node):
            trace.locate(variable, value)
    launches, routine = trace.launches[-1], program.routines.get(node)
    takes_scalars = bool(launches and values.changing_scalars(node, routine))
    if takes_scalars and routine is not None and not launches_with_scalars(routine, launches):
        trace.fail(f"no kernel of {short_name(node.op)} takes its values", at)


def _is_imported(program: StepProgram, variable: Variable) -> bool:
    """Return whether the device reads a host value in its own memory."""
    importer, cell = program.importers.get(variable), program.storage[variable]
    return importer is not None and not isinstance(cell, DeviceCell) and importer.misalignment(cell[0]) is not None


def _bind_dynamic_slice(trace: Trace, program: StepProgram, node: Apply) -> bool:
    """Bind the result of a node that slices; return whether it is at another offset in each call.

    The call continues with a sub-buffer, as replays will.
    """
    cell, source = program.storage[node.outputs[0]], trace.locations[node.inputs[0]]
    context, whole, array = trace.context, trace.owner_of(source.memory), cell[0]
    if whole is None or trace.is_slice(source.memory):
        return False
    itemsize, alignment = array.dtype.itemsize, context.memory.arena.alignment
    begin, layout = split_offset(array.layout, itemsize, alignment)
    memory = parts_of(array.buffer).new(begin, array.buffer.size - begin)
    cell[0] = GpuArray(context, memory, array.dtype, layout)
    part = trace.bind_slice(node.outputs[0], cell[0], whole)
    trace.parameters.slices.append((node, SliceBinding(part, whole, source.layout, itemsize, alignment)))
    return True


def _free_intermediates(program: StepProgram) -> None:
    """Empty the cells of device arrays that are no results."""
    results = {id(cell) for cell, _ in program.device_results()}
    for variable, cell in program.storage.items():
        if variable.owner is not None and context_of(variable) and id(cell) not in results:
            cell[0] = None
