"""Which kernels of a recorded call must be over before another one begins, if one launch runs them all."""

from collections.abc import Collection, Sequence
from threading import active_count
from typing import Any, NamedTuple

from pytensor_cl.linker.replay.buffer_bindings import ArenaBinding, BufferBinding
from pytensor_cl.runtime.pocl.batch import KernelBatch

__all__ = ["Access", "Dispatch", "accesses", "orders"]


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
        Of the kernel (`outline.parameters_of`).
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


class Dispatch:
    """Enqueues a chain.

    Parameters
    ----------
    chain
        Whose arguments are set.
    slots
        That it uses, and those of which they are parts.
    keep
        Tables and constants, of which the driver knows nothing.

    Attributes
    ----------
    launches
        How many run it.
    is_waited_for
        Whether the call is to wait for it.
    is_in_place
        Whether it may write where a shared variable is: then another thread's kernels must come before or after it.
    """

    launches = 1
    is_waited_for = False
    is_in_place = False

    def __init__(self, chain: KernelBatch, slots: Sequence[BufferBinding], keep: Sequence[Any]) -> None:
        self._chain, self._slots, self._keep = chain, slots, keep

    def __len__(self) -> int:
        return len(self._chain)

    def __call__(self) -> None:
        if self.is_waited_for and not (self.is_in_place and active_count() > 1):
            self._chain.complete()
            return
        self._chain.launch(self._keep, [slot.buffer for slot in self._slots])
        if self.is_waited_for:
            self._chain.finish()

    def waited_for(self) -> "Dispatch":
        """Let it be over when the next step begins."""
        self.is_waited_for = True
        return self
