"""Merging of equal nodes."""

from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer


def merge_equal_nodes(fgraph: FunctionGraph) -> None:
    """Merge all equal nodes of a graph.

    PyTensor's feature does not compare a node again if its merge was planned before other inputs took the place of its
    own, so that one run keeps equal nodes of a graph with many of them.
    """
    before = None
    while before != (before := len(fgraph.apply_nodes)):
        known = getattr(fgraph, "merge_feature", None)
        if known is not None:
            fgraph.remove_feature(known)
            del fgraph.merge_feature
        MergeOptimizer().rewrite(fgraph)
