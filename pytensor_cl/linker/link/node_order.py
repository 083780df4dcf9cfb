"""The order of execution: nodes that wait for a device come as late as possible."""

from collections import deque
from collections.abc import Sequence

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.transfer import GpuToGpu, HostFromGpu

BLOCKING_OPS = (HostFromGpu, GpuToGpu)


def _predecessors(fgraph: FunctionGraph, nodes: Sequence[Apply]) -> dict[Apply, set[Apply]]:
    """Return the predecessors of each node: producers of its inputs, and readers of an array that it destroys."""
    predecessors = {node: {v.owner for v in node.inputs if v.owner is not None} for node in nodes}
    for node, others in fgraph.orderings().items():
        predecessors[node].update(n for n in others if n in predecessors)
    return predecessors


def order_nodes(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes in an order in which all kernels are enqueued that can be before the function waits."""
    nodes = fgraph.toposort()
    predecessors = _predecessors(fgraph, nodes)
    successors: dict[Apply, list[Apply]] = {node: [] for node in nodes}
    for node in nodes:
        for before in predecessors[node]:
            successors[before].append(node)
    missing = {node: len(before) for node, before in predecessors.items()}
    ready, blocking, order = deque[Apply](), deque[Apply](), []

    def release(node: Apply) -> None:
        (blocking if isinstance(node.op, BLOCKING_OPS) else ready).append(node)

    for node in nodes:
        if not missing[node]:
            release(node)
    while ready or blocking:
        node = (ready or blocking).popleft()
        order.append(node)
        for successor in successors[node]:
            missing[successor] -= 1
            if not missing[successor]:
                release(successor)
    return order
