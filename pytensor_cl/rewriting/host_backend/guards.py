"""Adds checks to the graph for NUMBA that NUMBA leaves out, so that invalid data raises an error."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import IntDiv, Maximum, Minimum, Mod
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.random.basic import (
    BetaRV,
    BinomialRV,
    CategoricalRV,
    ExponentialRV,
    GammaRV,
    GeometricRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    NormalRV,
    PoissonRV,
    StudentTRV,
    UniformRV,
    WeibullRV,
)
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, indices_from_subtensor

from pytensor_cl.rewriting.host_backend.axis_lengths import axis_lengths, length_conditions
from pytensor_cl.rewriting.host_backend.in_bounds import MESSAGE, in_bounds

__all__ = ["add_guards", "has_same_draws", "is_mask_selection", "may_need_guard"]

Check = tuple[int, Variable]
"""The position of an input, and the checked variable that takes its place."""

DIVISOR = CheckAndRaise(ZeroDivisionError, "a divisor of whole numbers is 0 or -1")
ELEMENTS = CheckAndRaise(ValueError, "no elements")
INDEX = CheckAndRaise(IndexError, MESSAGE)
PARAMETER = CheckAndRaise(ValueError, "a parameter that the distribution may not have")
SHAPES = CheckAndRaise(ValueError, "lengths differ")
"""Users do not see these messages: a call that fails on the host is repeated on the device."""


def _index_axes(node: Apply, first: int) -> Iterator[tuple[int, int]]:
    """Yield, for each array of integers, its position among the inputs and the axis that it indexes."""
    op: Any = node.op
    axis, position = 0, first
    for entry in indices_from_subtensor(node.inputs[first:], op.idx_list):
        parts = (entry.start, entry.stop, entry.step) if isinstance(entry, slice) else (entry,)
        if not isinstance(entry, slice) and entry.type.dtype != "bool":
            yield position, axis
        axis += entry.type.ndim if getattr(getattr(entry, "type", None), "dtype", "") == "bool" else 1
        position += sum(part is not None for part in parts)


def is_mask_selection(node: Apply) -> bool:
    """Return whether a node selects the elements of an array where a mask is true, and does nothing else."""
    return isinstance(node.op, AdvancedSubtensor) and node.op.idx_list == (0,) and node.inputs[1].type.dtype == "bool"


def _masks(node: Apply) -> Iterator[Check]:
    """Check the shape of a mask."""
    x, mask = node.inputs
    pairs = zip(mask.type.shape, x.type.shape, tuple(mask.shape), tuple(x.shape), strict=False)
    same = [pt.eq(a, b) for known, other, a, b in pairs if known is None or known != other]
    if same:
        yield 1, SHAPES(mask, *same)


def _indices(node: Apply) -> Iterator[Check]:
    """Check index arrays, or a mask."""
    if is_mask_selection(node):
        yield from _masks(node)
        return
    for position, extents in _uses(node):
        yield position, _checked_index(node.inputs[position], extents)


def _uses(node: Apply) -> Iterator[tuple[int, list[Variable]]]:
    """Yield the positions of index inputs that may be out of bounds, and the lengths of the axes that they index."""
    first = 1 if isinstance(node.op, AdvancedSubtensor) else 2
    x = node.inputs[0]
    for position, axis in _index_axes(node, first):
        if not _is_in_bounds(node.inputs[position], x.type.shape[axis]):
            yield position, axis_lengths(x, axis)


def _checked_index(index: Variable, extents: Sequence[Variable]) -> Variable:
    """Return an index that is checked against the lengths of axes."""
    if isinstance(index, Constant):
        values = index.data.ravel()
        needed = max(int(values.max()) + 1, -int(values.min())) if values.size else 0
        return INDEX(index, *(pt.ge(extent, needed) for extent in extents))
    if index.type.ndim:
        return in_bounds(index, *extents)
    return INDEX(index, *((index >= -extent) & (index < extent) for extent in extents))


def _increments(node: Apply) -> Iterator[Check]:
    """Check the indices, and the shape of the values for a vector of indices: other backends do not broadcast them.

    The check is on the array, not on the values, so that NUMBA can compute the values in the loop that writes them.
    """
    yield from _indices(node)
    op: Any = node.op
    x, y, index = node.inputs[:3]
    if op.idx_list != (0,) or index.type.ndim != 1:
        return
    lengths = [(index, 0), *((x, axis) for axis in range(1, x.type.ndim))][x.type.ndim - y.type.ndim :]
    pairs = [(axis, *of) for axis, of in enumerate(lengths) if not y.type.broadcastable[axis]]
    same = [condition for axis, *of in pairs for condition in length_conditions(y, axis, *of)]
    if same:
        yield 0, SHAPES(x, *same)


def _is_in_bounds(index: Variable, extent: int | None) -> bool:
    """Whether a constant index is within a static length."""
    if extent is None or not isinstance(index, Constant):
        return False
    return bool(((index.data >= -extent) & (index.data < extent)).all())


def _batches(node: Apply) -> Iterator[Check]:
    """Check that the lengths of batch dimensions agree, where none is known to be one."""
    op: Any = node.op
    same: list[Variable] = []
    for axis in range(op.batch_ndim(node)):
        many = [v for v in node.inputs if not v.type.broadcastable[axis]]
        known = {v.type.shape[axis] for v in many}
        if None in known or len(known) > 1:
            same.extend(pt.eq(v.shape[axis], many[0].shape[axis]) for v in many[1:])
    if same:
        yield 0, SHAPES(node.inputs[0], *same)


def _extreme(node: Apply) -> Variable | None:
    """Check a maximum or minimum for an empty input, for which NUMBA returns infinity.

    The check is on the result, so that NUMBA can compute the input in the loop of the reduction.
    """
    if not isinstance(node.op, CAReduce) or not isinstance(node.op.scalar_op, Maximum | Minimum):
        return None
    x = node.inputs[0]
    unknown = [pt.gt(n, 0) for axis in _axes_that_may_be_empty(node) for n in axis_lengths(x, axis)]
    return ELEMENTS(node.outputs[0], *unknown) if unknown else None


def _axes_that_may_be_empty(node: Apply) -> list[int]:
    """Return the axes of a reduction whose static length is zero or unknown."""
    op: Any = node.op
    shape = node.inputs[0].type.shape
    return [axis for axis in (range(len(shape)) if op.axis is None else op.axis) if not shape[axis]]


def _divisors(node: Apply) -> Iterator[Check]:
    """Check divisors of integers: INT_MIN / -1 ends the process."""
    op: Any = node.op
    if isinstance(op.scalar_op, IntDiv | Mod) and node.outputs[0].type.numpy_dtype.kind in "iu":
        divisor = node.inputs[1]
        if not (isinstance(divisor, Constant) and ((divisor.data != 0) & (divisor.data != -1)).all()):
            yield 1, DIVISOR(divisor, pt.all(pt.neq(divisor, 0) & pt.neq(divisor, -1)))


def _positive(x: Any) -> Any:
    return x > 0


def _rate(x: Any) -> Any:
    return (x >= 0) & (x < 1e18)


def _probability(x: Any) -> Any:
    return (x >= 0) & (x <= 1)


def _limit(x: Any) -> Any:
    return abs(x) < 1e300


_PARAMETERS: dict[type, dict[int, Callable[[Any], Any]]] = {
    BetaRV: {0: _positive, 1: _positive},
    BinomialRV: {0: _rate, 1: _probability},
    CategoricalRV: {0: _probability},
    ExponentialRV: {0: _positive},
    GammaRV: {0: _positive, 1: _positive},
    GeometricRV: {0: lambda p: (p > 0) & (p <= 1)},
    HalfNormalRV: {1: _positive},
    InvGammaRV: {0: _positive, 1: _positive},
    LaplaceRV: {1: _positive},
    LogNormalRV: {1: _positive},
    LogisticRV: {1: _positive},
    NormalRV: {1: _positive},
    PoissonRV: {0: _rate},
    StudentTRV: {0: _positive, 2: _positive},
    UniformRV: {0: _limit, 1: _limit},
    WeibullRV: {0: _positive},
}
"""Distributions for which NUMBA draws NumPy's numbers and leaves the generator in the same state, with the conditions
on parameters that NUMBA does not check. Where NumPy accepts zero but not minus zero, NumPy draws."""


def has_same_draws(node: Apply) -> bool:
    """Return whether NUMBA draws NumPy's numbers."""
    return type(node.op) in _PARAMETERS


