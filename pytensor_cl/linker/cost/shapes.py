"""Shape inference: the shapes of all values of a graph from those of its inputs.

Shapes are exact where a rule below gives them. Elsewhere the shape of the largest input is taken. Values that depend on
shapes alone are computed, since other shapes may depend on them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.shape import Reshape, Shape_i
from pytensor.tensor.shape import Shape as ShapeOp
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import TensorType

__all__ = ["Shape", "ShapeEnv", "core_of"]

Shape = tuple[int, ...]

ARITHMETIC = (Elemwise, CAReduce, DimShuffle, MakeVector, ScalarFromTensor, TensorFromScalar, Subtensor, Join, Reshape)
"""Ops that graphs compute shapes with."""


class UnknownShape(Exception):
    """The shape depends on values that are not known."""


def core_of(op: Any) -> Any:
    """Return the Op that works on each element of a batch, or the Op itself."""
    return op.core_op if isinstance(op, Blockwise) else op


class ShapeEnv:
    """The known shapes of a graph, and the values that depend on shapes alone.

    Parameters
    ----------
    shapes
        Variable to shape.
    """

    def __init__(self, shapes: dict[Variable, Shape]) -> None:
        self.shapes = shapes
        self.values: dict[Variable, np.ndarray] = {}

    def shape(self, variable: Variable) -> Shape:
        """Return the shape of a value."""
        return np.shape(variable.data) if isinstance(variable, Constant) else self.shapes[variable]

    def value(self, variable: Variable) -> np.ndarray:
        """Return a known value, or raise `UnknownShape`."""
        if isinstance(variable, Constant):
            return np.asarray(variable.data)
        if variable not in self.values:
            raise UnknownShape
        return self.values[variable]

    def number(self, variable: Variable) -> int:
        """Return a known integer, or raise `UnknownShape`."""
        return int(self.value(variable))

    def infer(self, node: Apply) -> None:
        """Infer the shapes of the results of a node, and their values where they are known."""
        self.shapes.update(zip(node.outputs, self._shapes_of(node), strict=True))
        try:
            self._compute(node)
        except Exception:  # wrong data: the call itself raises
            return

    def _compute(self, node: Apply) -> None:
        (output,) = node.outputs
        if isinstance(node.op, Shape_i):
            self.values[output] = np.asarray(self.shape(node.inputs[0])[node.op.i])
        elif isinstance(node.op, ShapeOp):
            self.values[output] = np.asarray(self.shape(node.inputs[0]), dtype=np.int64)
        elif isinstance(node.op, ARITHMETIC) and all(isinstance(v, Constant) or v in self.values for v in node.inputs):
            cells: list[list[Any]] = [[None]]
            node.op.perform(node, [self.value(v) for v in node.inputs], cells)
            self.values[output] = np.asarray(cells[0][0])

    def _shapes_of(self, node: Apply) -> list[Shape]:
        exact = next((_RULES[t] for t in type(core_of(node.op)).__mro__ if t in _RULES), None)
        try:
            found = exact(node, self) if exact is not None else None
        except (UnknownShape, ArithmeticError, IndexError, ValueError, TypeError):
            found = None
        if found is not None and len(found) == node.outputs[0].type.ndim:
            return [tuple(max(int(n), 0) for n in found)] * len(node.outputs)
        return [self._shape_of_largest_input(v, node) for v in node.outputs]

    def _shape_of_largest_input(self, variable: Variable, node: Apply) -> Shape:
        if not isinstance(variable.type, TensorType) or not variable.type.ndim:
            return ()
        known = variable.type.shape
        if None not in known:
            return known
        largest = max(map(self.shape, node.inputs), key=prod, default=())
        found = largest if len(largest) == len(known) else (*[1] * (len(known) - 1), prod(largest))
        return tuple(n if of_type is None else of_type for n, of_type in zip(found, known, strict=True))


# Rules: the shape of the results of a node


def _broadcast(node: Apply, known: ShapeEnv) -> Shape:
    return _common([known.shape(v) for v in node.inputs])


def _common(shapes: Sequence[Shape]) -> Shape:
    ndim = max(map(len, shapes), default=0)
    aligned = ((1,) * (ndim - len(shape)) + shape for shape in shapes)
    return tuple(next((n for n in along if n != 1), 1) for along in zip(*aligned, strict=True))


def _dimshuffle(node: Apply, known: ShapeEnv) -> Shape:
    order: Sequence[Any] = node.op.new_order
    shape = known.shape(node.inputs[0])
    return tuple(1 if axis == "x" else shape[axis] for axis in order)


def _reduction(node: Apply, known: ShapeEnv) -> Shape:
    axes = node.op.axis
    return () if axes is None else tuple(n for k, n in enumerate(known.shape(node.inputs[0])) if k not in axes)


def _product(node: Apply, known: ShapeEnv) -> Shape:
    left, right = (known.shape(v) for v in node.inputs)
    batch = _common([left[:-2], right[:-2]])
    return (*batch, *left[-2:-1], *right[-1:]) if len(right) > 1 else left[:-1]


def _determinant(node: Apply, known: ShapeEnv) -> Shape:
    return known.shape(node.inputs[0])[:-2]


def _solution(node: Apply, known: ShapeEnv) -> Shape:
    a, b = (known.shape(v) for v in node.inputs[:2])
    core = core_of(node.op).b_ndim
    return (*_common([a[:-2], b[:-core]]), *b[-core:])


def _first_input(node: Apply, known: ShapeEnv) -> Shape:
    return known.shape(node.inputs[0])


def _alloc(node: Apply, known: ShapeEnv) -> Shape:
    return tuple(map(known.number, node.inputs[1:]))


def _alloc_empty(node: Apply, known: ShapeEnv) -> Shape:
    return tuple(map(known.number, node.inputs))


def _arange(node: Apply, known: ShapeEnv) -> Shape:
    start, stop, step = map(known.number, node.inputs)
    return (len(range(start, stop, step)),)


def _eye(node: Apply, known: ShapeEnv) -> Shape:
    return known.number(node.inputs[0]), known.number(node.inputs[1])


def _reshape(node: Apply, known: ShapeEnv) -> Shape:
    elements, wanted = prod(known.shape(node.inputs[0])), [int(n) for n in known.value(node.inputs[1])]
    rest = prod(n for n in wanted if n >= 0)
    return tuple(elements // max(rest, 1) if n < 0 else n for n in wanted)


def _join(node: Apply, known: ShapeEnv) -> Shape:
    op: Any = node.op
    shapes = [known.shape(v) for v in node.inputs]
    return tuple(sum(along) if k == op.axis else along[0] for k, along in enumerate(zip(*shapes, strict=True)))


def _entries(node: Apply, first: int, known: ShapeEnv) -> Iterator[Any]:
    """Yield the entries of an index, slices with integers."""
    if isinstance(node.op, Blockwise):  # each element of the batch has an index of its own
        raise UnknownShape
    for entry in indices_from_subtensor(node.inputs[first:], node.op.idx_list):
        if isinstance(entry, slice):
            yield slice(*(None if v is None else known.number(v) for v in (entry.start, entry.stop, entry.step)))
        else:
            yield entry


def _subtensor(node: Apply, known: ShapeEnv) -> Shape:
    shape, found = known.shape(node.inputs[0]), []
    entries = list(_entries(node, 1, known))
    for n, entry in zip(shape, entries, strict=False):
        if isinstance(entry, slice):
            found.append(len(range(*entry.indices(n))))
    return (*found, *shape[len(entries) :])


def _advanced_subtensor(node: Apply, known: ShapeEnv) -> Shape:
    shape = known.shape(node.inputs[0])
    entries = list(_entries(node, 1, known))
    arrays = [k for k, entry in enumerate(entries) if not isinstance(entry, slice)]
    if any(entries[k].type.dtype == "bool" for k in arrays):
        raise UnknownShape
    picked = _common([known.shape(entries[k]) for k in arrays])
    rest = [len(range(*e.indices(n))) if isinstance(e, slice) else n for e, n in zip(entries, shape, strict=False)]
    is_together = arrays == list(range(arrays[0], arrays[-1] + 1))
    before = [rest[k] for k in range(arrays[0])] if is_together else []
    after = [rest[k] for k in range(len(entries)) if k not in arrays and not (is_together and k < arrays[0])]
    return (*before, *picked, *after, *shape[len(entries) :])


_RULES: Mapping[type, Callable[[Apply, ShapeEnv], Shape]] = {
    Elemwise: _broadcast,
    DimShuffle: _dimshuffle,
    CAReduce: _reduction,
    Argmax: _reduction,
    Dot: _product,
    Subtensor: _subtensor,
    AdvancedSubtensor: _advanced_subtensor,
    Alloc: _alloc,
    AllocEmpty: _alloc_empty,
    ARange: _arange,
    Eye: _eye,
    Reshape: _reshape,
    Join: _join,
    **dict.fromkeys((Solve, SolveTriangular, CholeskySolve), _solution),
    **dict.fromkeys((Det, SLogDet), _determinant),
    **dict.fromkeys((IncSubtensor, AdvancedIncSubtensor), _first_input),
}
