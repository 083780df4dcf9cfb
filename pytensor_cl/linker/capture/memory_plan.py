"""Where intermediate results of a recorded call lie: several share the same bytes, one after the other.

The order of the launches tells from when to when each is alive. What is alive at once must lie side by side, so the
largest sum of what is alive is a lower bound. Offsets are chosen for the largest arrays first, each in the smallest gap
that holds it (Pisarchyk and Lee, 2020, "Efficient Memory Management for Deep Neural Net Inference").
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.runtime.launch_capture import CapturedAllocation

__all__ = ["Allocation", "ArenaRange", "LifetimeRecorder", "Plan", "lower_bound", "make_plan"]

GOOD = 1.02
"""Times the lower bound: other orders are tried until the plan is as small."""


@dataclass(frozen=True)
class Allocation:
    """An intermediate result, or what a kernel needs besides.

    Attributes
    ----------
    what
        The node that computes it; a node's workspace has no shape.
    shape, dtype
        Of the array.
    nbytes
        How large it is.
    first, last
        Times of its first and last use.
    """

    what: str
    shape: tuple[int, ...] | None
    dtype: str
    nbytes: int
    first: int
    last: int


class ArenaRange(NamedTuple):
    """Bytes of an arena.

    Attributes
    ----------
    number
        Of the buffer: there is more than one only if a device allocates no larger ones.
    offset, nbytes
        Where, and how many.
    """

    number: int
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """Past the last byte."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class Plan:
    """Which bytes each tenant has.

    Attributes
    ----------
    tenants, regions
        As many of each.
    bound
        Bytes that are alive at once: no plan needs less.
    extents
        Bytes of each buffer.
    """

    tenants: tuple[Allocation, ...] = ()
    regions: tuple[ArenaRange, ...] = ()
    bound: int = 0
    extents: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(self.extents)

    @property
    def largest(self) -> tuple[Allocation, ...]:
        """The tenants, the largest first."""
        return tuple(sorted(self.tenants, key=lambda t: -t.nbytes))


class LifetimeRecorder:
    """Collects from when to when allocations are used.

    Attributes
    ----------
    numbers
        Of the allocations, in the order of their first use.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._used: dict[int, list[int]] = {}
        self._told: dict[int, tuple[str, tuple[int, ...] | None, str, int]] = {}
        self._time = 0

    def use(self, node: Apply, memories: Iterable[CapturedAllocation]) -> None:
        """Note what a node uses at once; then time goes on."""
        for memory in memories:
            if memory.number not in self._used:
                self.numbers.append(memory.number)
                self._used[memory.number] = [self._time, self._time]
                self._told[memory.number] = f"workspace of {node.op}", None, "", memory.nbytes
            self._used[memory.number][1] = self._time
        self._time += 1

    def name(self, memory: CapturedAllocation, variable: Variable, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Note what an allocation is, the first time that it is told."""
        told = self._told.get(memory.number)
        if told is not None and told[1] is None:
            self._told[memory.number] = variable.name or str(variable.owner.op), shape, str(dtype), memory.nbytes

    def tenants(self) -> list[Allocation]:
        """Return what was collected."""
        return [Allocation(*self._told[number], *self._used[number]) for number in self.numbers]


def lower_bound(tenants: Sequence[Allocation]) -> int:
    """Return the largest sum of bytes that are alive at the same time."""
    changes = sorted(change for t in tenants for change in ((t.first, 1, t.nbytes), (t.last + 1, 0, -t.nbytes)))
    alive = largest = 0
    for _, _, nbytes in changes:
        alive += nbytes
        largest = max(largest, alive)
    return largest


_ORDERS: tuple[Callable[[Allocation], Any], ...] = (
    lambda t: (-t.nbytes, t.first),
    lambda t: (-t.nbytes * (t.last - t.first + 1), t.first),
    lambda t: (t.first - t.last, -t.nbytes),
    lambda t: (t.first, -t.nbytes),
)


def make_plan(tenants: Sequence[Allocation], alignment: int, limit: int) -> Plan:
    """Choose the regions.

    Parameters
    ----------
    tenants
        In any order.
    alignment
        Bytes at whose multiples regions begin.
    limit
        Bytes that a buffer can have at most, a multiple of `alignment`.
    """
    bound = lower_bound(tenants)
    best: Plan | None = None
    for key in _ORDERS:
        regions = _assign(tenants, sorted(range(len(tenants)), key=lambda k: key(tenants[k])), alignment, limit)
        plan = Plan(tuple(tenants), tuple(regions), bound, _extents(regions, alignment, limit))
        best = plan if best is None or plan.nbytes < best.nbytes else best
        if best.nbytes <= GOOD * bound:
            break
    assert best is not None
    return best


def _extents(regions: Sequence[ArenaRange], alignment: int, limit: int) -> tuple[int, ...]:
    ends = [0] * (max((r.number for r in regions), default=-1) + 1)
    for region in regions:
        ends[region.number] = max(ends[region.number], region.end)
    # One allocation may be larger than `limit`, by less than `alignment`: then it has a buffer of its own size.
    return tuple(max(end, min(_aligned(end, alignment), limit)) for end in ends)


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _assign(tenants: Sequence[Allocation], order: Sequence[int], alignment: int, limit: int) -> list[ArenaRange]:
    """Give each tenant, in this order, the smallest gap between those that are alive at the same time."""
    first, last = (np.array([getattr(tenants[k], name) for k in order], np.int64) for name in ("first", "last"))
    numbers, offsets, ends = np.zeros((3, len(order)), np.int64)
    found: dict[int, ArenaRange] = {}
    for n, k in enumerate(order):
        nbytes = max(tenants[k].nbytes, 1)
        beside = np.flatnonzero((first[:n] <= last[n]) & (first[n] <= last[:n]))
        number = 0
        while True:
            taken = beside[numbers[beside] == number]
            offset = _gap(offsets[taken], ends[taken], nbytes)
            if offset + nbytes <= limit or not offset:
                break
            number += 1
        numbers[n], offsets[n], ends[n] = number, offset, _aligned(offset + nbytes, alignment)
        found[k] = ArenaRange(number, offset, nbytes)
    return [found[k] for k in range(len(tenants))]


def _gap(offsets: np.ndarray, ends: np.ndarray, nbytes: int) -> int:
    """Return where the smallest gap begins that holds so many bytes, between regions in any order."""
    order = offsets.argsort()
    begins = np.zeros(len(order) + 1, np.int64)  # of gaps; of what is free after the last region, at the end
    np.maximum.accumulate(ends[order], out=begins[1:])
    free = offsets[order] - begins[:-1]
    fits = np.flatnonzero(free >= nbytes)
    return int(begins[fits[free[fits].argmin()]] if fits.size else begins[-1])
