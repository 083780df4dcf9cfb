"""Decides for each node of a graph whether it runs on a device, on which, and why not otherwise."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor

from pytensor_cl.disjoint_sets import DisjointSets
from pytensor_cl.ops.base import GpuOp, context_of
from pytensor_cl.ops.random import MIN_ELEMENTS as MIN_DRAWN_ELEMENTS
from pytensor_cl.ops.registry import NoKernel, device_op
from pytensor_cl.ops.transfer import GpuFromHost, GpuToGpu, HostFromGpu
from pytensor_cl.ops.user_kernels.op import KernelOp
from pytensor_cl.runtime.fork import is_forked
from pytensor_cl.runtime.registry import get_context, is_unusable, unusable_reason
from pytensor_cl.scalar.user_kernel import has_user_function

SMALL = 16
"""Elements of a result. Smaller results of host values are computed on the host."""

MAX_TRANSFER_BOUND_NODES = 8
"""Nodes of a memory-bound region. Computing more of them on a device is worth the transfers."""

TRANSFERS = (GpuFromHost, HostFromGpu, GpuToGpu)
_SHAPES = (Shape_i, Shape)

SCALAR = "host arithmetic on values that no device has: shapes, indices, settings"
LINEAR_ALGEBRA = "pytensor.tensor.linalg.", "pytensor_cl.ops.linalg"
"""Modules of Ops that compute no settings."""
VIEWS = "only views: transferring the data would cost more than it saves"
UNPROFITABLE = "next to a node without a kernel: transferring the data would cost more than it saves"
SLICE = "slices a host value: only the slice is transferred"
FEW_DRAWS = "NumPy makes so few draws faster than a device"
FORCED = "opencl__placement=host"
FORKED = "the process was forked: the device is its parent's"
UNUSABLE = "the device failed its self-check ('python -m pytensor_cl doctor' shows why)"


@dataclass
class Decision:
    """Placement of the nodes of a graph, with the reasons for the host."""

    ops: dict[Apply, GpuOp] = field(default_factory=dict)  # nodes that run on a device, with their device Ops
    reasons: dict[Apply, str] = field(default_factory=dict)  # nodes that stay on the host, with the reasons
    unsupported: dict[Apply, NoKernel] = field(default_factory=dict)  # nodes that stay because there is no kernel
    # Inputs of the graph that are on a device: shared variables that a device node updates.
    resident: frozenset[Variable] = frozenset()

    def keep(self, node: Apply, reason: str) -> None:
        """Keep a node on the host."""
        self.ops.pop(node, None)
        self.reasons[node] = reason


def contexts_of_nodes(order: Iterable[Apply], fgraph: FunctionGraph, default: str) -> dict[Apply, str]:
    """Choose the context of each node: that of an input, else that of a client, else the default."""
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
    """Return the static number of elements; None if it is unknown."""
    shape = () if isinstance(variable.type, ScalarType) else getattr(variable.type, "shape", None)
    return None if shape is None or None in shape else prod(shape)


def _is_small_host_value(variable: Variable, decision: Decision) -> bool:
    """Return whether the host has or computes a value of few elements."""
    if isinstance(variable, Constant):
        return True
    owner = variable.owner
    if variable in decision.resident or (_elements(variable) or 0) > SMALL or _elements(variable) is None:
        return False
    return owner is None or (owner not in decision.ops and not isinstance(owner.op, HostFromGpu))


def _is_host_arithmetic(node: Apply, decision: Decision) -> bool:
    """Return whether a node computes small results from small host values: settings, shape vectors, indices."""
    sizes = [_elements(v) for v in node.outputs]
    is_small = all(n is not None and n <= SMALL for n in sizes)
    return is_small and all(_is_small_host_value(v, decision) for v in node.inputs)


def _is_never_arithmetic(node: Apply) -> bool:
    """Return whether a node computes no settings, however small its values are: a loop, or linear algebra."""
    core = getattr(node.op, "core_op", node.op)
    return isinstance(core, Scan) or type(core).__module__.startswith(LINEAR_ALGEBRA)


def _has_user_kernel(node: Apply) -> bool:
    """Return whether a node computes a kernel of the user's, which the host has not."""
    core = getattr(node.op, "core_op", node.op)
    return isinstance(core, KernelOp) or (isinstance(node.op, Elemwise) and has_user_function(node.op.scalar_op))


def _makes_few_draws(node: Apply) -> bool:
    """Return whether a node draws a number of random numbers that is statically small."""
    if not isinstance(node.op, RandomVariable) or config.opencl__random != "numpy":
        return False
    count = _elements(node.outputs[-1])
    return count is not None and count < MIN_DRAWN_ELEMENTS


def _keep_without_kernel(node: Apply, missing: NoKernel, decision: Decision) -> None:
    if _is_host_arithmetic(node, decision):
        decision.keep(node, SCALAR)
        return
    decision.keep(node, missing.reason)
    if not missing.is_free:
        decision.unsupported[node] = missing


def _slice_before_upload(order: list[Apply], fgraph: FunctionGraph, decision: Decision) -> None:
    """Keep slices on the host if a host value is used only in slices, so that only these are transferred."""
    for node in order:
        source = node.inputs[0].owner if isinstance(node.op, Subtensor) and node in decision.ops else None
        if source is None or source in decision.ops or isinstance(source.op, TRANSFERS):
            continue
        if all(isinstance(client.op, Subtensor) for client, _ in fgraph.clients[node.inputs[0]]):
            decision.keep(node, SLICE)


