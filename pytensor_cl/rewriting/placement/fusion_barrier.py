"""Keeps nodes out of PyTensor's fusion that have no kernel, or whose result another context reads."""

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.ops.elemwise import unsupported_scalar
from pytensor_cl.rewriting.placement.placement import contexts_of_nodes
from pytensor_cl.runtime.registry import default_context_name, get_context


class FusionBarrier(Op):
    """An Elemwise that fusion does not recognise.

    It exists from the pass `insert_fusion_barriers` to `remove_fusion_barriers`.
    """

    __props__ = ("host",)

    def __init__(self, host: Elemwise) -> None:
        self.host = host

    def make_node(self, *inputs: Variable) -> Apply:
        """Make the node that the Elemwise would make."""
        node = self.host.make_node(*inputs)
        return Apply(self, node.inputs, [o.type() for o in node.outputs])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute as the Elemwise does."""
        self.host.perform(self.host.make_node(*node.inputs), inputs, output_storage)

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes that the Elemwise infers."""
        return self.host.infer_shape(self.host.make_node(*node.inputs), shapes)


def _replace(fgraph: FunctionGraph, nodes: list[Apply], op_of: Any, reason: str) -> None:
    pairs = [pair for n in nodes for pair in zip(n.outputs, op_of(n).make_node(*n.inputs).outputs, strict=True)]
    if pairs:
        fgraph.replace_all(pairs, reason=reason)


def insert_fusion_barriers(fgraph: FunctionGraph) -> None:
    """Elemwise{erfcinv}(x) -> FusionBarrier(Elemwise{erfcinv})(x), where the device has no erfcinv.

    A node whose result another context reads gets a barrier too: fusion would move it there.
    """
    order = fgraph.toposort()
    contexts = contexts_of_nodes(order, fgraph, default_context_name())

    def needs_barrier(node: Apply) -> bool:
        clients = (client for v in node.outputs for client, _ in fgraph.clients[v])
        elsewhere = any(contexts.get(client, contexts[node]) != contexts[node] for client in clients)
        return elsewhere or unsupported_scalar(node, get_context(contexts[node]).info) is not None

    nodes = [n for n in order if isinstance(n.op, Elemwise) and needs_barrier(n)]
    _replace(fgraph, nodes, lambda n: FusionBarrier(n.op), "opencl_fusion_barrier")


def remove_fusion_barriers(fgraph: FunctionGraph) -> None:
    """FusionBarrier(op)(x) -> op(x)."""
    barriers = [n for n in fgraph.toposort() if isinstance(n.op, FusionBarrier)]
    _replace(fgraph, barriers, lambda n: n.op.host, "opencl_remove_fusion_barrier")
