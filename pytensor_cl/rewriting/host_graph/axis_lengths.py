"""Lengths of axes, expressed by the lengths of the arrays from which an array is computed.

Shape inference compares the lengths of operands in the graph. The guards need no such proof: they check that an index
is within all of them, or that all are equal.
"""

from collections.abc import Iterable
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

Axis = tuple[Variable, int]


def _length_inputs(node: Apply, axis: int) -> list[Axis]:
    """Return the axes of a node's inputs that have the length of an axis of its output; none if that is unknown."""
    op: Any = node.op
    first = node.inputs[0]
    match op:
        case Elemwise():
            return [(v, axis) for v in node.inputs if not v.type.broadcastable[axis]]
        case DimShuffle():
            source = op.new_order[axis]
            return [] if source == "x" else [(first, source)]
        case AdvancedSubtensor():
            index = node.inputs[1]
            if op.idx_list != (0,) or index.type.dtype == "bool":
                return []
            return [(index, axis)] if axis < index.type.ndim else [(first, axis - index.type.ndim + 1)]
        case IncSubtensor() | AdvancedIncSubtensor():
            return [(first, axis)]
        case Alloc():
            return _source_of_length(node.inputs[1 + axis])
    return []


def _source_of_length(length: Variable) -> list[Axis]:
    """Return the axis whose length a variable is, if its graph is Shape_i(x) or Shape(x)[i]."""
    node = length.owner
    if node is None:
        return []
    if isinstance(node.op, Shape_i):
        return [(node.inputs[0], node.op.i)]
    if not isinstance(node.op, Subtensor) or len(node.op.idx_list) != 1 or len(node.inputs) != 2:
        return []
    shape, position = node.inputs[0].owner, node.inputs[1]
    is_known = shape is not None and isinstance(shape.op, Shape) and isinstance(position, Constant)
    return [(shape.inputs[0], int(position.data))] if is_known else []


def length_sources(variable: Variable, axis: int) -> dict[Axis, None]:
    """Return arrays and positions of axes that have the length of an axis in every call without an error, in order."""
    found: dict[Axis, None] = {}
    seen: set[Axis] = set()
    pending = [(variable, axis)]
    while pending:
        this = pending.pop()
        if this not in seen:
            seen.add(this)
            node = this[0].owner
            inputs = [] if node is None else _length_inputs(node, this[1])
            pending += inputs
            if not inputs:
                found[this] = None
    return found


def axis_lengths(variable: Variable, axis: int) -> list[Variable]:
    """Return 0-d integers, each of which is the length of an axis if the operands of all nodes fit.

    Their minimum is a lower bound, even if a rewrite removes an operand that does not fit: ``0 * a + b`` has the length
    of ``b``.
    """
    return list(map(_length, _known_or_origins(variable, axis)))


def length_conditions(variable: Variable, axis: int, other: Variable, at: int) -> list[Variable]:
    """Return conditions under which axis number `axis` of a variable and number `at` of another have the same length.

    There are none if that is known.
    """
    first, *rest = _known_or_origins(variable, axis) | _known_or_origins(other, at)
    return [pt.eq(_length(first), _length(length)) for length in rest]


def _known_or_origins(variable: Variable, axis: int) -> dict[Axis | int, None]:
    known = variable.type.shape[axis]
    lengths: Iterable[Axis | int] = length_sources(variable, axis) if known is None else [known]
    return dict.fromkeys(lengths)


def _length(of: Axis | int) -> Variable:
    return pt.constant(of, dtype="int64") if isinstance(of, int) else of[0].shape[of[1]]
