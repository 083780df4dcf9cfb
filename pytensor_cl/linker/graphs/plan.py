"""Plan a captured graph: which memory each result of the traced call has in replays."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable

from pytensor_cl.linker.graphs.buffers import ArenaBinding, BufferBinding
from pytensor_cl.linker.graphs.donation import BufferDonation, find_donations
from pytensor_cl.linker.graphs.guards import HostValues
from pytensor_cl.linker.graphs.launch_groups import LaunchGroups, group_launches
from pytensor_cl.linker.graphs.memory import Allocation, MemoryPlan, make_plan
from pytensor_cl.linker.graphs.trace import Trace
from pytensor_cl.linker.types import StepProgram
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.names import short_name
from pytensor_cl.ops.transfer import GpuFromHost, HostFromGpu
from pytensor_cl.runtime.launch_capture import CapturedAllocation
from pytensor_cl.runtime.memory.host_mapping import is_worthwhile


@dataclass
class GraphPlan:
    """The memory of each allocation, and the host nodes that a replay runs."""

    live_host_nodes: set[Apply]
    assigned: dict[int, BufferBinding] = field(default_factory=dict)  # keys: numbers of allocations
    donations: dict[Variable, BufferDonation] = field(default_factory=dict)  # keys: new values
    donated: dict[Variable, BufferDonation] = field(default_factory=dict)  # keys: old values
    outputs: list[tuple[BufferBinding, int]] = field(default_factory=list)  # allocated by each call; sizes in bytes
    exported: set[int] = field(default_factory=set)  # numbers of allocations whose memory becomes the host's
    arena: list[ArenaBinding] = field(default_factory=list)
    memory: MemoryPlan = field(default_factory=MemoryPlan)
    groups: LaunchGroups = field(default_factory=LaunchGroups)

    def unassigned(self, memories: Iterable[Any]) -> list[CapturedAllocation]:
        """Return the allocations that have no memory yet."""
        return [m for m in memories if isinstance(m, CapturedAllocation) and m.number not in self.assigned]

    def allocate_per_call(self, memory: Any) -> None:
        """Let each call allocate memory, unless it has been planned already or is no allocation."""
        for allocation in self.unassigned([memory]):
            binding = self.assigned[allocation.number] = BufferBinding()
            self.outputs.append((binding, allocation.nbytes))


def plan_graph(program: StepProgram, values: HostValues, trace: Trace) -> GraphPlan:
    """Plan a traced call: donations, results, the order of the launches, and memory of intermediate results."""
    plan = GraphPlan(_live_host_nodes(program, values))
    if not program.checks_at_end:  # errors that are found at the end must change nothing
        _plan_donations(plan, program, values, trace)
    _plan_results(plan, program, trace)
    plan.groups = group_launches(program, trace, plan)
    _plan_arena(plan, program, trace)
    return plan


def _live_host_nodes(program: StepProgram, values: HostValues) -> set[Apply]:
    """Return the host nodes whose results a replay reads."""
    read = {v for v, cell in program.storage.items() if any(cell is c for c in program.results)}
    read |= values.guarded
    live: set[Apply] = set()
    for node in reversed(program.nodes):
        if isinstance(node.op, GpuOp):
            read.update(node.inputs[k] for k in values.changing_scalars(node, program.routines.get(node)))
        elif isinstance(node.op, GpuFromHost):
            read.add(node.inputs[0])
        elif not all(map(values.is_known, node.outputs)):
            live.add(node)
            read.update(node.inputs)
        elif not read.isdisjoint(node.outputs):
            live.add(node)
    return live.difference(values.prologue)


def _plan_donations(plan: GraphPlan, program: StepProgram, values: HostValues, trace: Trace) -> None:
    """Let updates use the memory of the old values."""
    kept = program.device_results()
    variables = {id(cell): v for cell, v in kept}
    results = {id(cell) for cell in program.results}
    # An old value that is returned must still be there when the call ends.
    replaced = {v: k for v, k in program.updates.items() if id(program.storage[v]) not in results}
    updates = {v: variables[id(c)] for v, k in replaced.items() if id(c := program.results[k]) in variables}
    fallible = (at for at, node in enumerate(program.nodes) if _is_fallible(node, plan, values))
    for old, new in find_donations(trace, program.nodes, updates, [v for _, v in kept], max(fallible, default=-1)):
        holders = 1 if old.owner is None else 2  # the shared variable, and the cell of its device array
        location = trace.locations[new]
        donation = BufferDonation(trace.context, location, program.storage[new], holders)
        plan.donations[new] = plan.donated[old] = donation
        plan.assigned[location.memory.number] = donation.binding


def _is_fallible(node: Apply, plan: GraphPlan, values: HostValues) -> bool:
    """Return whether a step of a node may raise in a replay."""
    if isinstance(node.op, GpuFromHost):
        return not isinstance(node.inputs[0], Constant)
    if isinstance(node.op, HostFromGpu):
        return node.outputs[0] in values.guarded
    return node in plan.live_host_nodes or not values.guarded.isdisjoint(node.outputs)


def _plan_results(plan: GraphPlan, program: StepProgram, trace: Trace) -> None:
    """Allocate results in each call; also large downloads, whose memory becomes the host's, if nothing else reads it.

    A download is exported only if that costs less than a copy.
    """
    results = [trace.locations[v].memory for _, v in program.device_results()]
    downloads = [n for n in program.nodes if isinstance(n.op, HostFromGpu)]
    users = Counter([*(trace.locations[n.inputs[0]].memory for n in downloads), *results])
    for memory in results:
        plan.allocate_per_call(memory)
    for node in downloads:
        memory, dtype, layout = trace.locations[node.inputs[0]]
        is_exclusive = node in program.exclusive_downloads and users[memory] == 1
        is_large = isinstance(memory, CapturedAllocation) and is_worthwhile(layout, dtype, memory.nbytes)
        if is_exclusive and is_large and trace.context.mappings.are_supported():
            plan.allocate_per_call(memory)
            plan.exported.add(memory.number)


def _plan_arena(plan: GraphPlan, program: StepProgram, trace: Trace) -> None:
    """Give intermediate results their ranges of the arena."""
    allocations = _allocations(plan, program, trace)
    arena = trace.context.memory.arena
    plan.memory = make_plan(list(allocations.values()), arena.alignment, arena.limit)
    plan.arena = [ArenaBinding(arena_range) for arena_range in plan.memory.ranges]
    plan.assigned.update(zip(allocations, plan.arena, strict=True))


def _allocations(plan: GraphPlan, program: StepProgram, trace: Trace) -> dict[int, Allocation]:
    """Return the allocations without memory by their numbers, in the order of their first use."""
    labels: dict[int, tuple[str, tuple[int, ...] | None, str, int]] = {}
    lifetimes: dict[int, tuple[int, int]] = {}
    for time, node, memories in _uses(program, trace, plan.groups):
        for memory in plan.unassigned(memories):
            labels.setdefault(memory.number, (f"workspace of {short_name(node.op)}", None, "", memory.nbytes))
            first, last = lifetimes.get(memory.number, (time, time))
            lifetimes[memory.number] = min(first, time), max(last, time)
    for variable, (memory, dtype, layout) in trace.locations.items():
        for allocation in plan.unassigned([memory]):
            label = labels.get(allocation.number)
            if label is not None and label[1] is None:
                name = variable.name or short_name(variable.owner.op)
                labels[allocation.number] = name, layout.shape, str(dtype), allocation.nbytes
    return {number: Allocation(*labels[number], *lifetimes[number]) for number in lifetimes}


def _uses(program: StepProgram, trace: Trace, groups: LaunchGroups) -> Iterable[tuple[int, Apply, Iterable[Any]]]:
    """Yield what each launch and each download reads or writes, and when."""
    times = iter(groups.times)
    for node, launches in zip(program.nodes, trace.launches, strict=True):
        for launch in launches:
            yield next(times), node, launch.arguments
        if isinstance(node.op, HostFromGpu):
            yield groups.download_times[node], node, [trace.locations[node.inputs[0]].memory]
