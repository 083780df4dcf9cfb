"""Which kernels of a recorded call must be over before another one begins, if one launch runs them all."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from pytensor_cl.linker.replay.buffer_bindings import ArenaBinding, BufferBinding

__all__ = ["Access", "accesses", "orders"]


class Access(NamedTuple):
    """Memory that a kernel reads or writes.

    Attributes
    ----------
    memory
        What the bytes are of.
    begin, end
        Which ones.
    writes
        Whether they change.
    """

    memory: Any
    begin: int
    end: int
    writes: bool

    def collides(self, other: "Access") -> bool:
        """Whether it matters which one comes first."""
        is_shared = self.memory == other.memory and self.begin < other.end and other.begin < self.end
        return is_shared and (self.writes or other.writes)


def accesses(parameters: str, memories: Sequence[Any], fresh: Collection[BufferBinding]) -> list[Access]:
    """Return what a kernel accesses.

    Parameters
    ----------
    parameters
        Access modes of the kernel (`BoundKernel.access_modes`).
    memories
        Per parameter a slot or a buffer; None for values and null pointers.
    fresh
        Slots of memory that nothing else in the call is. Other slots may be the same memory, in some calls.
    """
    found = []
    for kind, memory in zip(parameters, memories, strict=True):
        if isinstance(memory, ArenaBinding):
            found.append(Access(("arena", memory.region.number), memory.region.offset, memory.region.end, kind == "w"))
        elif memory is not None:
            is_given = isinstance(memory, BufferBinding) and memory not in fresh
            key = "given" if is_given else memory if isinstance(memory, BufferBinding) else memory.int_ptr
            found.append(Access(key, 0, 1, kind == "w"))
    return found


def orders(used: Sequence[Sequence[Access]]) -> list[int]:
    """Return per kernel the last one before it that must be over when it begins, -1 if none."""
    return [
        next((j for j in reversed(range(k)) if any(a.collides(b) for a in mine for b in used[j])), -1)
        for k, mine in enumerate(used)
    ]
