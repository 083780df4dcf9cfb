"""Elementwise nodes that reductions along different axes read -> one copy for each domain.

Computing a value of few operations twice is faster than storing it.
"""

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

MAX_COST = 40
"""Additions for each element above which storing a value is no slower than computing it twice."""

MAX_ARRAYS = 2
"""Arrays from which a value may be recomputed: storing and loading it costs as much."""


def fusion_roots(order: Iterable[Apply]) -> list[tuple[Apply, FusionDomain]]:
    """Return the reductions with their domains; reductions of the most frequent domain come first."""
    roots = [(node, domain) for node in order if (domain := reduction_domain(node)) is not None]
    frequency = {domain: sum(other == domain for _, other in roots) for _, domain in roots}
    return sorted(roots, key=lambda root: -frequency[root[1]])


def _producers(variable: Variable, domain: FusionDomain) -> dict[Apply, None]:
    """Return the elementwise nodes of full arrays that compute a variable; none if it should be stored."""
    found: dict[Apply, None] = {}
    read: set[Variable] = set()
    cost, pending = 0, [variable]
    while pending:
        current = pending.pop()
        node = current.owner
        if node is None or not domain.is_full(node):
            read.update((current,) if domain.output_form(current) == FULL else ())
        elif node not in found:
            found[node] = None
            cost += cost_of(node.op.host.scalar_op)
            pending.extend(node.inputs)
        if cost > MAX_COST or len(read) > MAX_ARRAYS:
            return {}
    return found


def _consumer_domains(nodes: Iterable[Apply], fgraph: FunctionGraph) -> set[FusionDomain]:
    """Return the domains of the reductions that depend on nodes through elementwise nodes only."""
    found: set[FusionDomain] = set()
    seen: set[Apply] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        for client in {c for v in node.outputs for c, _ in fgraph.clients[v]} - seen:
            seen.add(client)
            if (domain := reduction_domain(client)) is not None:
                found.add(domain)
            elif isinstance(client.op, GpuElemwise):
                pending.append(client)
    return found


def select_outputs(node: Apply, needed: list[int], inputs: list[Variable]) -> dict[int, Variable]:
    """Return some outputs of an elementwise node, by index, computed by a new node.

    The outputs keep the Types of the node's own. Fewer inputs may imply a less specific static shape, and host scalars
    imply no number of dimensions.
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
    variable: Variable, producers: dict[Apply, None], order: dict[Apply, int], copies: dict[Variable, Variable]
) -> Variable:
    """Return a copy of a variable, and add the copies of its producers to `copies`."""
    needed: dict[Apply, set[int]] = {variable.owner: {variable.index}}
    for node in producers:
        for v in node.inputs:
            if v.owner in producers:
                needed.setdefault(v.owner, set()).add(v.index)
    for node in sorted(producers, key=order.__getitem__):
        missing = sorted(i for i in needed[node] if node.outputs[i] not in copies)
        made = select_outputs(node, missing, [copies.get(v, v) for v in node.inputs]) if missing else {}
        copies.update((node.outputs[i], v) for i, v in made.items())
    return copies[variable]


def duplicate_producers(fgraph: FunctionGraph) -> None:
    """Give reductions their own copies of the nodes that compute their input, if it would be stored only for them."""
    order = {node: i for i, node in enumerate(fgraph.toposort())}
    roots = fusion_roots(order)
    copies: dict[FusionDomain, dict[Variable, Variable]] = {}  # kernels of one domain share their copies
    rank = {domain: i for i, domain in enumerate(dict.fromkeys(domain for _, domain in roots))}
    for node, domain in roots if len(rank) > 1 else ():
        source = node.inputs[0]
        clients = [client for client, _ in fgraph.clients[source]]
        if not all(isinstance(c.op, (GpuElemwise, GpuCAReduce)) for c in clients):  # it is stored anyway
            continue
        producers = _producers(source, domain)
        if producers and any(rank[other] < rank[domain] for other in _consumer_domains(producers, fgraph)):
            copy = _copy(source, producers, order, copies.setdefault(domain, {}))
            fgraph.change_node_input(node, 0, copy, reason="opencl_rowwise")
