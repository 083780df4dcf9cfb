"""A gather of an elementwise result -> GpuFusedGather: the other elements are not computed.

The loss of a classifier, ``log_softmax(z)[arange(n), y]``, is an example.
"""

from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs

from pytensor_cl.ops.elemwise import GpuElemwise, is_by_value
from pytensor_cl.ops.indexing.gather_fused import GpuFusedGather
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.rewriting.fusion.rowwise.producer_duplication import select_outputs

MAX_ARRAYS = 8
"""Arrays that a kernel reads at each position: reading more costs more than storing the elementwise result."""


def apply_scalar_op(op: ps.ScalarOp, inputs: list[ps.ScalarVariable]) -> list[ps.ScalarVariable]:
    """Return the outputs of a scalar Op. A Composite is inlined, so that unused outputs can be left out."""
    if not isinstance(op, ps.Composite):
        return op.make_node(*inputs).outputs
    known: dict[Variable, ps.ScalarVariable] = dict(zip(op.fgraph.inputs, inputs, strict=True))
    for node in op.fgraph.toposort():
        known.update(zip(node.outputs, apply_scalar_op(node.op, [known.get(v, v) for v in node.inputs]), strict=True))
    return [known.get(v, v) for v in op.fgraph.outputs]


def scalar_of(variable: Variable) -> ps.ScalarVariable:
    """Return the scalar variable for an element of an array or a host value; a constant for a 0-d constant."""
    kind = ps.get_scalar_type(variable.type.dtype)
    if isinstance(variable, Constant) and is_by_value(variable):
        return ps.ScalarConstant(kind, variable.data[()])
    return kind()


def _elemwise_producers(variable: Variable, context_name: str) -> set[Apply]:
    """Return the elementwise nodes from which a variable is computed, up to the first other nodes."""
    found: set[Apply] = set()
    pending = [variable.owner]
    while pending:
        node = pending.pop()
        is_known = node is None or node in found
        if not is_known and isinstance(node.op, GpuElemwise) and node.op.context_name == context_name:
            found.add(node)
            pending.extend(v.owner for v in node.inputs)
    return found


def _function(variable: Variable, nodes: list[Apply]) -> tuple[list[Variable], ps.Composite]:
    """Return the inputs of elementwise nodes in topological order, and the function of an element of each."""
    known: dict[Variable, ps.ScalarVariable] = {}
    for node in nodes:
        for v in node.inputs:
            known.setdefault(v, scalar_of(v))
        scalars = apply_scalar_op(node.op.host.scalar_op, [known[v] for v in node.inputs])
        known.update(zip(node.outputs, scalars, strict=True))
    needed = set(explicit_graph_inputs([known[variable]]))
    inputs = {v: scalar for v, scalar in known.items() if scalar in needed}
    return list(inputs), ps.Composite(list(inputs.values()), [known[variable]])


def _is_sparse_gather(node: Apply, fgraph: FunctionGraph) -> bool:
    """Return whether a node gathers few elements of an elementwise result that has no other client.

    The index has an array for each dimension, and fewer dimensions of its own than the source.
    """
    if not isinstance(node.op, GpuAdvancedSubtensor):
        return False
    source, *index = node.inputs
    owner = source.owner
    if owner is None or not isinstance(owner.op, GpuElemwise) or owner.op.context_name != node.op.context_name:
        return False
    indexes_all = tuple(node.op.host.idx_list) == tuple(range(source.type.ndim))
    has_masks = any(v.type.dtype == "bool" for v in index)
    if not indexes_all or has_masks or len(fgraph.clients[source]) > 1:
        return False
    extents = [sum(not one for one in v.type.broadcastable) for v in (node.outputs[0], source)]
    return extents[0] < extents[1]


def _fused(node: Apply, fgraph: FunctionGraph) -> Variable | None:
    """Return the gathered elements, computed from elements of the producers' inputs; None if these are too many."""
    source, *index = node.inputs
    producers = _elemwise_producers(source, node.op.context_name)
    inputs, function = _function(source, [n for n in fgraph.toposort() if n in producers])
    arrays = sum(not is_by_value(v) for v in inputs)
    if not 0 < arrays <= MAX_ARRAYS or function.outputs[0].type.dtype != source.type.dtype:
        return None
    return GpuFusedGather(node.op.host, function, node.op.context_name).make_node(*inputs, *index).outputs[0]


def _drop_unused_outputs(node: Apply, fgraph: FunctionGraph) -> None:
    """Replace an elementwise node of several outputs by one that computes only those that have clients."""
    needed = [i for i, v in enumerate(node.outputs) if fgraph.clients[v]]
    if needed and len(needed) < len(node.outputs):
        made = select_outputs(node, needed, node.inputs)
        fgraph.replace_all_validate([(node.outputs[i], v) for i, v in made.items()], reason="opencl_fuse_gather")


def fuse_gathers(fgraph: FunctionGraph) -> None:
    """Compute elementwise results only where they are gathered."""
    for node in fgraph.toposort():
        fused = _fused(node, fgraph) if _is_sparse_gather(node, fgraph) else None
        if fused is not None:
            source, (old,) = node.inputs[0].owner, node.outputs
            fgraph.replace_all_validate([(old, old.type.filter_variable(fused))], reason="opencl_fuse_gather")
            if source in fgraph.apply_nodes:
                _drop_unused_outputs(source, fgraph)
