"""Choose the launches of a captured graph that run together: small ones that do not depend on each other.

A launch costs a GPU's driver about 5 us, whatever it does, which is more than a small kernel takes. The groups are in
the order in which they run. A small launch joins the first group with room after the launches that it depends on;
others stay in their order, so that large intermediate results live no longer than before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply

from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.linker.graphs.trace import Trace
from pytensor_cl.linker.types import StepProgram
from pytensor_cl.ops.transfer import HostFromGpu
from pytensor_cl.runtime.launch_capture import CapturedAllocation, Launch
from pytensor_cl.runtime.merged_kernels import MOST_PARTS, Part

__all__ = ["LaunchGroups", "group_launches", "is_long"]

SMALL_GROUPS_PER_UNIT = 4
"""Work-groups per compute unit of a small launch, at most: they run at the same time, and end after a few us."""
_EXTERNAL = "external"  # memory of arguments and shared variables, of which two may be the same


@dataclass
class LaunchGroups:
    """The order in which launches run; `order` has indices that count the launches of all nodes."""

    order: list[list[int]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # when each launch runs; those of a group run at the same time
    download_times: dict[Apply, int] = field(default_factory=dict)

    def part(self, begin: int, end: int) -> list[list[int]]:
        """Return the groups of the launches of a range, with indices from its begin on."""
        return [[k - begin for k in group] for group in self.order if begin <= group[0] < end]


class _Grouping:
    """Collects the groups of a graph."""

    def __init__(self, trace: Trace, assigned: dict[int, BufferBinding], donated: dict[Any, Any]) -> None:
        self.groups = LaunchGroups()
        self._trace, self._assigned, self._donated = trace, assigned, donated
        context = trace.context
        self._launcher = context.launcher if context.batch_launcher is None and context.launcher.merges else None
        self._small = SMALL_GROUPS_PER_UNIT * context.info.compute_units
        self._room = context.info.max_parameter_size
        self._written: dict[Any, int] = {}  # number of the last group that writes memory
        self._read: dict[Any, int] = {}
        self._open: dict[int, tuple[Any, int, int]] = {}  # by number of the group: work-group, bytes and parts left

    def divide(self) -> None:
        """Let no later launch join the groups so far."""
        self._open.clear()

    def add(self, launch: Launch) -> None:
        """Add the next launch."""
        order = self.groups.order
        number = len(order)
        if self._launcher is not None:
            used = list(self._uses(launch))
            after = max((self._last(key, writes) for key, writes in used), default=-1)
            part = self._launcher.part_of(launch)
            if part is not None and prod(part.groups) <= self._small and part.nbytes <= self._room:
                number = self._place(part, after)
            for key, writes in used:
                last = self._written if writes else self._read
                last[key] = max(last.get(key, -1), number)
        if number == len(order):
            order.append([])
        order[number].append(len(self.groups.times))
        self.groups.times.append(2 * number + 1)

    def _place(self, part: Part, after: int) -> int:
        """Return the number of the group for a part: the first one with room, or a new one."""
        fits = (n for n, (size, room, parts) in self._open.items()
                if n > after and size == part.local_size and part.nbytes <= room and parts)  # fmt: skip
        number = next(fits, len(self.groups.order))
        _, room, parts = self._open.get(number, (None, self._room, MOST_PARTS))
        self._open[number] = part.local_size, room - part.nbytes, parts - 1
        return number

    def _last(self, key: Any, writes: bool) -> int:
        """Return the number of the last group that must have run before one that uses memory."""
        written = self._written.get(key, -1)
        return max(written, self._read.get(key, -1)) if writes else written

    def _uses(self, launch: Launch) -> Iterator[tuple[Any, bool]]:
        """Yield what a launch uses, and whether it writes there."""
        assert self._launcher is not None
        for mode, memory in zip(self._launcher.access_modes(launch), launch.arguments, strict=True):
            if memory is None or isinstance(memory, bytes | np.generic):
                continue
            if isinstance(memory, CapturedAllocation):
                yield self._assigned.get(memory.number, memory.number), mode != "r"
                continue
            owner = self._trace.owner_of(memory)
            yield _EXTERNAL if owner is not None else memory.int_ptr, mode != "r"
            if owner in self._donated:  # an update may be written there
                yield self._donated[owner], mode != "r"


def is_long(node: Apply) -> bool:
    """Return whether the device should compute during a step of the host: one that returns arrays."""
    return any(getattr(v.type, "ndim", 1) for v in node.outputs)


def group_launches(program: StepProgram, trace: Trace, plan: Any) -> LaunchGroups:
    """Return the groups of a graph, with a launch each where the context does not merge kernels.

    `plan`: the `GraphPlan`, with its donations and results.
    """
    donated = {trace.owner_of(trace.locations[v].memory): donation.binding for v, donation in plan.donated.items()}
    grouping = _Grouping(trace, plan.assigned, donated)
    for node, launches in zip(program.nodes, trace.launches, strict=True):
        for launch in launches:
            grouping.add(launch)
        if isinstance(node.op, HostFromGpu):
            grouping.groups.download_times[node] = 2 * len(grouping.groups.order)
        # The builder submits the pending launches before these nodes.
        if isinstance(node.op, HostFromGpu) or (node in plan.live_host_nodes and is_long(node)):
            grouping.divide()
    return grouping.groups
