"""The order of execution: whatever waits for a device comes as late as it can."""

from collections import deque
from collections.abc import Sequence

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from pytensor_cl.ops.transfer import GpuToGpu, HostFromGpu

__all__ = ["schedule"]

WAITING = (HostFromGpu, GpuToGpu)


def _predecessors(fgraph: FunctionGraph, nodes: Sequence[Apply]) -> dict[Apply, set[Apply]]:
    """Return what must run before each node: producers of its inputs, and what reads an array that it destroys."""
    first = {node: {v.owner for v in node.inputs if v.owner is not None} for node in nodes}
    for node, others in fgraph.orderings().items():
        first[node].update(n for n in others if n in first)
    return first


def schedule(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes in an order in which everything is enqueued that can be before the function waits.

    Parameters
    ----------
    fgraph
        The rewritten graph.
    """
    nodes = fgraph.toposort()
    first = _predecessors(fgraph, nodes)
    then: dict[Apply, list[Apply]] = {node: [] for node in nodes}
    for node in nodes:
        for before in first[node]:
            then[before].append(node)
    missing = {node: len(before) for node, before in first.items()}
    ready, waiting, order = deque[Apply](), deque[Apply](), []

    def release(node: Apply) -> None:
        (waiting if isinstance(node.op, WAITING) else ready).append(node)

    for node in nodes:
        if not missing[node]:
            release(node)
    while ready or waiting:
        node = (ready or waiting).popleft()
        order.append(node)
        for follower in then[node]:
            missing[follower] -= 1
            if not missing[follower]:
                release(follower)
    return order
