"""Elementwise nodes that PyTensor's fusion has left beside Composites -> Composites.

It begins at nodes without a client that it could fuse. Those whose clients went into other Composites are not visited.
"""

from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.elemwise import FusionOptimizer


def fuse_rest(fgraph: FunctionGraph) -> None:
    """Fuse once more, if the mode fuses at all and some node is left that reads another one."""
    nodes = [node for node in fgraph.apply_nodes if isinstance(node.op, Elemwise)]
    is_fused = [isinstance(node.op.scalar_op, Composite) for node in nodes]
    if any(is_fused) and not all(is_fused):
        FusionOptimizer().rewrite(fgraph)
