"""How long the axes of a graph's arrays are, said by what they are computed from.

Shape inference proves that operands fit by comparing their lengths in the graph. Who only looks whether something is
within all of them, or all are the same, needs no proof.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

__all__ = ["axis_lengths", "length_conditions", "length_sources"]

Axis = tuple[Variable, int]


def _of_operands(node: Apply, axis: int) -> list[Axis]:
    return [(v, axis) for v in node.inputs if not v.type.broadcastable[axis]]


def _of_shuffled(node: Apply, axis: int) -> list[Axis]:
    order: Any = node.op.new_order
    return [] if order[axis] == "x" else [(node.inputs[0], order[axis])]


def _of_rows(node: Apply, axis: int) -> list[Axis]:
    op: Any = node.op
    if op.idx_list != (0,) or node.inputs[1].type.dtype == "bool":
        return []
    index = node.inputs[1]
    return [(index, axis)] if axis < index.type.ndim else [(node.inputs[0], axis - index.type.ndim + 1)]


def _of_first(node: Apply, axis: int) -> list[Axis]:
    return [(node.inputs[0], axis)]


def _of_filled(node: Apply, axis: int) -> list[Axis]:
    length = node.inputs[1 + axis].owner
    if length is None:
        return []
    if isinstance(length.op, Shape_i):
        return [(length.inputs[0], length.op.i)]
    shape = length.inputs[0].owner
    at = length.op.idx_list if isinstance(length.op, Subtensor) else ()
    if shape is None or not isinstance(shape.op, Shape) or len(at) != 1 or len(length.inputs) != 2:
        return []
    position = length.inputs[1]
    return [(shape.inputs[0], int(position.data))] if isinstance(position, Constant) else []


_STEPS: dict[type, Callable[[Apply, int], list[Axis]]] = {
    Elemwise: _of_operands,
    DimShuffle: _of_shuffled,
    AdvancedSubtensor: _of_rows,
    IncSubtensor: _of_first,
    AdvancedIncSubtensor: _of_first,
    Alloc: _of_filled,
}


def length_sources(variable: Variable, axis: int) -> dict[Axis, None]:
    """Return axes that have the length of an axis wherever that is computed without an error.

    Parameters
    ----------
    variable, axis
        An array and a position among its dimensions.

    Returns
    -------
    dict
        Arrays that come from elsewhere, with positions among their dimensions; in the same order each time.
    """
    found: dict[Axis, None] = {}
    seen: set[Axis] = set()
    pending = [(variable, axis)]
    while pending:
        this = pending.pop()
        if this not in seen:
            seen.add(this)
            steps = list(_before(*this))
            pending += steps
            if not steps:
                found[this] = None
    return found


def _before(variable: Variable, axis: int) -> Iterator[Axis]:
    node = variable.owner
    if node is not None and type(node.op) in _STEPS:
        yield from _STEPS[type(node.op)](node, axis)


def axis_lengths(variable: Variable, axis: int) -> list[Variable]:
    """Return 0-d integers, each the length of an axis if all that the array is computed from fits.

    The least of them is no more than the axis has, even where a rewrite leaves out an operand that does not fit: zero
    times ``a``, plus ``b``, has the length of ``b``.

    Parameters
    ----------
    variable, axis
        An array and a position among its dimensions.
    """
    return list(map(_length, _known_or_origins(variable, axis)))


def length_conditions(variable: Variable, axis: int, other: Variable, at: int) -> list[Variable]:
    """Return conditions that hold if two axes have the same length, whatever rewrites leave out; often none.

    Parameters
    ----------
    variable, axis, other, at
        Arrays, and positions among their dimensions.
    """
    first, *rest = _known_or_origins(variable, axis) | _known_or_origins(other, at)
    return [pt.eq(_length(first), _length(length)) for length in rest]


def _known_or_origins(variable: Variable, axis: int) -> dict[Axis | int, None]:
    known = variable.type.shape[axis]
    lengths: Iterable[Axis | int] = length_sources(variable, axis) if known is None else [known]
    return dict.fromkeys(lengths)


def _length(of: Axis | int) -> Variable:
    return pt.constant(of, dtype="int64") if isinstance(of, int) else of[0].shape[of[1]]