def _parameters(node: Apply) -> Iterator[Check]:
    """Check the parameters of a distribution."""
    first = len(node.inputs) - len(node.op.ndims_params)
    for k, holds in _PARAMETERS[type(node.op)].items():
        value = node.inputs[first + k]
        if not (isinstance(value, Constant) and np.all(holds(value.data))):
            yield first + k, PARAMETER(value, pt.all(holds(value)))
    if isinstance(node.op, UniformRV):
        low, high = node.inputs[first:]
        if not (isinstance(low, Constant) and isinstance(high, Constant) and np.all(low.data <= high.data)):
            yield first, PARAMETER(low, pt.all(low <= high))


_GUARDS: dict[type, Callable[[Apply], Iterator[Check]]] = {
    AdvancedSubtensor: _indices,
    AdvancedIncSubtensor: _increments,
    Blockwise: _batches,
    Elemwise: _divisors,
    **dict.fromkeys(_PARAMETERS, _parameters),
}


def may_need_guard(node: Apply) -> bool:
    """Return whether `add_guards` may add a check for a node."""
    scalar_op = getattr(node.op, "scalar_op", None)
    if isinstance(node.op, CAReduce):
        return isinstance(scalar_op, Maximum | Minimum) and bool(_axes_that_may_be_empty(node))
    if isinstance(node.op, Elemwise):
        return isinstance(scalar_op, IntDiv | Mod) and node.outputs[0].type.numpy_dtype.kind in "iu"
    return any(t in _GUARDS for t in type(node.op).__mro__)


