"""Elementwise division of whole numbers: where it occurs, which divisors cannot be zero, and the check of others."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import IntDiv, Maximum, Mod
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise

DIVISOR = CheckAndRaise(ZeroDivisionError, "integer division or modulo by zero")


def divides_integers(node: Apply) -> bool:
    """Return whether a node is an elementwise division or remainder of whole numbers."""
    scalar_op = node.op.scalar_op if isinstance(node.op, Elemwise) else None
    return isinstance(scalar_op, IntDiv | Mod) and node.outputs[0].type.numpy_dtype.kind in "iub"


def is_nonzero(variable: Variable) -> bool:
    """Return whether no element of an array of whole numbers can be zero, as far as its graph tells."""
    if isinstance(variable, Constant):
        return bool(np.all(variable.data != 0))
    node: Any = variable.owner
    if node is None:
        return False
    if isinstance(node.op, DimShuffle | Alloc):
        return is_nonzero(node.inputs[0])
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Maximum):
        return any(isinstance(v, Constant) and bool(np.all(v.data > 0)) for v in map(without_view, node.inputs))
    return isinstance(node.op, CheckAndRaise) and node.op.exc_type is ZeroDivisionError


def checked_divisor(divisor: Variable) -> Variable:
    """Return whole numbers that are checked for zero, as the C backend does; the same ones if they cannot be zero."""
    return divisor if is_nonzero(divisor) else DIVISOR(divisor, pt.all(pt.neq(divisor, 0)))


def without_view(variable: Variable) -> Variable:
    """Return the array of which a variable is a view with dimensions of length one, or permuted; else the variable."""
    is_view = variable.owner is not None and isinstance(variable.owner.op, DimShuffle)
    return variable.owner.inputs[0] if is_view else variable
