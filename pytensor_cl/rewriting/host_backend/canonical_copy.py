"""The graph in canonical form: kept so that a backend of the host can run it where a device cannot win."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.compile.aliasing import Supervisor
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
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pytensor_cl._compat import inline_op_from_graphs
from pytensor_cl.rewriting.host_backend.guards import draws_the_same, guard, may_need_guard, selects
from pytensor_cl.type import GpuArrayType

__all__ = ["Alternative", "alternative_of", "carry", "consider", "remember"]

EQUAL: tuple[type[Op], ...] = (
    *(Alloc, AllocEmpty, ARange, ExtractDiag, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar),
    *(CAReduce, DimShuffle, Elemwise, CumOp, Argmax, Dot, CheckAndRaise, DeepCopyOp, ViewOp),
    *(Reshape, Shape, Shape_i, SpecifyShape, IncSubtensor, Subtensor, Split, AllocDiag, Nonzero),
    *(SortOp, ArgSortOp, SearchsortedOp, Repeat, Unique, Scan),
    *(Cholesky, CholeskySolve, Det, MatrixInverse, QR, SLogDet, Solve, SolveTriangular),
)
"""Ops of which NUMBA finds the errors that other backends find, with the help of `guards`; a call that fails is
repeated on the device, which says what is wrong. Those that nobody has looked at are left out; so are Eigh and SVD, for
which NUMBA returns NaN where others raise. Scan runs on the host by NUMBA either way. Random draws are among them if
NUMBA's are NumPy's, number by number. Graphs with other Ops are for the C backend alone, whose errors and draws are
those of the device's functions."""

ON_HOST = "opencl__adapt=False"
NOT_AUTO = "opencl__placement is not auto"
NO_RECIPE = "the mode has rewrites of its own"
NAMES_A_DEVICE = "the graph itself says what is on a device"


@dataclass(frozen=True)
class Alternative:
    """What is needed to compile a graph for the host.

    Attributes
    ----------
    graph
        A copy of the graph in canonical form, from before all rewrites that know of devices.
    objection
        Why NUMBA must not run it, if so.
    is_for_c
        Whether the C backend may run it.
    mode
        The mode that it was compiled for.
    draws
        Positions of the inputs that are random generators whose state a call may change where it is.
    """

    graph: FunctionGraph
    objection: str
    is_for_c: bool
    mode: Mode
    draws: tuple[int, ...]

    def guarded(self) -> FunctionGraph:
        """Return a copy of the graph with checks that NUMBA leaves out, or as it is if it needs none."""
        graph = _copied(self.graph)
        if any(map(may_need_guard, _nodes(graph))):
            inline_op_from_graphs(graph)  # what is inside needs guards too
            guard(graph)
        return graph


@dataclass(frozen=True)
class _Case:
    """What is known of an alternative before the graph is in canonical form: the last four attributes of it."""

    objection: str
    is_for_c: bool
    mode: Mode
    draws: tuple[int, ...]


def consider(fgraph: FunctionGraph, placement: str, adapt: bool) -> None:
    """Note whether the host could run a graph as well, or why it must not.

    Parameters
    ----------
    fgraph
        The graph of a function, not rewritten yet.
    placement, adapt
        The flags.
    """
    fgraph.opencl_alternative = _case(fgraph, placement, adapt)


def remember(fgraph: FunctionGraph) -> None:
    """Keep a copy of a graph that the host could run as well.

    In canonical form it has a fraction of the nodes that the user's has: gradients, above all. Others need not bring it
    into that form again.

    Parameters
    ----------
    fgraph
        A graph that `consider` has seen, in canonical form.
    """
    case = getattr(fgraph, "opencl_alternative", None)
    if not isinstance(case, _Case):
        return
    fgraph.opencl_alternative = Alternative(_copied(fgraph), case.objection, case.is_for_c, case.mode, case.draws)


def carry(fgraph: FunctionGraph) -> None:
    """Move what was kept to a variable of the graph: copies of the graph have copies of that, not of the graph's."""
    found = fgraph.__dict__.pop("opencl_alternative", None)
    if found is not None and fgraph.outputs:
        fgraph.outputs[0].tag.opencl_alternative = found


