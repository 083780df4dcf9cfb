"""Ops that NUMBA may run, and further ones that it may run inside of loops."""

from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp, ViewOp
from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite, IntDiv, Mod, ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import (
    AllocDiag,
    ARange,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import RavelMultiIndex
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.registry import is_numba_safe
from pytensor_cl.rewriting.host_graph.guards import has_same_draws, is_mask_selection
from pytensor_cl.rewriting.host_graph.in_bounds import InBounds
from pytensor_cl.rewriting.host_graph.in_python import InPython, can_run_in_python
from pytensor_cl.rewriting.host_graph.known_faults import NUMBA, fault_of
from pytensor_cl.rewriting.host_graph.masks import has_constant_masks, has_masks

WITHOUT_KERNEL: tuple[type[Op], ...] = (
    *(ScalarFromTensor, TensorFromScalar, DeepCopyOp, ViewOp, Shape, Shape_i, AllocDiag),
)
"""Ops without a device Op that NUMBA runs as the other backends do; see `is_equal_in_numba`."""

INSIDE: tuple[type[Op], ...] = (
    *(IfElse, LazyIfElse, OpFromGraph, RandomVariable, TypeCastingOp, RavelMultiIndex, InBounds, InPython),
)
"""Further Ops that NUMBA runs inside of loops. A draw there is NUMBA's own, and its shape is checked by nobody."""


def is_equal_in_numba(node: Apply) -> bool:
    """Return whether NUMBA computes what the other backends compute, and reports the same errors in data.

    The registration of an Op says it (`register_lift`). An Op counts if NUMBA, with the checks of `guards`, reports the
    errors wherever the other backends report them; a call that fails is repeated on the device, which words the error.
    Ops that were not examined are left out. Eigh and SVD are left out because NUMBA returns NaN where the others raise.
    Random draws count if NUMBA draws NumPy's numbers. Graphs with other Ops may run under C only: its errors and draws
    are those of the device's functions. NUMBA runs Scan in any case: Ops inside of it that are not safe run in Python.
    """
    if has_same_draws(node):
        return True
    if not all(isinstance(v.type, TensorType | ScalarType) or not v.owner for v in (*node.inputs, *node.outputs)):
        return False
    if not isinstance(node.op, Scan) and fault_of(NUMBA, node) is not None:  # a Scan runs such Ops in Python
        return False
    if isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor):
        if is_mask_selection(node) or has_constant_masks(node):
            return True
        return all(v.type.dtype != "bool" for v in node.inputs[1:])
    if isinstance(node.op, ARange):
        return isinstance(node.inputs[2], Constant)
    if isinstance(node.op, Elemwise):
        return not _has_fused_division(node.op.scalar_op)
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return isinstance(op, WITHOUT_KERNEL) or is_numba_safe(op)


def _has_fused_division(scalar_op: Op) -> bool:
    """Return whether a Composite divides integers unchecked by `guards`: INT_MIN / -1 ends the process under NUMBA."""
    if not isinstance(scalar_op, Composite):
        return False
    divisions = (n for n in scalar_op.fgraph.toposort() if isinstance(n.op, IntDiv | Mod | Composite))
    return any(isinstance(n.op, Composite) or n.outputs[0].type.dtype.startswith(("int", "uint")) for n in divisions)


def must_run_in_python(node: Apply) -> bool:
    """Return whether NUMBA's own code for a node inside of a loop would treat errors differently."""
    if is_equal_in_numba(node) or has_masks(node) or not can_run_in_python(node):
        return False
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    return not isinstance(op, INSIDE)
