"""Donation: an update is written to the memory of the old value, so a training step needs no second copy of parameters.

An update may take the memory of the old value under four conditions. The last launch that reads the old value comes
before the first one that writes the new value, or is the same launch and reads each element before it writes it.
Nothing that may fail comes later, as a failed call changes nothing. Both arrays have the same dtype and layout. And in
each call, nothing but the shared variable refers to the old array (`BufferDonation`); else the update gets memory of
its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.capture.trace import CaptureTrace
from pytensor_cl.linker.replay.buffer_bindings import ArrayLocation, BufferBinding
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.launch_capture import CapturedAllocation

__all__ = ["DonationPair", "find_donations"]


class DonationPair(NamedTuple):
    """A new value that may use the memory of an old one.

    Attributes
    ----------
    old, new
        Device variables.
    """

    old: Variable
    new: Variable


class _LiveRanges:
    """The first and the last launch that uses each binding and each allocation, with the indices of their nodes."""

    def __init__(self, trace: CaptureTrace, nodes: Sequence[Apply]) -> None:
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
    trace: CaptureTrace,
    nodes: Sequence[Apply],
    updates: Mapping[Variable, Variable],
    results: Sequence[Variable],
    last_fallible_node: int,
) -> Iterator[DonationPair]:
    """Yield the updates that may use the memory of the old value.

    Parameters
    ----------
    trace, nodes
        Of the captured call.
    updates
        Input of the graph to the device variable that replaces it.
    results
        The device variables that are used after the call, once for each reference to them.
    last_fallible_node
        Index of the last node that may fail; -1 if none may.
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
                yield DonationPair(old, new)


def _fits(old: ArrayLocation, new: ArrayLocation) -> bool:
    """Whether both arrays have the same dtype and layout, and are the whole of their memory.

    Complex arrays do not fit: complex products are computed in parts.
    """
    return (
        old.dtype == new.dtype
        and old.dtype.kind != "c"
        and old.layout == new.layout
        and new.layout.is_contiguous
        and not new.layout.offset
    )


def _is_in_place(trace: CaptureTrace, node: Apply, old: ArrayLocation) -> bool:
    """Whether the node reads each element of the old value before it writes the one at the same place."""
    reads = [
        k
        for k, v in enumerate(node.inputs)
        if v in trace.locations and trace.owner_of(trace.locations[v].memory) is old.memory
    ]
    op = node.op
    return isinstance(op, GpuOp) and all(
        op.accepts_donation(k) and trace.locations[node.inputs[k]].layout == old.layout for k in reads
    )
