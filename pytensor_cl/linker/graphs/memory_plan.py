"""The memory plan of a captured graph: intermediate results whose lifetimes do not overlap share a range of the arena.

The order of the launches gives the lifetimes. The largest sum of sizes that are live at the same time is a lower bound.
Ranges are chosen for the largest arrays first, each in the smallest gap that holds it (Pisarchyk and Lee, 2020,
"Efficient Memory Management for Deep Neural Net Inference", greedy by size).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable

from pytensor_cl.linker.graphs.memory import Allocation, ArenaRange, MemoryPlan
from pytensor_cl.runtime.launch_capture import CapturedAllocation

__all__ = ["LifetimeRecorder", "lower_bound", "make_plan"]

GOOD_ENOUGH = 1.02
"""A plan of at most so many times the lower bound ends the search."""


class LifetimeRecorder:
    """Collects the lifetimes of allocations.

    Attributes
    ----------
    numbers
        Of the allocations, in the order of their first use.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._lifetimes: dict[int, list[int]] = {}
        self._descriptions: dict[int, tuple[str, tuple[int, ...] | None, str, int]] = {}
        self._time = 0

    def use(self, node: Apply, memories: Iterable[CapturedAllocation]) -> None:
        """Note what a launch of a node uses; the next call is about the next launch."""
        for memory in memories:
            if memory.number not in self._lifetimes:
                self.numbers.append(memory.number)
                self._lifetimes[memory.number] = [self._time, self._time]
                self._descriptions[memory.number] = f"workspace of {node.op}", None, "", memory.nbytes
            self._lifetimes[memory.number][1] = self._time
        self._time += 1

    def name(self, memory: CapturedAllocation, variable: Variable, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Note the variable that an allocation is, unless it has one already."""
        description = self._descriptions.get(memory.number)
        if description is not None and description[1] is None:
            name = variable.name or str(variable.owner.op)
            self._descriptions[memory.number] = name, shape, str(dtype), memory.nbytes

    def allocations(self) -> list[Allocation]:
        """Return the allocations, in the order of their first use."""
        return [Allocation(*self._descriptions[number], *self._lifetimes[number]) for number in self.numbers]


def lower_bound(allocations: Sequence[Allocation]) -> int:
    """Return the largest number of bytes that are live at the same time."""
    changes = sorted(change for a in allocations for change in ((a.first, 1, a.nbytes), (a.last + 1, 0, -a.nbytes)))
    live = largest = 0
    for _, _, nbytes in changes:
        live += nbytes
        largest = max(largest, live)
    return largest


_ORDERS: tuple[Callable[[Allocation], Any], ...] = (
    lambda a: (-a.nbytes, a.first),
    lambda a: (-a.nbytes * (a.last - a.first + 1), a.first),
    lambda a: (a.first - a.last, -a.nbytes),
    lambda a: (a.first, -a.nbytes),
)


def make_plan(allocations: Sequence[Allocation], alignment: int, limit: int) -> MemoryPlan:
    """Choose the ranges.

    Parameters
    ----------
    allocations
        In any order.
    alignment
        Bytes; ranges begin at multiples of it.
    limit
        Largest size of a buffer in bytes, a multiple of `alignment`.
    """
    bound = lower_bound(allocations)
    best: MemoryPlan | None = None
    for key in _ORDERS:
        order = sorted(range(len(allocations)), key=lambda k: key(allocations[k]))
        ranges = _assign(allocations, order, alignment, limit)
        plan = MemoryPlan(tuple(allocations), tuple(ranges), bound, _buffer_sizes(ranges, alignment, limit))
        best = plan if best is None or plan.nbytes < best.nbytes else best
        if best.nbytes <= GOOD_ENOUGH * bound:
            break
    assert best is not None
    return best


def _buffer_sizes(ranges: Sequence[ArenaRange], alignment: int, limit: int) -> tuple[int, ...]:
    ends = [0] * (max((r.number for r in ranges), default=-1) + 1)
    for r in ranges:
        ends[r.number] = max(ends[r.number], r.end)
    # One allocation may be larger than `limit`, by less than `alignment`: then it has a buffer of its own size.
    return tuple(max(end, min(_aligned(end, alignment), limit)) for end in ends)


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _assign(allocations: Sequence[Allocation], order: Sequence[int], alignment: int, limit: int) -> list[ArenaRange]:
    """Give each allocation, in this order, the smallest gap between those that are live at the same time."""
    first, last = (np.array([getattr(allocations[k], name) for k in order], np.int64) for name in ("first", "last"))
    numbers, offsets, ends = np.zeros((3, len(order)), np.int64)
    found: dict[int, ArenaRange] = {}
    for n, k in enumerate(order):
        nbytes = max(allocations[k].nbytes, 1)
        concurrent = np.flatnonzero((first[:n] <= last[n]) & (first[n] <= last[:n]))
        number = 0
        while True:
            placed = concurrent[numbers[concurrent] == number]
            offset = _smallest_gap(offsets[placed], ends[placed], nbytes)
            if offset + nbytes <= limit or not offset:
                break
            number += 1
        numbers[n], offsets[n], ends[n] = number, offset, _aligned(offset + nbytes, alignment)
        found[k] = ArenaRange(number, offset, nbytes)
    return [found[k] for k in range(len(allocations))]


def _smallest_gap(offsets: np.ndarray, ends: np.ndarray, nbytes: int) -> int:
    """Return the begin of the smallest gap of at least `nbytes` bytes between ranges, which are in any order."""
    order = offsets.argsort()
    begins = np.zeros(len(order) + 1, np.int64)  # of the gaps; the last entry is the end of the last range
    np.maximum.accumulate(ends[order], out=begins[1:])
    free = offsets[order] - begins[:-1]
    fits = np.flatnonzero(free >= nbytes)
    return int(begins[fits[free[fits].argmin()]] if fits.size else begins[-1])
