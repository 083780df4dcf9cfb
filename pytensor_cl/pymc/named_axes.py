"""Variables of ``pymc.dims``, whose axes have names, as tensors."""

from collections.abc import Sequence
from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import graph_inputs, variable_ancestors
from pytensor.xtensor import as_xtensor
from pytensor.xtensor.type import XTensorType


def has_named_axes(variable: Any) -> bool:
    """Return whether a variable's type is that of ``pymc.dims``."""
    return isinstance(variable.type, XTensorType)


def with_named_axes(tensor: Any, like: Any) -> Any:
    """Return a tensor with the names that the axes of another variable have, if they have some."""
    return as_xtensor(tensor, dims=like.type.dims) if has_named_axes(like) else tensor


def without_named_axes(variable: Any) -> Any:
    """Return a variable as a tensor."""
    return pt.as_tensor(variable, allow_xtensor_conversion=True)


def as_tensor_graphs(variables: Sequence[Any], graphs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return graphs of variables with tensors only, in their Ops too, which `vectorize_graph` needs.

    Parameters
    ----------
    variables : sequence of Variable
        The variables that the graphs are functions of.
    graphs : sequence of Variable
        The graphs. They are not changed.

    Returns
    -------
    list of TensorVariable
        The variables; another one, of the same name, for each that has named axes.
    list of TensorVariable
        The graphs of these, with the names that they had.

    """
    ancestors = list(variable_ancestors([*variables, *graphs]))
    if not any(map(has_named_axes, ancestors)):
        return list(variables), list(graphs)
    tensors = [_tensor(v) if has_named_axes(v) else v for v in variables]
    new = dict(zip(variables, tensors, strict=True))
    # As tensors, data are copied to a device once.
    new |= {v: _shared_tensor(v) for v in ancestors if isinstance(v, SharedVariable) and has_named_axes(v)}
    replaced = {old: with_named_axes(tensor, old) for old, tensor in new.items()}
    # Variables may have owners, as random ones have: the graphs end there.
    inputs = [v for v in graph_inputs(graphs, blockers=variables) if not isinstance(v, Constant)]
    copies = clone_get_equiv(inputs, graphs, copy_inputs=False, copy_orphans=False, memo=replaced)
    fgraph = FunctionGraph(outputs=[without_named_axes(copies[graph]) for graph in graphs], clone=False)
    dfs_rewriter(_without_view).rewrite(fgraph)
    optdb.query(RewriteDatabaseQuery(include=["lower_xtensor"])).rewrite(fgraph)
    for graph, lowered in zip(graphs, fgraph.outputs, strict=True):
        if lowered not in tensors:
            lowered.name = graph.name
    return tensors, list(fgraph.outputs)


def _tensor(variable: Any) -> Any:
    return pt.tensor(variable.name, dtype=variable.type.dtype, shape=variable.type.shape)


def _shared_tensor(variable: Any) -> Any:
    return pytensor.shared(variable.get_value(), variable.name, shape=variable.type.shape)


@node_rewriter([ViewOp])
def _without_view(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Leave out what gives a name to a deterministic variable, which PyTensor does not lower."""
    return list(node.inputs) if has_named_axes(node.inputs[0]) else None
