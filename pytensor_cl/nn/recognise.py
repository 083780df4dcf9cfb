"""Finds formulas of networks in a user's own graph and replaces them by the functions that they are."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import EquilibriumGraphRewriter, MergeOptimizer, NodeRewriter

_MAX_USE_RATIO = 10  # applications of a rewriter per node of the graph before PyTensor takes it for an endless loop
_REWRITERS: list[NodeRewriter] = []


def register_recognition(rewriter: NodeRewriter) -> NodeRewriter:
    """Add a rewriter of PyTensor, made by `node_rewriter`, to those that `recognise` applies. May be a decorator.

    It sees the graph as the user has built it, with equal nodes merged; nodes near the outputs come first.
    """
    _REWRITERS.append(rewriter)
    return rewriter


def recognise(outputs: Variable | Sequence[Variable]) -> Any:
    """Return the same results, computed by functions of `pytensor_cl.nn` where a graph spells out their formulas.

    Call it before `pytensor.grad`, so that the gradient is the function's too. The graph that is given does not change.
    Its inputs, such as shared variables, are those of the new graph; variables between them and the outputs are not.

    `outputs`: a variable or a sequence of them. Returns the same kind: a variable or a list.
    """
    is_single = isinstance(outputs, Variable)
    fgraph = FunctionGraph(outputs=[outputs] if is_single else list(outputs), copy_inputs=False)
    MergeOptimizer().rewrite(fgraph)
    if _REWRITERS:
        EquilibriumGraphRewriter(_REWRITERS, max_use_ratio=_MAX_USE_RATIO).rewrite(fgraph)
    return fgraph.outputs[0] if is_single else fgraph.outputs
