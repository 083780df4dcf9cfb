"""The device memory of a captured graph: the arena range of each intermediate result, and what else is used."""

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Allocation", "ArenaRange", "MemoryPlan", "MemoryUse"]


@dataclass(frozen=True)
class Allocation:
    """An intermediate result, or the workspace of a node.

    Attributes
    ----------
    name
        Of the variable, or of the node that computes it.
    shape, dtype
        Of the array. A workspace has no shape.
    nbytes
        Its size.
    first, last
        Indices of the launches that use it first and last.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    nbytes: int
    first: int
    last: int


class ArenaRange(NamedTuple):
    """A range of bytes of an arena.

    Attributes
    ----------
    number
        Index of the buffer. There is more than one only if the device allocates no larger ones.
    offset, nbytes
        First byte, and number of bytes.
    """

    number: int
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class MemoryPlan:
    """The arena range of each allocation.

    Attributes
    ----------
    allocations, ranges
        As many of each.
    lower_bound
        The largest number of bytes that are in use at the same time: no plan needs less.
    buffer_sizes
        Bytes that each buffer of the arena needs.
    """

    allocations: tuple[Allocation, ...] = ()
    ranges: tuple[ArenaRange, ...] = ()
    lower_bound: int = 0
    buffer_sizes: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(self.buffer_sizes)

    @property
    def largest(self) -> tuple[Allocation, ...]:
        """The allocations, the largest first."""
        return tuple(sorted(self.allocations, key=lambda a: -a.nbytes))


@dataclass(frozen=True)
class MemoryUse:
    """The device memory of a replay, in bytes.

    Attributes
    ----------
    plan
        Of its intermediate results.
    arguments
        Arguments and shared variables.
    constants
        Constants and tables.
    outputs
        Results, which each call allocates.
    """

    plan: MemoryPlan = field(default_factory=MemoryPlan)
    arguments: int = 0
    constants: int = 0
    outputs: int = 0

    @property
    def peak(self) -> int:
        """Bytes in use at once."""
        return self.plan.nbytes + self.arguments + self.constants + self.outputs

    @property
    def lower_bound(self) -> int:
        """Bytes that any memory plan needs at once."""
        return self.plan.lower_bound + self.arguments + self.constants + self.outputs
