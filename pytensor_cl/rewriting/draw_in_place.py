"""Random draws that change their generator in place of a copy of it."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter

from pytensor_cl.ops.random import GpuRandomVariable


@node_rewriter([GpuRandomVariable], inplace=True)
def _change_generator(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """GpuRandomVariable(rng) -> the same, changing the generator in place, if no other node uses its old state."""
    if node.op.inplace:
        return None
    new = node.op.in_place().apply(node.inputs, [node.outputs[0].type, node.outputs[1].type])
    return list(new.outputs)


_change_generators = dfs_rewriter(_change_generator, ignore_newtrees=True)


def draw_in_place(fgraph: FunctionGraph) -> None:
    """Let draws change their generators, where no other node uses the old states."""
    _change_generators.apply(fgraph)
