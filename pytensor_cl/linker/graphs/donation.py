"""Donation: an update is written to the memory of the old value, so a training step needs no second copy of parameters.

An update may take the memory of the old value under four conditions. The last launch that reads the old value comes
before the first one that writes the new value, or is the same launch and reads each element before it writes it.
Nothing that may fail comes later, as a failed call changes nothing. Both arrays have the same dtype and layout. These
three are properties of the captured call (`find_donations`). And in each call, nothing but the shared variable refers
to the old array (`BufferDonation.acquire`); else the update gets memory of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from sys import getrefcount
from typing import Any

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.graphs.buffers import ArrayLocation, BufferBinding
from pytensor_cl.linker.graphs.trace import Trace
from pytensor_cl.linker.types import Cell
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.launch_capture import CapturedAllocation


class _StandIn:
    """An object with a buffer, as an array has one."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = object()


def _reference_counts(cell: Cell) -> tuple[int, int]:
    """Count the references to the array in a cell, and to its buffer; the counts include this function's references."""
    array = cell[0]
    return getrefcount(array), getrefcount(array.buffer)


_COUNTS_OF_ONE_CELL = _reference_counts([_StandIn()])
"""The counts for an array to which one cell alone refers. How many references a function adds differs between versions
of Python, so the function that counts in calls is measured here."""


class BufferDonation:
    """An update that is written to the memory of the old value, if nothing else refers to the old value."""

    def __init__(self, context: Context, location: ArrayLocation, out: Cell, holders: int) -> None:
        self._context, self._location = context, location  # location: array of the new value
        self._out = out
        array_count, buffer_count = _COUNTS_OF_ONE_CELL
        self._expected_counts = array_count + holders - 1, buffer_count  # `holders` cells refer to the old value
        self.binding = BufferBinding()
        self.array: GpuArray | None = None
        self.reuse_count = 0  # calls in which the memory of the old value was used

    def acquire(self, old: Cell) -> None:
        """Bind the memory of the old value; new memory if something else refers to it.

        The callers must have no variable that is the array: it would be one more reference.
        """
        self._out[0] = None
        # Other code may refer to memory that this package has not allocated, without a reference to the array.
        if _reference_counts(old) == self._expected_counts and old[0].owner is None and not old[0].readonly:
            self.reuse_count += 1
            self.array = old[0]
        else:
            buffer = self._context.memory.allocate(self._location.memory.nbytes)
            self.array = GpuArray(self._context, buffer, self._location.dtype, self._location.layout)
        self.binding.bind_array(self.array)

    def take(self) -> GpuArray:
        """Return the new value, and drop the reference to it."""
        array, self.array = self.array, None
        assert array is not None
        return array


class _LiveRanges:
    """The first and the last launch that uses each binding and each allocation, with the indices of their nodes."""

    def __init__(self, trace: Trace, nodes: Sequence[Apply]) -> None:
        self.first: dict[Any, tuple[int, int]] = {}
        self.last: dict[Any, tuple[int, int]] = {}
        self._trace = trace
        time = 0
        for at, node in enumerate(nodes):
            for launch in trace.launches[at]:
                self._use(launch.arguments, (time, at))
                time += 1
            if isinstance(node.op, HostFromGpu):
                self._use((trace.locations[node.inputs[0]].memory,), (time, at))
                time += 1

    def _use(self, memories: Sequence[Any], when: tuple[int, int]) -> None:
        for memory in memories:
            owner = self.owner(memory)
            if owner is not None:
                self.first.setdefault(owner, when)
                self.last[owner] = when

    def owner(self, memory: Any) -> Any:
        """Return the binding, or the number of the allocation, that memory belongs to."""
        return memory.number if isinstance(memory, CapturedAllocation) else self._trace.owner_of(memory)


def find_donations(
    trace: Trace,
    nodes: Sequence[Apply],
    updates: Mapping[Variable, Variable],
    results: Sequence[Variable],
    last_fallible_node: int,
) -> Iterator[tuple[Variable, Variable]]:
    """Yield the updates, as the old and the new device variable, that may use the memory of the old value.

    `updates` are inputs of the graph and what replaces them; `results` are used after the call, once for each reference
    to them; `last_fallible_node` is the index of the last node that may fail, -1 if none may.
    """
    ranges = _LiveRanges(trace, nodes)
    uploads = {n.inputs[0]: n.outputs[0] for n in nodes if isinstance(n.op, GpuFromHost)}
    kept = [ranges.owner(trace.locations[v].memory) for v in results]
    for source, new in updates.items():
        old = uploads.get(source, source)
        location, target = trace.locations.get(old), trace.locations[new]
        if (
            location is None
            or not isinstance(location.memory, BufferBinding)
            or not isinstance(target.memory, CapturedAllocation)
        ):
            continue
        is_exclusive = kept.count(target.memory.number) == 1 and location.memory not in kept
        written = ranges.first.get(target.memory.number)
        if is_exclusive and written is not None and written[1] > last_fallible_node and _fits(location, target):
            read, at = ranges.last.get(location.memory, (-1, -1)), written[1]
            if read[0] < written[0] or (read[1] == at and _is_in_place(trace, nodes[at], location)):
                yield old, new


def _fits(old: ArrayLocation, new: ArrayLocation) -> bool:
    """Return whether both arrays have the same dtype and layout, and are the whole of their memory.

    Complex arrays do not fit: complex products are computed in parts.
    """
    return (
        old.dtype == new.dtype
        and old.dtype.kind != "c"
        and old.layout == new.layout
        and new.layout.is_contiguous
        and not new.layout.offset
    )


def _is_in_place(trace: Trace, node: Apply, old: ArrayLocation) -> bool:
    """Return whether the node reads each element of the old value before it writes the one at the same place."""
    reads = [
        k
        for k, v in enumerate(node.inputs)
        if v in trace.locations and trace.owner_of(trace.locations[v].memory) is old.memory
    ]
    op = node.op
    return isinstance(op, GpuOp) and all(
        op.accepts_donation(k) and trace.locations[node.inputs[k]].layout == old.layout for k in reads
    )
