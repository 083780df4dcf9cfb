"""What capturing a call notes: where its arrays are, its launches, and host values."""

from typing import Any, NamedTuple

from pytensor.graph.basic import Variable

from pytensor_cl.linker.graphs.buffers import ArrayLocation, BufferBinding
from pytensor_cl.linker.graphs.parameters import ReplayParameterSpec
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.launch_capture import Launch

__all__ = ["CaptureFailure", "CaptureTrace"]

PERMANENT = ("a wait", "a download")
"""What a routine does in every call: the shape of its result depends on values."""


class CaptureFailure(NamedTuple):
    """Why a call cannot be captured.

    Attributes
    ----------
    reason
        In words.
    at
        Index of the node that causes it; None if no single node does.
    """

    reason: str
    at: int | None

    @property
    def is_permanent(self) -> bool:
        """Whether other calls will fail as well."""
        return self.reason in PERMANENT


class CaptureTrace:
    """What was noted during the captured call.

    Parameters
    ----------
    context
        The one context of the function.

    Attributes
    ----------
    locations
        Where the device variables were.
    launches
        Per node.
    values
        Host values that are the same in each replay, or must be.
    parameters
        How other calls may differ.
    aliases
        Variables whose memory is that of another input.
    failure
        Why the call cannot be captured.
    imported
        Host values that the device reads in their own memory. They may be gone when the graph is built.
    arguments
        Host values with which the call began, if it has slices. They too may be gone when the graph is built.
    bindings
        Of inputs, shared variables and slices, whose buffers differ from call to call.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.locations: dict[Variable, ArrayLocation] = {}
        self.launches: list[list[Launch]] = []
        self.values: dict[Variable, Any] = {}
        self.parameters = ReplayParameterSpec()
        self.aliases: set[Variable] = set()
        self.imported: set[Variable] = set()
        self.arguments: dict[Variable, Any] = {}
        self.failure: CaptureFailure | None = None
        self.bindings: list[BufferBinding] = []
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
        """Return the binding of memory; of a slice, that of the whole buffer."""
        binding = self.binding_of(memory)
        return None if binding is None else self._wholes.get(binding, binding)

    def is_slice(self, memory: Any) -> bool:
        """Whether memory is a part of the buffer of another binding."""
        return self.binding_of(memory) in self._wholes

    def is_sliced(self, binding: BufferBinding) -> bool:
        """Whether parts of the buffer of a binding have bindings of their own."""
        return binding in self._wholes.values()

    def release(self) -> int:
        """Drop the arrays of the call; return how many bytes its inputs and shared variables have."""
        nbytes = sum(a.buffer.size for h, a in self._pinned.items() if self._by_handle[h] not in self._wholes)
        self._pinned.clear()
        return nbytes
