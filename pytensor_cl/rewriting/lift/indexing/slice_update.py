"""Subtensor and IncSubtensor -> their device Ops."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor, GpuMergedIncSubtensor, GpuSubtensor
from pytensor_cl.rewriting.lift.indexing.gather_scatter import uncastable
from pytensor_cl.rewriting.placement.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["merge_slice_updates"]


@register_lift(Subtensor, every_dtype=True)
def lift_subtensor(op: Subtensor, node: Apply, context_name: str, info: DeviceInfo) -> GpuSubtensor:
    """x[i, a:b:c] -> a view on the device; the indices stay on the host."""
    return GpuSubtensor(op, context_name)


@register_lift(IncSubtensor, every_dtype=True)
def lift_inc_subtensor(
    op: IncSubtensor, node: Apply, context_name: str, info: DeviceInfo
) -> GpuIncSubtensor | NoKernel:
    """x[i, a:b:c] = y, or += y -> a copy of x, and a kernel that writes into a view of it."""
    missing = None if op.set_instead_of_inc else uncastable(node.inputs[0].type.dtype, node.inputs[1].type.dtype)
    host = IncSubtensor(op.idx_list, set_instead_of_inc=op.set_instead_of_inc)
    return missing or GpuIncSubtensor(host, context_name)


def _joined(node: Apply, fgraph: FunctionGraph) -> Variable | None:
    """Return the result of a node and of the writes before it that nobody else reads, if there are any."""
    writes: list[Apply] = []
    before: Apply | None = node
    while before is not None and isinstance(before.op, GpuIncSubtensor):
        if before.op.context_name != node.op.context_name:
            break
        writes.append(before)
        array = before.inputs[0]
        before = array.owner if len(fgraph.clients[array]) == 1 else None
    if len(writes) < 2:
        return None
    writes.reverse()
    op = GpuMergedIncSubtensor([w.op.host for w in writes], [len(w.inputs) - 1 for w in writes], node.op.context_name)
    return op.make_node(writes[0].inputs[0], *(v for w in writes for v in w.inputs[1:])).outputs[0]


def _written(variable: Variable) -> Variable:
    """Return the array that writes began with, which has the same shape."""
    while variable.owner is not None and isinstance(variable.owner.op, GpuIncSubtensor):
        variable = variable.owner.inputs[0]
    return variable


def _ask_the_array(fgraph: FunctionGraph) -> None:
    """Shape_i(x[i] += y) -> Shape_i(x): then nobody needs what is between two writes."""
    for node in fgraph.toposort():
        source = _written(node.inputs[0]) if isinstance(node.op, Shape_i) else None
        if source is not None and source is not node.inputs[0]:
            fgraph.replace_all_validate([(node.outputs[0], node.op(source))], reason="opencl_merge_slice_updates")


def merge_slice_updates(fgraph: FunctionGraph) -> None:
    """x[i] += y; x[j] = z -> one node, which copies x once. Padding and the gradients of differences are such.

    Parameters
    ----------
    fgraph
        A graph after lifting; changed in place.
    """
    _ask_the_array(fgraph)
    last_first = [n for n in reversed(fgraph.toposort()) if isinstance(n.op, GpuIncSubtensor)]
    for node in last_first:
        found = _joined(node, fgraph) if node in fgraph.apply_nodes else None
        if found is not None:
            (old,) = node.outputs
            fgraph.replace_all_validate([(old, old.type.filter_variable(found))], reason="opencl_merge_slice_updates")
