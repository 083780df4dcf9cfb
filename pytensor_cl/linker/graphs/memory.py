"""Device memory of a captured graph: its plan, in which results whose lifetimes do not overlap share arena ranges.

The order of the launches gives the lifetimes. The largest sum of sizes that are live at the same time is a lower bound.
Ranges are chosen for the largest arrays first, each in the smallest gap that holds it (Pisarchyk and Lee, 2020,
"Efficient Memory Management for Deep Neural Net Inference", greedy by size).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.integers import round_up

GOOD_ENOUGH = 1.02
"""Ratio of a plan to the lower bound at which the search ends."""


@dataclass(frozen=True)
class Allocation:
    """An intermediate result, or the workspace of a node."""

    name: str  # name of the variable, or of the node that uses the workspace
    # shape, dtype: Shape and dtype of the array. A workspace has no shape.
    shape: tuple[int, ...] | None
    dtype: str
    nbytes: int  # size in bytes
    # first, last: indices of the launches that use it first and last
    first: int
    last: int


class ArenaRange(NamedTuple):
    """A range of bytes of one of the arena's buffers; there are several if the device allocates no larger ones."""

    number: int
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class MemoryPlan:
    """The arena range of each allocation."""

    allocations: tuple[Allocation, ...] = ()
    ranges: tuple[ArenaRange, ...] = ()
    lower_bound: int = 0  # the largest number of bytes in use at the same time: no plan needs less
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
    """The device memory of a replay, in bytes."""

    plan: MemoryPlan = field(default_factory=MemoryPlan)
    arguments: int = 0  # arguments and shared variables
    constants: int = 0  # constants and tables
    outputs: int = 0  # outputs, which each call allocates

    @property
    def peak(self) -> int:
        """Bytes in use at once."""
        return self.plan.nbytes + self.arguments + self.constants + self.outputs

    @property
    def lower_bound(self) -> int:
        """Bytes that any memory plan needs at once."""
        return self.plan.lower_bound + self.arguments + self.constants + self.outputs


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
    """Choose ranges that begin at multiples of `alignment` bytes, in buffers of at most `limit` bytes."""
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
    return tuple(max(end, min(round_up(end, alignment), limit)) for end in ends)


def _assign(allocations: Sequence[Allocation], order: Sequence[int], alignment: int, limit: int) -> list[ArenaRange]:
    """Give each allocation, in this order, the smallest gap between those that are live at the same time."""
    first, last = (np.array([getattr(allocations[k], name) for k in order], np.int64) for name in ("first", "last"))
    numbers, offsets, ends = np.zeros((3, len(order)), np.int64)
    ranges: dict[int, ArenaRange] = {}
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
        numbers[n], offsets[n], ends[n] = number, offset, round_up(offset + nbytes, alignment)
        ranges[k] = ArenaRange(number, offset, nbytes)
    return [ranges[k] for k in range(len(allocations))]


def _smallest_gap(offsets: np.ndarray, ends: np.ndarray, nbytes: int) -> int:
    """Return the begin of the smallest gap of at least `nbytes` bytes between ranges, which are in any order."""
    order = offsets.argsort()
    begins = np.zeros(len(order) + 1, np.int64)  # begins of the gaps; the last entry is the end of the last range
    np.maximum.accumulate(ends[order], out=begins[1:])
    free = offsets[order] - begins[:-1]
    fits = np.flatnonzero(free >= nbytes)
    return int(begins[fits[free[fits].argmin()]] if fits.size else begins[-1])
