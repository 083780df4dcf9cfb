"""Dependencies between kernels of a captured graph, for drivers that run all of them in one launch."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding


class Access(NamedTuple):
    """A range of bytes that a kernel reads or writes."""

    memory: Any  # identifies the buffer
    begin: int
    end: int
    writes: bool

    def conflicts(self, other: "Access") -> bool:
        """Return whether the order of the two kernels matters."""
        overlaps = self.memory == other.memory and self.begin < other.end and other.begin < self.end
        return overlaps and (self.writes or other.writes)


def accesses(access_modes: str, memories: Sequence[Any], fresh: Collection[BufferBinding]) -> list[Access]:
    """Return the accesses of a kernel, from its `BoundKernel.access_modes` and the memory of each argument.

    Memory is a binding or a buffer; None for values and null pointers. Nothing else in the call uses the memory of
    `fresh` bindings; others may be the same memory, in some calls.
    """
    ranges = []
    for mode, memory in zip(access_modes, memories, strict=True):
        if isinstance(memory, ArenaBinding):
            ranges.append(Access(("arena", memory.range.number), memory.range.offset, memory.range.end, mode == "w"))
        elif memory is not None:
            is_external = isinstance(memory, BufferBinding) and memory not in fresh
            key = "external" if is_external else memory if isinstance(memory, BufferBinding) else memory.int_ptr
            ranges.append(Access(key, 0, 1, mode == "w"))
    return ranges


def predecessor_index(used: Sequence[Sequence[Access]]) -> list[int]:
    """Return for each kernel the index of the last one before it that must have ended when it begins, -1 if none."""
    return [
        next((j for j in reversed(range(k)) if any(a.conflicts(b) for a in mine for b in used[j])), -1)
        for k, mine in enumerate(used)
    ]
