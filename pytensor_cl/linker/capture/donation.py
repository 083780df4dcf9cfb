"""Updates that are written where the old value is: a training step then needs no second copy of its parameters.

An update may take the old value's memory if the last kernel that reads the old value has been enqueued before the first
one that writes the new value, or is that one and reads each element before it writes it; if nothing that may still fail
comes after it, as a failed call changes nothing; and, in each call anew, if nobody but the shared variable refers to
the array. Else it gets memory of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.replay.buffer_bindings import ArrayLocation, BufferBinding
from pytensor_cl.linker.replay.graph import GraphBuilder
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.launch_capture import CapturedAllocation, Launch

__all__ = ["DonationPair", "find_donations"]


class DonationPair(NamedTuple):
    """A new value that may lie where an old one does.

    Attributes
    ----------
    old, new
        Device variables.
    """

    old: Variable
    new: Variable


class _Uses:
    """First and last launch of each slot and each allocation, and their nodes."""

    def __init__(self, tape: GraphBuilder, nodes: Sequence[Apply], launches: Sequence[Sequence[Launch]]) -> None:
        self.first: dict[Any, tuple[int, int]] = {}
        self.last: dict[Any, tuple[int, int]] = {}
        self._tape = tape
        time = 0
        for at, node in enumerate(nodes):
            for launch in launches[at]:
                self._note(launch.arguments, (time, at))
                time += 1
            if isinstance(node.op, HostFromGpu):
                self._note((tape.places[node.inputs[0]].memory,), (time, at))
                time += 1

    def _note(self, memories: Sequence[Any], when: tuple[int, int]) -> None:
        for memory in memories:
            owner = self.owner(memory)
            if owner is not None:
                self.first.setdefault(owner, when)
                self.last[owner] = when

    def owner(self, memory: Any) -> Any:
        """Return whose memory it is: a slot, or the number of an allocation."""
        return memory.number if isinstance(memory, CapturedAllocation) else self._tape.slot_of(memory)


def find_donations(
    tape: GraphBuilder,
    nodes: Sequence[Apply],
    launches: Sequence[Sequence[Launch]],
    updates: Mapping[Variable, Variable],
    results: Sequence[Variable],
    risk: int,
) -> Iterator[DonationPair]:
    """Yield the updates that may take the memory of the old value.

    Parameters
    ----------
    tape
        Where the arrays were.
    nodes, launches
        Of the recorded call.
    updates
        Input of the graph to the device variable that replaces it.
    results
        All device variables that outlive the call, as often as somebody gets them.
    risk
        The last node that may fail.
    """
    uses = _Uses(tape, nodes, launches)
    uploads = {n.inputs[0]: n.outputs[0] for n in nodes if isinstance(n.op, GpuFromHost)}
    kept = [uses.owner(tape.places[v].memory) for v in results]
    for source, new in updates.items():
        old = uploads.get(source, source)
        place, target = tape.places.get(old), tape.places[new]
        if (
            place is None
            or not isinstance(place.memory, BufferBinding)
            or not isinstance(target.memory, CapturedAllocation)
        ):
            continue
        is_alone = kept.count(target.memory.number) == 1 and place.memory not in kept
        written = uses.first.get(target.memory.number)
        if is_alone and written is not None and written[1] > risk and _fits(place, target):
            read, at = uses.last.get(place.memory, (-1, -1)), written[1]
            if read[0] < written[0] or (read[1] == at and _is_in_place(tape, nodes[at], place)):
                yield DonationPair(old, new)


def _fits(old: ArrayLocation, new: ArrayLocation) -> bool:
    """Whether both arrays are the whole of their memory, and of the same kind; complex products go by parts."""
    return (
        old.dtype == new.dtype
        and old.dtype.kind != "c"
        and old.layout == new.layout
        and new.layout.is_contiguous
        and not new.layout.offset
    )


def _is_in_place(tape: GraphBuilder, node: Apply, old: ArrayLocation) -> bool:
    """Whether the node reads no element of the old value after it wrote the one at the same place."""
    reads = [
        k for k, v in enumerate(node.inputs) if v in tape.places and tape.slot_of(tape.places[v].memory) is old.memory
    ]
    op = node.op
    return isinstance(op, GpuOp) and all(
        op.may_overwrite(k) and tape.places[node.inputs[k]].layout == old.layout for k in reads
    )
