"""Ops of kernels that users write -> Elemwise and reductions, so that they are fused with their neighbours."""

from collections.abc import Iterator
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.ops.elemwise import unsupported_scalar
from pytensor_cl.ops.user_kernels.elementwise import ElementwiseOp, spelled_out
from pytensor_cl.ops.user_kernels.reduction import ReductionOp
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.registry import default_context_name, get_context


def _spelled_out(node: Apply, fgraph: FunctionGraph) -> dict[int, Variable]:
    """Return what computes the used outputs of a node with a kernel of the user's; nothing: it stays as it is."""
    feature = getattr(fgraph, "shape_feature", None)

    def shape_of(variable: Any, axis: int) -> Any:
        # The shape of the graph's inputs: a shape of a result would keep the result from being fused.
        return variable.shape[axis] if feature is None else feature.get_shape(variable, axis)

    if isinstance(node.op, ReductionOp):
        reduced = node.op.spelled_out(node, shape_of)
        return {} if reduced is None else {0: reduced}
    if not isinstance(node.op, ElementwiseOp):
        return {}
    used = [k for k, output in enumerate(node.outputs) if fgraph.clients[output]]
    return spelled_out(node, used, shape_of)


def _is_supported(variable: Variable, node: Apply, info: DeviceInfo) -> bool:
    """Return whether a device computes all elementwise functions between a node's inputs and what replaces it."""
    made = (v.owner for v in ancestors([variable], blockers=node.inputs) if v.owner is not None)
    return not any(isinstance(n.op, Elemwise) and unsupported_scalar(n, info) for n in made)


def _replacements(fgraph: FunctionGraph) -> Iterator[tuple[Variable, Variable]]:
    order = fgraph.toposort()
    found = [(node, new) for node in order if (new := _spelled_out(node, fgraph))]
    contexts = contexts_of_nodes(order, fgraph, default_context_name()) if found else {}
    for node, new in reversed(found):  # the new nodes read results of nodes before them, which are replaced later
        info = get_context(contexts[node]).info
        if all(_is_supported(variable, node, info) for variable in new.values()):
            for k, variable in new.items():
                yield node.outputs[k], node.outputs[k].type.filter_variable(variable)


def expand_user_kernels(fgraph: FunctionGraph) -> None:
    """ElementwiseOp(x) -> Elemwise(UserScalar)(x), where the device can compute it; the same of reductions."""
    fgraph.replace_all(list(_replacements(fgraph)), reason="opencl_user_kernels")
