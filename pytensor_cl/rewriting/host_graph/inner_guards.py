"""Adds the checks that NUMBA leaves out to a graph and to the graphs inside of its loops and conditionals."""

from collections.abc import Iterator
from copy import copy
from typing import Any

from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.graph.rewriting.utils import rewrite_graph

from pytensor_cl._compat import numba_backend
from pytensor_cl._compat.inner_graphs import graphs_inside, inline_op_from_graphs, rewrite_compiled_inner_graphs
from pytensor_cl._compat.numba_draws import replace_contracted_draws
from pytensor_cl.rewriting.host_graph.guards import add_guards, may_need_guard
from pytensor_cl.rewriting.host_graph.in_python import InPython
from pytensor_cl.rewriting.host_graph.masks import replace_masks
from pytensor_cl.rewriting.host_graph.numba_ops import must_run_in_python
from pytensor_cl.rewriting.host_graph.wide_factors import widen_factors


def guard_for_numba(fgraph: FunctionGraph) -> None:
    """Add checks to the graph of a function."""
    _guard(fgraph, is_inside=False)


def guard_inner_graph(fgraph: FunctionGraph) -> None:
    """Add checks to the graph inside of an Op, before any rewrite; Ops for which there is no check run in Python."""
    widen_factors(fgraph)
    _guard(fgraph, is_inside=True)
    replace_contracted_draws(fgraph)
    for node in fgraph.toposort():
        if must_run_in_python(node):
            new = InPython(node.op).make_node(*node.inputs)
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            fgraph.replace_all(pairs, reason="opencl_in_python")


def prepare_host_branches(fgraph: FunctionGraph) -> None:
    """Prepare the branches that stay on the host for NUMBA, in a graph whose nodes have been placed."""
    mode = get_active_mode(fgraph)
    for node in fgraph.toposort():
        if isinstance(node.op, LazyIfElse):
            given = (node.op.true_branch, node.op.false_branch)
            branches = [numba_backend.prepare_for_numba(branch, mode, guard_inner_graph) for branch in given]
            new = LazyIfElse(*branches, node.op.output_types).make_node(*node.inputs)
            new.tag = copy(node.tag)  # holds the reason of its placement
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            fgraph.replace_all(pairs, reason="opencl_prepare_host_branches", import_missing=True)


def _guard(fgraph: FunctionGraph, *, is_inside: bool) -> None:
    if any(_needs_guard_inside(node) for node in fgraph.apply_nodes if isinstance(node.op, OpFromGraph)):
        if is_inside:  # PyTensor's rewrites know Ops such as AllocDiag and Softmax by their class
            rewrite_graph(fgraph, include=("canonicalize", "stabilize", "specialize"), clone=False)
        inline_op_from_graphs(fgraph)
    rewrite_compiled_inner_graphs(fgraph, guard_inner_graph)
    if any(map(may_need_guard, fgraph.apply_nodes)):
        replace_masks(fgraph)
        add_guards(fgraph, is_inside=is_inside)


def _needs_guard_inside(node: Apply) -> bool:
    """Return whether a node inside of an OpFromGraph may need a check."""
    if isinstance(node.op, FinalizedOpFromGraph):
        return False
    return any(may_need_guard(inner) or must_run_in_python(inner) for inner in _nodes_inside(node.op))


def _nodes_inside(op: Any) -> Iterator[Apply]:
    for graph in graphs_inside(op):
        for node in graph.apply_nodes:
            yield node
            yield from _nodes_inside(node.op)
