"""Ops of elementwise kernels that users write -> Elemwise, so that they are fused with their neighbours."""

from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.base import context_of
from pytensor_cl.ops.elemwise import unsupported_scalar
from pytensor_cl.ops.user_kernels.elementwise import fusable
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.runtime.registry import default_context_name, get_context


def expand_user_kernels(fgraph: FunctionGraph) -> None:
    """ElementwiseOp(x) -> Elemwise(UserScalar)(x), where the device can compute it."""
    order = fgraph.toposort()
    found = [(node, op) for node in order if (op := fusable(node)) is not None]
    if not found:
        return
    contexts = contexts_of_nodes(order, fgraph, default_context_name())
    pairs = []
    for node, op in found:
        new = op.make_node(*node.inputs)
        if context_of(node.outputs[0]) is None and not unsupported_scalar(new, get_context(contexts[node]).info):
            pairs.append((node.outputs[0], node.outputs[0].type.filter_variable(new.outputs[0])))
    fgraph.replace_all(pairs, reason="opencl_user_kernels")
