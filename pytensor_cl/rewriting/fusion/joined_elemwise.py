"""Concatenation of the outputs of one elementwise function -> GpuJoinedElemwise: they are computed in their places."""

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.join import GpuJoin, GpuJoinedElemwise
from pytensor_cl.rewriting.fusion.replace import replace_outputs


def _producer(node: Apply, fgraph: FunctionGraph) -> Apply | None:
    """Return the elementwise node that computes all inputs of a concatenation, and nothing else reads them."""
    producer = node.inputs[0].owner
    if producer is None or not isinstance(producer.op, GpuElemwise) or len(set(node.inputs)) < len(node.inputs):
        return None
    if producer.op.context_name != node.op.context_name:
        return None
    dtype = node.outputs[0].type.dtype
    is_only_client = all(v.owner is producer and len(fgraph.clients[v]) == 1 for v in node.inputs)
    return producer if is_only_client and all(v.type.dtype == dtype for v in node.inputs) else None


def fuse_joined_elemwise(fgraph: FunctionGraph) -> None:
    """Join(Composite(x, ...)) -> one node. The gradient of a recurrent layer's gates has one in each step."""
    for node in fgraph.toposort():
        producer = _producer(node, fgraph) if isinstance(node.op, GpuJoin) else None
        if producer is None:
            continue
        parts = tuple(producer.outputs.index(v) for v in node.inputs)
        new = GpuJoinedElemwise(producer.op, node.op.host.axis, parts).make_node(*producer.inputs)
        others = [v for k, v in enumerate(producer.outputs) if k not in parts]
        replace_outputs(fgraph, [*node.outputs, *others], new.outputs, "opencl_joined_elemwise")
