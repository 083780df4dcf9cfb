"""The graph as the user wrote it: kept so that NUMBA can compile it where a device cannot win."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite, IntDiv, Maximum, Minimum, Mod, ScalarType
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

__all__ = ["Alternative", "alternative_of", "carry", "remember"]

EQUAL: tuple[type[Op], ...] = (
    *(Alloc, AllocEmpty, ARange, ExtractDiag, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar),
    *(CAReduce, DimShuffle, Elemwise, CumOp, Argmax, Dot, CheckAndRaise, DeepCopyOp, ViewOp),
    *(Reshape, Shape, Shape_i, SpecifyShape, IncSubtensor, Subtensor),
)
"""Ops of which NUMBA raises the errors that other backends raise. It reads past the end of an array in advanced
indexing and in products of batches that do not match, and returns NaN for a matrix that has no factors: those, and all
that nobody has looked at, are left out."""

ON_HOST = "opencl__adapt=False"
NOT_AUTO = "opencl__placement is not auto"
NO_RECIPE = "the mode has rewrites of its own"
NOT_TENSORS = "inputs or results that are no tensors of the host"


@dataclass(frozen=True)
class Alternative:
    """What is needed to compile a graph for the host.

    Attributes
    ----------
    graph
        A copy of the graph from before the first rewrite.
    mode
        The mode that it was compiled for.
    """

    graph: FunctionGraph
    mode: Mode


def remember(fgraph: FunctionGraph, placement: str, adapt: bool) -> None:
    """Keep a copy of a graph that NUMBA could compile as well, or why there is none.

    Parameters
    ----------
    fgraph
        The graph of a function, not rewritten yet.
    placement, adapt
        The flags.
    """
    fgraph.opencl_alternative = _alternative(fgraph, placement, adapt)


def carry(fgraph: FunctionGraph) -> None:
    """Move what was kept to a variable of the graph: copies of the graph have copies of that, not of the graph's."""
    found = fgraph.__dict__.pop("opencl_alternative", None)
    if found is not None and fgraph.outputs:
        fgraph.outputs[0].tag.opencl_alternative = found


def alternative_of(fgraph: FunctionGraph) -> "Alternative | str":
    """Return what was kept of a graph, or the reason why nothing was."""
    found: Alternative | str = NOT_AUTO
    if fgraph.outputs:
        found = getattr(fgraph.outputs[0].tag, "opencl_alternative", found)
    return found


def _alternative(fgraph: FunctionGraph, placement: str, adapt: bool) -> Alternative | str:
    if placement != "auto":
        return NOT_AUTO
    if not adapt:
        return ON_HOST
    mode = get_active_mode(fgraph)
    if not hasattr(mode, "provided_optimizer"):
        return NO_RECIPE
    if not all(type(v.type) is TensorType for v in (*fgraph.inputs, *fgraph.outputs)):
        return NOT_TENSORS
    nodes = list(_nodes(fgraph))
    other = next((n for n in nodes if not _is_equal(n)), None)
    if other is None and any(map(_may_be_empty, nodes)):
        other = next(filter(_needs_elements, nodes), None)
    if other is not None:
        return f"NUMBA may treat errors in the data of {other.op} differently"
    return Alternative(fgraph.clone(check_integrity=False), mode)


def _nodes(fgraph: Any) -> Iterator[Apply]:
    """Nodes of a graph and of the graphs inside it."""
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            yield from _nodes(node.op.fgraph)
        else:
            yield node


def _needs_elements(node: Apply) -> bool:
    """Whether it is a maximum, of which nothing has none: NUMBA returns infinity."""
    return isinstance(node.op, CAReduce) and isinstance(node.op.scalar_op, Maximum | Minimum)


def _may_be_empty(node: Apply) -> bool:
    """Whether a result may have no elements where no input has none."""
    is_slice = isinstance(node.op, Subtensor) and any(isinstance(i, slice) for i in node.op.idx_list)
    return is_slice or isinstance(node.op, ARange | Eye | Alloc | AllocEmpty | ExtractDiag)


def _is_equal(node: Apply) -> bool:
    if not all(isinstance(v.type, TensorType | ScalarType) or not v.owner for v in (*node.inputs, *node.outputs)):
        return False
    if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        return _is_within(node)
    if isinstance(node.op, ARange):
        return isinstance(node.inputs[2], Constant)
    if isinstance(node.op, Elemwise):
        return _is_harmless(node.op.scalar_op, node)
    if isinstance(node.op, Blockwise):
        return not node.op.batch_ndim(node) and isinstance(node.op.core_op, EQUAL)
    return isinstance(node.op, EQUAL)


def _is_harmless(scalar_op: Op, node: Apply) -> bool:
    """Whether no value stops the process, as the least integer divided by minus one does."""
    if isinstance(scalar_op, Composite):
        return all(_is_harmless(n.op, n) for n in scalar_op.fgraph.toposort())
    divides = isinstance(scalar_op, IntDiv | Mod)
    return not divides or any(v.type.dtype.startswith("float") for v in node.outputs)


def _is_within(node: Apply) -> bool:
    """Whether each axis has one constant array of indices, none of which can be out of range."""
    op: Any = node.op
    source = node.inputs[0]
    indices = node.inputs[1:] if isinstance(op, AdvancedSubtensor) else node.inputs[2:]
    if len(op.idx_list) != len(indices) or any(isinstance(i, slice) for i in op.idx_list):
        return False
    extents = source.type.shape[: len(indices)]
    return all(map(_fits, indices, extents))


def _fits(index: Variable, extent: int | None) -> bool:
    if extent is None or not isinstance(index, Constant):
        return False
    data = np.asarray(index.data)
    return data.dtype.kind in "iu" and bool(((data >= -extent) & (data < extent)).all())
