"""Decide, for each node of a graph, whether it runs on a device, on which, and why not if not."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.random import FEWEST as FEWEST_DRAWS
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from pytensor_cl.rewriting.placement.registry import NoKernel, device_op
from pytensor_cl.runtime.registry import get_context, is_forked, is_unusable, why_unusable

__all__ = ["Decision", "decide", "reason_of"]

SMALL = 16
"""Elements: results that are statically this small, of host inputs, are not worth a transfer."""

FEW = 8
"""Nodes: longer chains of elementwise work repay the transfers."""

TRANSFERS = (GpuFromHost, HostFromGpu, GpuToGpu)
_SHAPES = (Shape_i, Shape)

SCALAR = "host arithmetic on values that no device has: shapes, indices, settings"
VIEWS = "only views on the way: moving the data would cost more than it saves"
CONE = "next to a node without a kernel: moving the data there and back would cost more than it saves"
SLICE = "cuts a value of the host: only the slice is moved"
FEW_DRAWS = "NumPy makes so few draws faster than a device"
FORCED = "opencl__placement=host"
FORKED = "the process was forked: the device is its parent's"
UNUSABLE = "the device failed its self-check ('python -m pytensor_cl doctor' shows why)"


@dataclass
class Decision:
    """Where the nodes of a graph go.

    Attributes
    ----------
    ops
        Device Op of each node that runs on a device.
    reasons
        Why a node stays on the host.
    unsupported
        Nodes that stay for want of a kernel.
    resident
        Inputs of the graph that live on a device: shared variables that a device node updates.
    """

    ops: dict[Apply, GpuOp] = field(default_factory=dict)
    reasons: dict[Apply, str] = field(default_factory=dict)
    unsupported: dict[Apply, NoKernel] = field(default_factory=dict)
    resident: frozenset[Variable] = frozenset()

    def keep(self, node: Apply, reason: str) -> None:
        """Keep a node on the host."""
        self.ops.pop(node, None)
        self.reasons[node] = reason


def contexts_of_nodes(order: Iterable[Apply], fgraph: FunctionGraph, default: str) -> dict[Apply, str]:
    """Choose the context of each node: where an input lives, else where the result is wanted, else the default."""
    order = list(order)
    chosen: dict[Apply, str] = {}

    def of_input(variable: Variable) -> str | None:
        owner = variable.owner
        if owner is None:
            return context_of(variable)
        if isinstance(owner.op, HostFromGpu):
            return context_of(owner.inputs[0])
        return chosen.get(owner)

    def of_client(client: Apply) -> str | None:
        return client.op.context_name if isinstance(client.op, GpuFromHost) else chosen.get(client)

    for node in order:
        found = next(filter(None, map(of_input, node.inputs)), None)
        if found is not None and not isinstance(node.op, TRANSFERS):
            chosen[node] = found
    for node in reversed(order):
        if node not in chosen:
            clients = (c for v in node.outputs for c, _ in fgraph.clients[v])
            found = next(filter(None, map(of_client, clients)), None)
            if found is not None:
                chosen[node] = found
    return {node: chosen.get(node, default) for node in order}


def _elements(variable: Variable) -> int | None:
    shape = () if isinstance(variable.type, ScalarType) else getattr(variable.type, "shape", None)
    return None if shape is None or None in shape else prod(shape)


def _is_small(node: Apply) -> bool:
    sizes = [_elements(v) for v in node.outputs]
    return all(n is not None and n <= SMALL for n in sizes)


def _of_the_host(variable: Variable, decision: Decision) -> bool:
    """Whether a value is a small one that the host computes, from nothing that a device has."""
    if isinstance(variable, Constant):
        return True
    owner = variable.owner
    if variable in decision.resident or (_elements(variable) or 0) > SMALL or _elements(variable) is None:
        return False
    return owner is None or (owner not in decision.ops and not isinstance(owner.op, HostFromGpu))


def _is_host_arithmetic(node: Apply, decision: Decision) -> bool:
    """Whether a node makes a small result of host values: 0-d settings, shape vectors, indices."""
    return _is_small(node) and all(_of_the_host(v, decision) for v in node.inputs)


def _makes_few_draws(node: Apply) -> bool:
    """Whether a node makes random numbers that are statically few."""
    count = _elements(node.outputs[-1]) if isinstance(node.op, RandomVariable) else None
    return count is not None and count < FEWEST_DRAWS


def _keep_without_kernel(node: Apply, missing: NoKernel, decision: Decision) -> None:
    if _is_host_arithmetic(node, decision):
        decision.keep(node, SCALAR)
        return
    decision.keep(node, missing.reason)
    if not missing.is_free:
        decision.unsupported[node] = missing


def _slice_before_upload(order: list[Apply], fgraph: FunctionGraph, decision: Decision) -> None:
    """A value of the host of which only slices are used: the host cuts them, so that no more than they are moved."""
    for node in order:
        source = node.inputs[0].owner if isinstance(node.op, Subtensor) and node in decision.ops else None
        if source is None or source in decision.ops or isinstance(source.op, TRANSFERS):
            continue
        if all(isinstance(client.op, Subtensor) for client, _ in fgraph.clients[node.inputs[0]]):
            decision.keep(node, SLICE)


class _Regions:
    """Device nodes joined by values that pass between them (union-find)."""

    def __init__(self, decision: Decision) -> None:
        self._parent = {node: node for node in decision.ops}
        for node in decision.ops:
            for v in node.inputs:
                if v.owner in self._parent:
                    self._parent[self._root(v.owner)] = self._root(node)

    def _root(self, node: Apply) -> Apply:
        while self._parent[node] is not node:
            self._parent[node] = node = self._parent[self._parent[node]]
        return node

    def groups(self) -> list[list[Apply]]:
        members: dict[Apply, list[Apply]] = {}
        for node in self._parent:
            members.setdefault(self._root(node), []).append(node)
        return list(members.values())


def _clients(node: Apply, fgraph: FunctionGraph) -> Iterable[Apply]:
    return (client for v in node.outputs for client, _ in fgraph.clients[v])


def _touches_device(region: list[Apply], fgraph: FunctionGraph) -> bool:
    """Whether the user's own transfers say that data is, or shall be, on a device."""
    sources = (v.owner for n in region for v in n.inputs if v.owner is not None)
    clients = (c for n in region for c in _clients(n, fgraph))
    return any(isinstance(n.op, TRANSFERS) for n in (*sources, *clients))


