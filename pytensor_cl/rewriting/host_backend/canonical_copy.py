"""A copy of the graph in canonical form, for the NUMBA and C backends.

Where a device is slower, one of them runs the function instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.compile.aliasing import Supervisor
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.configdefaults import config
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
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.type import TensorType

from pytensor_cl._compat.inner_graphs import inline_op_from_graphs
from pytensor_cl.rewriting.host_backend.constant_masks import has_constant_masks, replace_constant_masks
from pytensor_cl.rewriting.host_backend.guards import add_guards, has_same_draws, is_mask_selection, may_need_guard
from pytensor_cl.type import GpuArrayType

__all__ = [
    "CanonicalCopy",
    "attach_canonical_copy",
    "canonical_copy_of",
    "check_host_backends",
    "keep_canonical_copy",
]

EQUAL: tuple[type[Op], ...] = (
    *(Alloc, AllocEmpty, ARange, ExtractDiag, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar),
    *(CAReduce, DimShuffle, Elemwise, CumOp, Argmax, Dot, CheckAndRaise, DeepCopyOp, ViewOp),
    *(Reshape, Shape, Shape_i, SpecifyShape, IncSubtensor, Subtensor, Split, AllocDiag, Nonzero),
    *(SortOp, ArgSortOp, SearchsortedOp, Repeat, Unique, Scan),
    *(Cholesky, CholeskySolve, Det, MatrixInverse, QR, SLogDet, Solve, SolveTriangular),
)
"""Ops whose data errors NUMBA reports, together with the checks of `guards`, wherever the other backends report them.

A call that fails under NUMBA is repeated on the device, which words the error. Ops that were not examined are left out.
Eigh and SVD are left out because NUMBA returns NaN where the others raise. NUMBA runs Scan on the host in any case.
Random draws count as equal if NUMBA draws NumPy's numbers. Graphs with other Ops may run under C only: its errors and
draws are those of the device's functions.
"""

ON_HOST = "opencl__select_backend=False"
NOT_AUTO = "opencl__placement is not auto"
NO_RECIPE = "the mode has rewrites of its own"
OTHER_NUMBERS = "opencl__random: other backends draw other numbers"
NAMES_A_DEVICE = "the graph itself has values on a device"


@dataclass(frozen=True)
class _Eligibility:
    """What is known of the host backends before the graph is in canonical form."""

    numba_excluded: str
    c_eligible: bool
    mode: Mode
    mutable_rngs: tuple[int, ...]


@dataclass(frozen=True)
class CanonicalCopy:
    """What is needed to compile a graph for the host.

    Attributes
    ----------
    graph
        A copy of the graph in canonical form, taken before the rewrites for devices.
    numba_excluded
        Why NUMBA must not run it; empty if it may.
    c_eligible
        Whether the C backend may run it.
    mode
        The mode for which it was compiled.
    mutable_rngs
        Positions of the random generators among the inputs whose state a call may change in place.
    scattered_inputs
        Positions of the shared variables among the inputs that an update replaces by themselves with other values at
        some indices, such as the table of an embedding.
    """

    graph: FunctionGraph
    numba_excluded: str
    c_eligible: bool
    mode: Mode
    mutable_rngs: tuple[int, ...]
    scattered_inputs: tuple[int, ...] = ()

    def with_guards(self) -> FunctionGraph:
        """Return a copy of the graph with the checks that NUMBA leaves out; a plain copy if it needs none."""
        graph = _copied(self.graph)
        guarded = [node for node in _nodes(graph) if may_need_guard(node)]
        if guarded:
            if not graph.apply_nodes.issuperset(guarded):  # some are in inner graphs
                inline_op_from_graphs(graph)
            replace_constant_masks(graph)
            add_guards(graph)
        return graph


def check_host_backends(fgraph: FunctionGraph, placement: str, adapt: bool) -> None:
    """Note on a graph which host backends may run it, or why none may.

    Parameters
    ----------
    fgraph
        The graph of a function, before all rewrites.
    placement, adapt
        The flags ``opencl__placement`` and ``opencl__select_backend``.
    """
    fgraph.opencl_canonical_copy = _eligibility(fgraph, placement, adapt)


def keep_canonical_copy(fgraph: FunctionGraph) -> None:
    """Keep a copy of a graph that a host backend may run.

    The canonical form has a fraction of the nodes of the user's graph, above all where there are gradients. The host
    backends need not compute it again.

    Parameters
    ----------
    fgraph
        A graph that `check_host_backends` has seen, in canonical form.
    """
    found = getattr(fgraph, "opencl_canonical_copy", None)
    if isinstance(found, _Eligibility):
        facts = found.numba_excluded, found.c_eligible, found.mode, found.mutable_rngs
        fgraph.opencl_canonical_copy = CanonicalCopy(_copied(fgraph), *facts, _scattered_inputs(fgraph))


def attach_canonical_copy(fgraph: FunctionGraph) -> None:
    """Move the copy to the tag of an output: clones of a graph copy the tags of variables, but not attributes."""
    found = fgraph.__dict__.pop("opencl_canonical_copy", None)
    if found is not None and fgraph.outputs:
        fgraph.outputs[0].tag.opencl_canonical_copy = found


def canonical_copy_of(fgraph: FunctionGraph) -> "CanonicalCopy | str":
    """Return the copy that was kept of a graph, or the reason why there is none."""
    found: CanonicalCopy | _Eligibility | str = NOT_AUTO
    if fgraph.outputs:
        found = getattr(fgraph.outputs[0].tag, "opencl_canonical_copy", found)
    return NO_RECIPE if isinstance(found, _Eligibility) else found


def _eligibility(fgraph: FunctionGraph, placement: str, adapt: bool) -> _Eligibility | str:
    """Return which host backends may run a graph, or why none may."""
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
    if config.opencl__random != "numpy" and any(isinstance(n.op, RandomVariable) for n in nodes):
        return OTHER_NUMBERS
    numba_excluded = _reason_against_numba(fgraph, nodes)
    c_eligible = not any(map(_differs_in_c, nodes))
    if numba_excluded and not c_eligible:
        return f"{numba_excluded}, and the C backend compares whole numbers as float64, or has no code for float16"
    return _Eligibility(numba_excluded, c_eligible, mode, _mutable_rngs(fgraph))


def _copied(fgraph: FunctionGraph) -> FunctionGraph:
    """Return a copy without the features of the graph: attaching ShapeFeature to a copy takes long."""
    return fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)[0]


def _reason_against_numba(fgraph: FunctionGraph, nodes: list[Apply]) -> str:
    """Return why NUMBA must not run a graph; an empty text if it may."""
    if not all(type(v.type) in (TensorType, RandomGeneratorType) for v in (*fgraph.inputs, *fgraph.outputs)):
        return "inputs or results that are no tensors"
    other = next((n for n in nodes if not _is_equal_in_numba(n)), None)
    return "" if other is None else f"NUMBA may treat errors in the data of {other.op} differently"


def _differs_in_c(node: Apply) -> bool:
    """Whether the C backend must not run a node.

    Its code for the maximum or minimum of 64-bit integers goes through float64. It has no code for float16: a million
    elements take ten seconds in Python.
    """
    if isinstance(node.op, Elemwise | CAReduce) and any(v.type.dtype == "float16" for v in node.outputs):
        return True
    op = getattr(node.op, "scalar_op", node.op)
    if hasattr(op, "fgraph"):  # Composite, Scan
        return any(map(_differs_in_c, op.fgraph.toposort()))
    is_wide = any(getattr(v.type, "dtype", "") in ("int64", "uint64") for v in node.outputs)
    return is_wide and isinstance(op, Maximum | Minimum)


def _mutable_rngs(fgraph: FunctionGraph) -> tuple[int, ...]:
    """Return the positions of the random generators among the inputs that PyTensor's Supervisor does not protect."""
    protected = {v for f in fgraph._features if isinstance(f, Supervisor) for v in f.protected}
    return tuple(
        i for i, v in enumerate(fgraph.inputs) if isinstance(v.type, RandomGeneratorType) and v not in protected
    )