def _regions(decision: Decision) -> list[list[Apply]]:
    """Return the device nodes in groups: nodes that are connected by values are in one."""
    sets: DisjointSets[Apply] = DisjointSets()
    for node in decision.ops:
        for v in node.inputs:
            if v.owner in decision.ops:
                sets.join(node, v.owner)
    members: dict[Apply, list[Apply]] = {}
    for node in decision.ops:
        members.setdefault(sets.root(node), []).append(node)
    return list(members.values())


def _clients(node: Apply, fgraph: FunctionGraph) -> Iterable[Apply]:
    return (client for v in node.outputs for client, _ in fgraph.clients[v])


def _borders_transfer(region: list[Apply], fgraph: FunctionGraph) -> bool:
    """Return whether a transfer of the user's graph is next to a region."""
    sources = (v.owner for n in region for v in n.inputs if v.owner is not None)
    clients = (c for n in region for c in _clients(n, fgraph))
    return any(isinstance(n.op, TRANSFERS) for n in (*sources, *clients))


def _borders_unsupported(region: list[Apply], fgraph: FunctionGraph, decision: Decision) -> bool:
    """Return whether a node without a kernel is next to a region."""
    neighbours = {v.owner for n in region for v in n.inputs} | {c for n in region for c in _clients(n, fgraph)}
    return not neighbours.isdisjoint(decision.unsupported)


def _is_transfer_bound(region: list[Apply], decision: Decision) -> bool:
    """Return whether a region is memory-bound and small: the host computes it as fast as it transfers the data."""
    working = [decision.ops[n] for n in region if decision.ops[n].is_compute]
    return len(working) <= MAX_TRANSFER_BOUND_NODES and all(op.is_memory_bound for op in working)


def _keep_unprofitable(fgraph: FunctionGraph, decision: Decision) -> None:
    """Keep regions on the host that only make views, and transfer-bound ones next to nodes without a kernel."""
    for region in _regions(decision):
        if _borders_transfer(region, fgraph) or any(map(_has_user_kernel, region)):
            continue
        if not any(decision.ops[n].is_compute for n in region):
            reason = VIEWS
        elif _is_transfer_bound(region, decision) and _borders_unsupported(region, fgraph, decision):
            reason = UNPROFITABLE
        else:
            continue
        for node in region:
            decision.keep(node, reason)


def reason_of(node: Apply, context_name: str) -> str:
    """Return why a node of a compiled graph that replaced a placed one is on the host, and not in a context."""
    if isinstance(node.op, _SHAPES) or _is_host_arithmetic(node, Decision()):
        return SCALAR
    if is_forked():
        return FORKED
    if unusable_reason(context_name):
        return UNUSABLE
    found = device_op(node, context_name, get_context(context_name).info)
    if isinstance(found, NoKernel):
        return found.reason
    if _makes_few_draws(node):
        return FEW_DRAWS
    return UNPROFITABLE if found.is_compute else VIEWS


def _updated_on_device(fgraph: FunctionGraph, decision: Decision) -> frozenset[Variable]:
    updates = fgraph.update_mapping or {}
    return frozenset(fgraph.inputs[k] for i, k in updates.items() if fgraph.outputs[i].owner in decision.ops)


def _decide_once(fgraph: FunctionGraph, default: str, policy: str, resident: frozenset[Variable]) -> Decision:
    decision = Decision(resident=resident)
    order = fgraph.toposort()
    contexts = contexts_of_nodes(order, fgraph, default)
    order = [n for n in order if not isinstance(n.op, (*TRANSFERS, GpuOp))]
    if policy == "host":
        reason = FORKED if is_forked() else UNUSABLE if is_unusable(default) else FORCED
        for node in order:
            decision.keep(node, reason)
        return decision
    for node in order:
        name = contexts[node]
        found = device_op(node, name, get_context(name).info)
        is_forced = (policy == "device" and _is_never_arithmetic(node)) or _has_user_kernel(node)
        if isinstance(node.op, _SHAPES):
            decision.keep(node, SCALAR)
        elif isinstance(found, NoKernel):
            _keep_without_kernel(node, found, decision)
        elif policy == "auto" and _makes_few_draws(node):
            decision.keep(node, FEW_DRAWS)
        elif not found.is_source and not is_forced and _is_host_arithmetic(node, decision):
            decision.keep(node, SCALAR)
        else:
            decision.ops[node] = found
    if policy == "auto":
        _slice_before_upload(order, fgraph, decision)
        _keep_unprofitable(fgraph, decision)
    return decision


def decide(fgraph: FunctionGraph, default: str, policy: str) -> Decision:
    """Place the nodes of a graph of host Ops and of transfers.

    The policy is ``"auto"``, ``"device"`` (wherever there is a kernel) or ``"host"``. Nodes are in the context
    `default` if neither inputs nor clients name one.
    """
    decision = _decide_once(fgraph, default, policy, frozenset())
    # A shared variable that the device updates is read from the device, so more nodes may run there.
    while not (updated := _updated_on_device(fgraph, decision)) <= decision.resident:
        decision = _decide_once(fgraph, default, policy, decision.resident | updated)
    return decision
