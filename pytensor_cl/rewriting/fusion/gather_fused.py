"""Elements picked from an elementwise result -> GpuFusedGather: the rest of the result is not computed.

The loss of a classifier, ``log_softmax(z)[arange(n), y]``, is one.
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs

from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.indexing.gather_fused import GpuFusedGather
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import select_outputs

__all__ = ["apply_scalar_op", "fuse_gathers", "scalar_of"]

MOST_ARRAYS = 8
"""Arrays that a kernel reads at each place: more of them cost more than the one that is not stored."""


def apply_scalar_op(op: ps.ScalarOp, inputs: list[ps.ScalarVariable]) -> list[ps.ScalarVariable]:
    """Return the outputs of a scalar Op; a Composite is taken apart, so that each can be had without the others."""
    if not isinstance(op, ps.Composite):
        return op.make_node(*inputs).outputs
    known: dict[Variable, ps.ScalarVariable] = dict(zip(op.fgraph.inputs, inputs, strict=True))
    for node in op.fgraph.toposort():
        known.update(zip(node.outputs, apply_scalar_op(node.op, [known.get(v, v) for v in node.inputs]), strict=True))
    return [known.get(v, v) for v in op.fgraph.outputs]


def scalar_of(variable: Variable) -> ps.ScalarVariable:
    """Return what stands for an array or a value in a scalar function."""
    kind = ps.get_scalar_type(variable.type.dtype)
    if isinstance(variable, Constant) and is_by_value(variable):
        return ps.ScalarConstant(kind, variable.data[()])
    return kind()


def _cone(variable: Variable, context_name: str) -> set[Apply]:
    """Return the elementwise nodes that lead to a variable without anything else between them."""
    found: set[Apply] = set()
    pending = [variable.owner]
    while pending:
        node = pending.pop()
        is_known = node is None or node in found
        if not is_known and isinstance(node.op, GpuElemwise) and node.op.context_name == context_name:
            found.add(node)
            pending.extend(v.owner for v in node.inputs)
    return found


def _function(variable: Variable, cone: list[Apply]) -> tuple[list[Variable], ps.Composite]:
    """Return what a variable is computed from, and the function of an element of each.

    Parameters
    ----------
    variable
        An output of the last node.
    cone
        The nodes, in topological order.
    """
    known: dict[Variable, ps.ScalarVariable] = {}
    for node in cone:
        for v in node.inputs:
            known.setdefault(v, scalar_of(v))
        known.update(
            zip(node.outputs, apply_scalar_op(node.op.host.scalar_op, [known[v] for v in node.inputs]), strict=True)
        )
    needed = set(explicit_graph_inputs([known[variable]]))
    inputs = {v: scalar for v, scalar in known.items() if scalar in needed}
    return list(inputs), ps.Composite(list(inputs.values()), [known[variable]])


def _is_pick(node: Apply, fgraph: FunctionGraph) -> bool:
    """Whether a node reads few elements of an elementwise result that nobody else reads."""
    if not isinstance(node.op, GpuAdvancedSubtensor):
        return False
    source, *index = node.inputs
    owner, entries = source.owner, node.op.host.idx_list
    if owner is None or not isinstance(owner.op, GpuElemwise) or owner.op.context_name != node.op.context_name:
        return False
    whole = tuple(entries) == tuple(range(source.type.ndim))
    numbers = all(v.type.dtype != "bool" for v in index)
    return whole and numbers and len(fgraph.clients[source]) == 1 and _extent(node.outputs[0]) < _extent(source)


def _extent(variable: Variable) -> int:
    """Return along how many dimensions there is more than one element."""
    return sum(not one for one in variable.type.broadcastable)


def _picked(node: Apply, fgraph: FunctionGraph) -> Variable | None:
    """Return the same elements, computed from those of what the elementwise result is computed from."""
    source, *index = node.inputs
    cone = _cone(source, node.op.context_name)
    inputs, function = _function(source, [n for n in fgraph.toposort() if n in cone])
    arrays = sum(not is_by_value(v) for v in inputs)
    if not 0 < arrays <= MOST_ARRAYS or function.outputs[0].type.dtype != source.type.dtype:
        return None
    return GpuFusedGather(node.op.host, function, node.op.context_name).make_node(*inputs, *index).outputs[0]


def _drop_unread(node: Apply, fgraph: FunctionGraph) -> None:
    """Make an elementwise node of several outputs compute only those that are read."""
    needed = [i for i, v in enumerate(node.outputs) if fgraph.clients[v]]
    if needed and len(needed) < len(node.outputs):
        made = select_outputs(node, needed, node.inputs)
        fgraph.replace_all_validate([(node.outputs[i], v) for i, v in made.items()], reason="opencl_fuse_gather")


def fuse_gathers(fgraph: FunctionGraph) -> None:
    """Compute elementwise results only where they are picked.

    Parameters
    ----------
    fgraph
        A graph after lifting; changed in place.
    """
    for node in fgraph.toposort():
        picked = _picked(node, fgraph) if _is_pick(node, fgraph) else None
        if picked is not None:
            source, (old,) = node.inputs[0].owner, node.outputs
            fgraph.replace_all_validate([(old, old.type.filter_variable(picked))], reason="opencl_fuse_gather")
            if source in fgraph.apply_nodes:
                _drop_unread(source, fgraph)
