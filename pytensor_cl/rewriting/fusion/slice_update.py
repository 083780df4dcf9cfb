"""Slice updates of one array, one after the other -> GpuMergedIncSubtensor: the array is copied once."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape_i

from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor, GpuMergedIncSubtensor


def _merged(node: Apply, fgraph: FunctionGraph) -> Variable | None:
    """Return the result of a slice update and of those before it that have no other client; None if there are none."""
    updates: list[Apply] = []
    before: Apply | None = node
    while before is not None and isinstance(before.op, GpuIncSubtensor):
        if before.op.context_name != node.op.context_name:
            break
        updates.append(before)
        array = before.inputs[0]
        before = array.owner if len(fgraph.clients[array]) == 1 else None
    if len(updates) < 2:
        return None
    updates.reverse()
    hosts, counts = [u.op.host for u in updates], [len(u.inputs) - 1 for u in updates]
    op = GpuMergedIncSubtensor(hosts, counts, node.op.context_name)
    return op.make_node(updates[0].inputs[0], *(v for u in updates for v in u.inputs[1:])).outputs[0]


def _move_shapes_to_source(fgraph: FunctionGraph) -> None:
    """Shape_i(x[i] += y) -> Shape_i(x): the result of an update then has no other client than the next update."""
    for node in fgraph.toposort():
        if not isinstance(node.op, Shape_i):
            continue
        source = node.inputs[0]
        while source.owner is not None and isinstance(source.owner.op, GpuIncSubtensor):
            source = source.owner.inputs[0]
        if source is not node.inputs[0]:
            fgraph.replace_all_validate([(node.outputs[0], node.op(source))], reason="opencl_merge_slice_updates")


def merge_slice_updates(fgraph: FunctionGraph) -> None:
    """x[i] += y; x[j] = z -> one node. Padding and the gradient of ``diff`` make such chains."""
    _move_shapes_to_source(fgraph)
    for node in reversed(fgraph.toposort()):
        merged = _merged(node, fgraph) if node in fgraph.apply_nodes else None
        if merged is not None:
            (old,) = node.outputs
            pair = (old, old.type.filter_variable(merged))
            fgraph.replace_all_validate([pair], reason="opencl_merge_slice_updates")
