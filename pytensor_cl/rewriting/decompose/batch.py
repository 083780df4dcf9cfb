"""The batch dimensions of a Blockwise node."""

from collections.abc import Callable, Iterable
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, get_underlying_scalar_constant_value
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.shape import shape_i
from pytensor.tensor.subtensor import Subtensor

_LENGTHS = CheckAndRaise(ValueError, "the batch dimensions of an Op do not match (no run-time broadcasting)")
_RAGGED = CheckAndRaise(ValueError, "the results of a batch have different shapes")


class Batch:
    """A Blockwise node, its core Op, and the number of batch dimensions."""

    def __init__(self, fgraph: FunctionGraph, node: Apply) -> None:
        self.node = node
        self.core: Any = node.op.core_op
        self.ndim: int = node.op.batch_ndim(node)
        self._fgraph = fgraph

    def extent(self, variable: Variable, axis: int) -> Variable:
        """Return the length of a dimension, from shape inference where possible."""
        return shape_i(variable, axis, self._fgraph)

    def is_same(self, variable: Variable) -> bool:
        """Return whether an input is the same for the whole batch."""
        return all(variable.type.broadcastable[: self.ndim])

    def squeezed(self, variable: Variable) -> Variable:
        """Return an input that is the same for the whole batch without batch dimensions."""
        return variable.dimshuffle(*range(self.ndim, variable.type.ndim))

    def length(self, axis: int) -> Variable:
        """Return the length of a batch dimension, with a check that all inputs agree."""
        first, *others = self._lengths(axis)
        return _LENGTHS(first, *(pt.eq(first, other) for other in others)) if others else first

    def _lengths(self, axis: int) -> list[Variable]:
        """Return the different expressions for the length of a batch dimension."""
        known = self.node.outputs[0].type.shape[axis]
        free = [v for v in self.node.inputs if not v.type.broadcastable[axis]]
        if known is not None and all(v.type.shape[axis] == known for v in free):
            return [pt.constant(known, dtype="int64")]
        return list(dict.fromkeys(self.extent(v, axis) for v in free))

    def checked(self, variable: Variable, axes: Iterable[int]) -> Variable:
        """Return a variable with a check that all inputs agree on the lengths of batch dimensions."""
        lengths = (self._lengths(axis) for axis in axes)
        equal = [pt.eq(first, other) for first, *others in lengths for other in others]
        return _LENGTHS(variable, *equal) if equal else variable

    def shape(self) -> list[Variable]:
        """Return the lengths of the batch dimensions."""
        return [self.length(axis) for axis in range(self.ndim)]

    def broadcast(self, variable: Variable) -> Variable:
        """Return an input, broadcast along the batch dimensions."""
        if variable.type.broadcastable[: self.ndim] == self.node.outputs[0].type.broadcastable[: self.ndim]:
            return variable
        core = [self.extent(variable, axis) for axis in range(self.ndim, variable.type.ndim)]
        return pt.alloc(variable, *self.shape(), *core)

    def uniform(self, variable: Variable) -> Variable:
        """Return the value that all batches must share, with a check of the values."""
        same = repeated(variable, self.ndim)
        if same is not None:
            return same
        axes = tuple(range(self.ndim))
        largest = variable.max(axes)  # a comparison with each element would prevent fusion
        equal = pt.eq(largest, variable.min(axes))
        return _RAGGED(largest, equal.all() if equal.type.ndim else equal)


def repeated(variable: Variable, ndim: int) -> Variable | None:
    """Return the value that a variable repeats along its first dimensions; None if its graph does not show that."""
    if all(variable.type.broadcastable[:ndim]):
        return variable.dimshuffle(*range(ndim, variable.type.ndim))
    form = _FORMS.get(type(variable.owner.op)) if variable.owner is not None else None
    return form(variable.owner, ndim) if form is not None else None


def _alloc(node: Apply, ndim: int) -> Variable | None:
    value, *lengths = node.inputs
    extra = value.type.ndim - (len(lengths) - ndim)
    if extra > 0:
        value = repeated(value, extra)
    return None if value is None else pt.alloc(value, *lengths[ndim:])


def _each_input(node: Apply, ndim: int) -> Variable | None:
    inputs = [repeated(v, ndim) for v in node.inputs]
    return None if None in inputs else node.op.make_node(*inputs).outputs[0]


def _join(node: Apply, ndim: int) -> Variable | None:
    parts = [repeated(v, ndim) for v in node.inputs]
    return None if None in parts or node.op.axis < ndim else pt.join(node.op.axis - ndim, *parts)


def _dimshuffle(node: Apply, ndim: int) -> Variable | None:
    order = node.op.new_order
    source = repeated(node.inputs[0], ndim) if tuple(order[:ndim]) == tuple(range(ndim)) else None
    return None if source is None else source.dimshuffle(*("x" if d == "x" else d - ndim for d in order[ndim:]))


def _subtensor(node: Apply, ndim: int) -> Variable | None:
    first, rest = node.op.idx_list[:ndim], node.op.idx_list[ndim:]
    is_whole = len(first) == ndim and all(entry == slice(None) for entry in first)
    source = repeated(node.inputs[0], ndim) if is_whole else None
    return None if source is None else Subtensor(rest).make_node(source, *node.inputs[1:]).outputs[0]


_FORMS: dict[type, Callable[[Apply, int], Variable | None]] = {
    Alloc: _alloc,
    DimShuffle: _dimshuffle,
    Elemwise: _each_input,
    Join: _join,
    Subtensor: _subtensor,
}


def known_integer(variable: Variable) -> int | None:
    """Return the constant integer that all elements of a variable equal; None if there is none."""
    try:
        value = get_underlying_scalar_constant_value(variable)
    except NotScalarConstantError:
        return None
    return int(value) if value == int(value) else None
