"""Ops of kernels that users write -> Elemwise and reductions, so that they are fused with their neighbours."""

from collections.abc import Iterator
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.ops.elemwise import unsupported_scalar
from pytensor_cl.ops.user_kernels.elementwise import fusable
from pytensor_cl.ops.user_kernels.reduction import ReductionOp
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.registry import default_context_name, get_context


def _spelled_out(node: Apply, fgraph: FunctionGraph) -> Variable | None:
    """Return what computes the same as a node with a kernel of the user's; None: it stays as it is."""
    feature = getattr(fgraph, "shape_feature", None)

    def shape_of(variable: Any, axis: int) -> Any:
        # That of the graph's inputs: a shape of a result would keep the result from being fused.
        return variable.shape[axis] if feature is None else feature.get_shape(variable, axis)

    if isinstance(node.op, ReductionOp):
        return node.op.spelled_out(node, shape_of)
    elementwise = fusable(node)
    return None if elementwise is None else elementwise.make_node(*node.inputs).outputs[0]


def _is_supported(variable: Variable, node: Apply, info: DeviceInfo) -> bool:
    """Return whether a device computes all elementwise functions between a node's inputs and what replaces it."""
    made = (v.owner for v in ancestors([variable], blockers=node.inputs) if v.owner is not None)
    return not any(isinstance(n.op, Elemwise) and unsupported_scalar(n, info) for n in made)


def _replacements(fgraph: FunctionGraph) -> Iterator[tuple[Variable, Variable]]:
    order = fgraph.toposort()
    found = [(node, new) for node in order if (new := _spelled_out(node, fgraph)) is not None]
    contexts = contexts_of_nodes(order, fgraph, default_context_name()) if found else {}
    for node, new in found:
        if _is_supported(new, node, get_context(contexts[node]).info):
            yield node.outputs[0], node.outputs[0].type.filter_variable(new)


def expand_user_kernels(fgraph: FunctionGraph) -> None:
    """ElementwiseOp(x) -> Elemwise(UserScalar)(x), where the device can compute it; the same of reductions."""
    fgraph.replace_all(list(_replacements(fgraph)), reason="opencl_user_kernels")