def _borders_unsupported(region: list[Apply], fgraph: FunctionGraph, decision: Decision) -> bool:
    neighbours = {v.owner for n in region for v in n.inputs} | {c for n in region for c in _clients(n, fgraph)}
    return not neighbours.isdisjoint(decision.unsupported)


def _is_light(region: list[Apply], decision: Decision) -> bool:
    """Whether a region only streams through its data, a few times: a host does that as fast as a transfer."""
    working = [decision.ops[n] for n in region if decision.ops[n].is_compute]
    return len(working) <= FEW and all(op.is_memory_bound for op in working)


def _keep_unprofitable(fgraph: FunctionGraph, decision: Decision) -> None:
    """Regions that only make views stay; so do elementwise ones squeezed between the host's own nodes."""
    for region in _Regions(decision).groups():
        if _touches_device(region, fgraph):
            continue
        if not any(decision.ops[n].is_compute for n in region):
            reason = VIEWS
        elif _is_light(region, decision) and _borders_unsupported(region, fgraph, decision):
            reason = CONE
        else:
            continue
        for node in region:
            decision.keep(node, reason)


def reason_of(node: Apply, context_name: str) -> str:
    """Say why a node of a finished graph is on the host, if the node that was placed has been replaced since.

    Parameters
    ----------
    node
        A host node.
    context_name
        Where it would have run.
    """
    if isinstance(node.op, _SHAPES) or _is_host_arithmetic(node, Decision()):
        return SCALAR
    if is_forked():
        return FORKED
    if why_unusable(context_name):
        return UNUSABLE
    found = device_op(node, context_name, get_context(context_name).info)
    if isinstance(found, NoKernel):
        return found.reason
    if _makes_few_draws(node):
        return FEW_DRAWS
    return CONE if found.is_compute else VIEWS


def _updated_on_device(fgraph: FunctionGraph, decision: Decision) -> frozenset[Variable]:
    updates = fgraph.update_mapping or {}
    return frozenset(fgraph.inputs[k] for i, k in updates.items() if fgraph.outputs[i].owner in decision.ops)


def _decide_once(fgraph: FunctionGraph, default: str, policy: str, resident: frozenset[Variable]) -> Decision:
    decision = Decision(resident=resident)
    order = fgraph.toposort()
    ours = (*TRANSFERS, GpuOp)
    contexts = contexts_of_nodes(order, fgraph, default)
    order = [n for n in order if not isinstance(n.op, ours)]
    if policy == "host":
        reason = FORKED if is_forked() else UNUSABLE if is_unusable(default) else FORCED
        for node in order:
            decision.keep(node, reason)
        return decision
    for node in order:
        name = contexts[node]
        found = device_op(node, name, get_context(name).info)
        if isinstance(node.op, _SHAPES):
            decision.keep(node, SCALAR)
        elif isinstance(found, NoKernel):
            _keep_without_kernel(node, found, decision)
        elif policy == "auto" and _makes_few_draws(node):
            decision.keep(node, FEW_DRAWS)
        elif not found.is_source and _is_host_arithmetic(node, decision):
            decision.keep(node, SCALAR)
        else:
            decision.ops[node] = found
    if policy == "auto":
        _slice_before_upload(order, fgraph, decision)
        _keep_unprofitable(fgraph, decision)
    return decision


def decide(fgraph: FunctionGraph, default: str, policy: str) -> Decision:
    """Place the nodes of a graph.

    Parameters
    ----------
    fgraph
        A graph of host Ops, and of the user's transfers.
    default
        Context of nodes that no input or client draws elsewhere.
    policy
        ``"auto"``, ``"device"`` (wherever there is a kernel) or ``"host"``.
    """
    decision = _decide_once(fgraph, default, policy, frozenset())
    # A shared variable that the device updates is read from there, which may draw more nodes to the device.
    while not (updated := _updated_on_device(fgraph, decision)) <= decision.resident:
        decision = _decide_once(fgraph, default, policy, decision.resident | updated)
    return decision
