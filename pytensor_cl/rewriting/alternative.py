"""The graph as the user wrote it: kept so that NUMBA can compile it where a device cannot win."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import get_active_mode
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite, IntDiv, Maximum, Minimum, Mod, ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import (
    Alloc,
    AllocDiag,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    Nonzero,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat, SearchsortedOp, Unique
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.qr import QR
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pytensor_cl._compat import inline_op_from_graphs
from pytensor_cl.rewriting.guards import guard

__all__ = ["Alternative", "alternative_of", "carry", "remember"]

EQUAL: tuple[type[Op], ...] = (
    *(Alloc, AllocEmpty, ARange, ExtractDiag, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar),
    *(CAReduce, DimShuffle, Elemwise, CumOp, Argmax, Dot, CheckAndRaise, DeepCopyOp, ViewOp),
    *(Reshape, Shape, Shape_i, SpecifyShape, IncSubtensor, Subtensor, Split, AllocDiag, Nonzero),
    *(SortOp, ArgSortOp, SearchsortedOp, Repeat, Unique, Scan),
    *(Cholesky, CholeskySolve, Det, MatrixInverse, QR, SLogDet, Solve, SolveTriangular),
)
"""Ops of which NUMBA finds the errors that other backends find, with the help of `guards`; a call that fails is
repeated on the device, which says what is wrong. Those that nobody has looked at are left out; so are Eigh and SVD, for
which NUMBA returns NaN where others raise. Scan runs on the host by NUMBA either way."""

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
    graph = fgraph.clone(check_integrity=False)
    inline_op_from_graphs(graph)  # what is inside needs guards too
    guard(graph)
    return Alternative(graph, mode)


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
    if isinstance(node.op, Nonzero | Repeat | Split):
        return True
    is_slice = isinstance(node.op, Subtensor) and any(isinstance(i, slice) for i in node.op.idx_list)
    return is_slice or isinstance(node.op, ARange | Eye | Alloc | AllocEmpty | ExtractDiag)


def _is_equal(node: Apply) -> bool:
    if not all(isinstance(v.type, TensorType | ScalarType) or not v.owner for v in (*node.inputs, *node.outputs)):
        return False
    if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        return all(v.type.dtype != "bool" for v in node.inputs[1:])
    if isinstance(node.op, CumOp):  # NUMBA adds up other integers as int64, whatever the type of the result is
        return node.outputs[0].type.dtype == "int64" or node.outputs[0].type.numpy_dtype.kind in "fc"
    if isinstance(node.op, ARange):
        return isinstance(node.inputs[2], Constant)
    if isinstance(node.op, Elemwise):
        return _is_harmless(node.op.scalar_op, node)
    if isinstance(node.op, Blockwise):
        return isinstance(node.op.core_op, EQUAL)
    return isinstance(node.op, EQUAL)


def _is_harmless(scalar_op: Op, node: Apply) -> bool:
    """Whether no value stops the process, as the least integer divided by minus one does."""
    if isinstance(scalar_op, Composite):
        return all(_is_harmless(n.op, n) for n in scalar_op.fgraph.toposort())
    divides = isinstance(scalar_op, IntDiv | Mod)
    return not divides or any(v.type.dtype.startswith("float") for v in node.outputs)