def _shared_index_checks(fgraph: FunctionGraph) -> dict[tuple[Apply, int], Variable]:
    """Return the checks of index inputs, one for all nodes that share an index, so that NUMBA compiles one loop.

    Lengths are taken only from arrays that depend on no gather; otherwise a check could depend on itself.
    """
    dependent: set[Variable] = set()  # on a gather or scatter
    uses: dict[Variable, list[tuple[Apply, int, list[Variable]]]] = {}
    for node in fgraph.toposort():
        looks_up = isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor)
        if looks_up and node.inputs[0] not in dependent and not is_mask_selection(node):
            for position, extents in _uses(node):
                uses.setdefault(node.inputs[position], []).append((node, position, extents))
        if looks_up or not dependent.isdisjoint(node.inputs):
            dependent.update(node.outputs)
    return {
        (node, position): checked
        for index, found in uses.items()
        for checked in [_checked_index(index, [n for *_, extents in found for n in extents])]
        for node, position, _ in found
    }


def add_guards(fgraph: FunctionGraph) -> None:
    """Add the checks to a graph.

    Parameters
    ----------
    fgraph
        A graph before any rewrite; changed in place.
    """
    order = fgraph.toposort()
    for node in order:  # results first: one of them may be an index that is checked too
        extreme = _extreme(node)
        for client, at in list(fgraph.clients[node.outputs[0]]) if extreme is not None else ():
            fgraph.change_node_input(client, at, extreme, import_missing=True)
    shared = _shared_index_checks(fgraph)
    for node in order:
        make = next((_GUARDS[t] for t in type(node.op).__mro__ if t in _GUARDS), None)
        for position, checked in list(make(node)) if make else ():
            fgraph.change_node_input(node, position, shared.get((node, position), checked), import_missing=True)