def alternative_of(fgraph: FunctionGraph) -> "Alternative | str":
    """Return what was kept of a graph, or the reason why nothing was."""
    found: Alternative | _Case | str = NOT_AUTO
    if fgraph.outputs:
        found = getattr(fgraph.outputs[0].tag, "opencl_alternative", found)
    return NO_RECIPE if isinstance(found, _Case) else found


def _case(fgraph: FunctionGraph, placement: str, adapt: bool) -> _Case | str:
    if placement != "auto":
        return NOT_AUTO
    if not adapt:
        return ON_HOST
    mode = get_active_mode(fgraph)
    if not hasattr(mode, "provided_optimizer"):
        return NO_RECIPE
    nodes = list(_nodes(fgraph))
    if any(isinstance(v.type, GpuArrayType) for v in (*fgraph.inputs, *(v for n in nodes for v in n.outputs))):
        return NAMES_A_DEVICE
    objection, is_for_c = _objection(fgraph, nodes), not any(map(_is_not_for_c, nodes))
    if objection and not is_for_c:
        return f"{objection}, and the C backend compares whole numbers as float64, or has no code for float16"
    return _Case(objection, is_for_c, mode, _draws(fgraph))


def _copied(fgraph: FunctionGraph) -> FunctionGraph:
    """Return a copy without the features of a graph that is being rewritten: shapes, above all, take long to note."""
    return fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)[0]


def _objection(fgraph: FunctionGraph, nodes: list[Apply]) -> str:
    """Return why NUMBA must not run a graph, if so."""
    if not all(type(v.type) in (TensorType, RandomGeneratorType) for v in (*fgraph.inputs, *fgraph.outputs)):
        return "inputs or results that are no tensors"
    other = next((n for n in nodes if not _is_equal(n)), None)
    return "" if other is None else f"NUMBA may treat errors in the data of {other.op} differently"


def _is_not_for_c(node: Apply) -> bool:
    """Whether it is the larger or the smaller of numbers of 64 bits: C's code for them goes through float64.

    Or a function of float16: C has no code for it, and a million elements take ten seconds in Python.
    """
    if isinstance(node.op, Elemwise | CAReduce) and any(v.type.dtype == "float16" for v in node.outputs):
        return True
    op = getattr(node.op, "scalar_op", node.op)
    if hasattr(op, "fgraph"):  # Composite, Scan
        return any(map(_is_not_for_c, op.fgraph.toposort()))
    is_wide = any(getattr(v.type, "dtype", "") in ("int64", "uint64") for v in node.outputs)
    return is_wide and isinstance(op, Maximum | Minimum)


def _draws(fgraph: FunctionGraph) -> tuple[int, ...]:
    """Positions of random generators that nobody protects: what a call leaves of them is all that anyone sees."""
    kept = {v for f in fgraph._features if isinstance(f, Supervisor) for v in f.protected}
    return tuple(i for i, v in enumerate(fgraph.inputs) if isinstance(v.type, RandomGeneratorType) and v not in kept)


def _nodes(fgraph: Any) -> Iterator[Apply]:
    """Nodes of a graph and of the graphs inside it."""
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            yield from _nodes(node.op.fgraph)
        else:
            yield node


def _is_equal(node: Apply) -> bool:
    if draws_the_same(node):
        return True
    if not all(isinstance(v.type, TensorType | ScalarType) or not v.owner for v in (*node.inputs, *node.outputs)):
        return False
    if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        return all(v.type.dtype != "bool" for v in node.inputs[1:]) or selects(node)
    if isinstance(node.op, CumOp):  # NUMBA adds up other integers as int64, whatever the type of the result is
        return node.outputs[0].type.dtype == "int64" or node.outputs[0].type.numpy_dtype.kind in "fc"
    if isinstance(node.op, ARange):
        return isinstance(node.inputs[2], Constant)
    if isinstance(node.op, Elemwise):
        return not _hides_division(node.op.scalar_op)
    if isinstance(node.op, Blockwise):
        return isinstance(node.op.core_op, EQUAL)
    return isinstance(node.op, EQUAL)


def _hides_division(scalar_op: Op) -> bool:
    """Whether it divides whole numbers where `guards` does not see it: the least one divided by minus one is fatal."""
    if not isinstance(scalar_op, Composite):
        return False
    divisions = (n for n in scalar_op.fgraph.toposort() if isinstance(n.op, IntDiv | Mod | Composite))
    return any(isinstance(n.op, Composite) or n.outputs[0].type.dtype.startswith(("int", "uint")) for n in divisions)