def _scattered_inputs(fgraph: FunctionGraph) -> tuple[int, ...]:
    """Return the positions of the inputs that updates replace by a scatter into themselves."""
    protected = {v for f in fgraph._features if isinstance(f, Supervisor) for v in f.protected}
    found = []
    for output, position in (fgraph.update_mapping or {}).items():
        variable, new = fgraph.inputs[position], fgraph.outputs[output]
        is_scatter = new.owner is not None and isinstance(new.owner.op, AdvancedIncSubtensor)
        if is_scatter and new.owner.inputs[0] is variable and variable not in protected:
            found.append(position)
    return tuple(found)


def _nodes(fgraph: Any) -> Iterator[Apply]:
    """Yield the nodes of a graph, and those inside its OpFromGraph nodes."""
    for node in fgraph.toposort():
        if isinstance(node.op, OpFromGraph):
            yield from _nodes(node.op.fgraph)
        else:
            yield node


def _is_equal_in_numba(node: Apply) -> bool:
    """Whether NUMBA computes what the other backends compute, and reports the same errors; see `EQUAL`."""
    if has_same_draws(node):
        return True
    if not all(isinstance(v.type, TensorType | ScalarType) or not v.owner for v in (*node.inputs, *node.outputs)):
        return False
    if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        if is_mask_selection(node) or has_constant_masks(node):
            return True
        return all(v.type.dtype != "bool" for v in node.inputs[1:])
    if isinstance(node.op, CumOp):  # NUMBA accumulates other integers as int64, whatever the dtype of the result
        return node.outputs[0].type.dtype == "int64" or node.outputs[0].type.numpy_dtype.kind in "fc"
    if isinstance(node.op, ARange):
        return isinstance(node.inputs[2], Constant)
    if isinstance(node.op, Elemwise):
        return not _has_fused_division(node.op.scalar_op)
    if isinstance(node.op, Blockwise):
        return isinstance(node.op.core_op, EQUAL)
    return isinstance(node.op, EQUAL)


def _has_fused_division(scalar_op: Op) -> bool:
    """Whether a Composite divides integers, which `guards` cannot check: INT_MIN / -1 ends the process under NUMBA."""
    if not isinstance(scalar_op, Composite):
        return False
    divisions = (n for n in scalar_op.fgraph.toposort() if isinstance(n.op, IntDiv | Mod | Composite))
    return any(isinstance(n.op, Composite) or n.outputs[0].type.dtype.startswith(("int", "uint")) for n in divisions)
