"""Replaces the markers of `pytensor_cl.nn` by their inner graphs, and the masks of dropout by draws."""

from collections.abc import Callable
from functools import partial

from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

from pytensor_cl._compat.inner_graphs import rewrite_compiled_inner_graphs
from pytensor_cl.nn.dropout import DropoutMask
from pytensor_cl.nn.marker import Marker


def inline_markers(fgraph: FunctionGraph, is_kept: Callable[[Apply], bool], keep_draws: bool = False) -> None:
    """Marker(x) -> its inner graph of x, unless `is_kept` is true of the node; always in loops and branches.

    DropoutMask -> a comparison of uniform numbers; with `keep_draws` one draw, except in loops and branches.
    """
    _inline(fgraph, is_kept)
    _lower_masks(fgraph, keep_draws)
    rewrite_compiled_inner_graphs(fgraph, partial(inline_markers, is_kept=lambda node: False))


def _inline(fgraph: FunctionGraph, is_kept: Callable[[Apply], bool]) -> None:
    while True:  # an inner graph may have markers
        found = [n for n in fgraph.toposort() if isinstance(n.op, Marker) and not is_kept(n)]
        if not found:
            return
        for node in found:
            pairs = zip(node.outputs, inline_ofg_node(node), strict=True)
            typed = [(old, old.type.filter_variable(new)) for old, new in pairs]
            fgraph.replace_all(typed, reason="nn_inline_markers", import_missing=True)


def _lower_masks(fgraph: FunctionGraph, keep_draws: bool) -> None:
    for node in fgraph.toposort():
        if isinstance(node.op, DropoutMask):
            pairs = zip(node.outputs, node.op.lower(node, keep_draws), strict=True)
            typed = [(old, old.type.filter_variable(new)) for old, new in pairs]
            fgraph.replace_all(typed, reason="nn_lower_masks", import_missing=True)
