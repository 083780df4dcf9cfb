"""Elementwise nodes that reductions along different axes read -> a copy for each: rather computed twice than stored."""

from collections.abc import Iterable

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.reduction import GpuCAReduce
from pytensor_cl.ops.rowwise import FULL
from pytensor_cl.rewriting.fusion.rowwise.domain import FusionDomain, reduction_domain
from pytensor_cl.rewriting.fusion.rowwise.function import cost_of

__all__ = ["duplicate_producers", "fusion_roots", "select_outputs"]

MOST_COST = 40
"""Additions for each element above which storing a value is no slower than computing it twice."""

MOST_READ = 2
"""Arrays from which a value may be computed again: storing and reading it is as much."""


def fusion_roots(order: Iterable[Apply]) -> list[tuple[Apply, FusionDomain]]:
    """Return the reductions with their rows, those of the rows that most of them share first."""
    seeds = [(node, domain) for node in order if (domain := reduction_domain(node)) is not None]
    shared = {domain: sum(other == domain for _, other in seeds) for _, domain in seeds}
    return sorted(seeds, key=lambda seed: -shared[seed[1]])


def _cone(variable: Variable, domain: FusionDomain) -> dict[Apply, None]:
    """Return the elementwise nodes of full values that a variable is computed by; none, if it is better stored."""
    found: dict[Apply, None] = {}
    read: set[Variable] = set()
    cost, pending = 0, [variable]
    while pending:
        current = pending.pop()
        node = current.owner
        if node is None or not domain.is_full(node):
            read.update((current,) if domain.made(current) == FULL else ())
        elif node not in found:
            found[node] = None
            cost += cost_of(node.op.host.scalar_op)
            pending.extend(node.inputs)
        if cost > MOST_COST or len(read) > MOST_READ:
            return {}
    return found


def _reached(nodes: Iterable[Apply], fgraph: FunctionGraph) -> set[FusionDomain]:
    """Return the rows of the reductions that nodes lead to by way of elementwise nodes."""
    reached: set[FusionDomain] = set()
    seen: set[Apply] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        for client in {c for v in node.outputs for c, _ in fgraph.clients[v]} - seen:
            seen.add(client)
            if (domain := reduction_domain(client)) is not None:
                reached.add(domain)
            elif isinstance(client.op, GpuElemwise):
                pending.append(client)
    return reached


def select_outputs(node: Apply, needed: list[int], inputs: list[Variable]) -> dict[int, Variable]:
    """Return, by their numbers, those outputs of an elementwise node that are needed, computed by a new node.

    They have the Types of the node's own: the inputs that are left may say less about the shape than all of them, and
    values of the host say nothing about the number of dimensions.
    """
    scalar_op = node.op.host.scalar_op
    if not isinstance(scalar_op, ps.Composite):
        return dict(enumerate(node.op.apply(inputs, [v.type for v in node.outputs]).outputs))
    graph = scalar_op.fgraph
    outputs = [graph.outputs[i] for i in needed]
    read = set(explicit_graph_inputs(outputs))
    used = [i for i, v in enumerate(graph.inputs) if v in read]
    op = ps.Composite([graph.inputs[i] for i in used], outputs)
    types = [node.outputs[i].type for i in needed]
    made = GpuElemwise(Elemwise(op), node.op.context_name).apply([inputs[i] for i in used], types)
    return dict(zip(needed, made.outputs, strict=True))


def _copy(
    variable: Variable, cone: dict[Apply, None], order: dict[Apply, int], copies: dict[Variable, Variable]
) -> Variable:
    """Compute a variable again, unless it is among the copies."""
    needed: dict[Apply, set[int]] = {variable.owner: {variable.index}}
    for node in cone:
        for v in node.inputs:
            if v.owner in cone:
                needed.setdefault(v.owner, set()).add(v.index)
    for node in sorted(cone, key=order.__getitem__):
        missing = sorted(i for i in needed[node] if node.outputs[i] not in copies)
        made = select_outputs(node, missing, [copies.get(v, v) for v in node.inputs]) if missing else {}
        copies.update((node.outputs[i], v) for i, v in made.items())
    return copies[variable]


def duplicate_producers(fgraph: FunctionGraph) -> None:
    """Give reductions copies of what they reduce, if it would else be stored only for them.

    Parameters
    ----------
    fgraph
        A graph after lifting; changed in place.
    """
    order = {node: i for i, node in enumerate(fgraph.toposort())}
    seeds = fusion_roots(order)
    copies: dict[FusionDomain, dict[Variable, Variable]] = {}  # kernels of the same rows share them, others do not
    rank = {domain: i for i, domain in enumerate(dict.fromkeys(domain for _, domain in seeds))}
    for node, domain in seeds if len(rank) > 1 else ():
        source = node.inputs[0]
        clients = [client for client, _ in fgraph.clients[source]]
        if not all(isinstance(c.op, (GpuElemwise, GpuCAReduce)) for c in clients):  # it is stored anyway
            continue
        cone = _cone(source, domain)
        if cone and any(rank[other] < rank[domain] for other in _reached(cone, fgraph)):
            copy = _copy(source, cone, order, copies.setdefault(domain, {}))
            fgraph.change_node_input(node, 0, copy, reason="opencl_rowwise")
