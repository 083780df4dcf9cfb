"""Adds checks to the graph for NUMBA that NUMBA leaves out, so that invalid data raises an error."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import IntDiv, Maximum, Minimum
from pytensor.scan.op import Scan
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
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor, indices_from_subtensor

from pytensor_cl.errors import NegativeStepsError
from pytensor_cl.nn.dropout import DropoutMask, MaskRV
from pytensor_cl.rewriting.host_graph.axis_lengths import axis_lengths, length_conditions
from pytensor_cl.rewriting.host_graph.in_bounds import MESSAGE, in_bounds
from pytensor_cl.rewriting.host_graph.masks import MASK, is_mask_selection
from pytensor_cl.scalar.integer_division import DIVISOR, checked_divisor, divides_integers

Check = tuple[int, Variable]
"""The position of an input, and the checked variable that takes its place."""

ELEMENTS = CheckAndRaise(ValueError, "zero-size array to reduction operation which has no identity")
INDEX = CheckAndRaise(IndexError, MESSAGE)
PARAMETER = CheckAndRaise(ValueError, "a parameter that the distribution must not have")
SHAPES = CheckAndRaise(ValueError, "shape mismatch: lengths differ")
STEPS = CheckAndRaise(NegativeStepsError, "Scan was asked to run for a negative number of steps")
"""Users see these messages for loops only: another call that fails on the host is repeated on the device."""


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


def _masks(node: Apply) -> Iterator[Check]:
    """Check the shape of a mask."""
    x, mask = node.inputs
    pairs = zip(mask.type.shape, x.type.shape, tuple(mask.shape), tuple(x.shape), strict=False)
    same = [pt.eq(a, b) for known, other, a, b in pairs if known is None or known != other]
    if same:
        yield 1, MASK(mask, *same)


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
    """Return whether a constant index is within a static length."""
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


def _safe_division(node: Apply, is_inside: bool) -> Variable | None:
    """Return a division of whole numbers without division by -1; None if a constant shows that there is none.

    Under NUMBA, INT_MIN / -1 ends the process. A function divides by -1 on the device, a loop changes the sign.
    """
    op: Any = node.op
    x, divisor = node.inputs
    if isinstance(divisor, Constant) and ((divisor.data != 0) & (divisor.data != -1)).all():
        return None
    if not is_inside:
        return op(x, DIVISOR(divisor, pt.all(pt.neq(divisor, 0) & pt.neq(divisor, -1))))
    checked, dtype = checked_divisor(divisor), node.outputs[0].type.dtype
    if divisor.type.numpy_dtype.kind != "i":
        return op(x, checked)
    is_minus_one = pt.eq(divisor, -1)
    quotient = op(x, pt.switch(is_minus_one, pt.constant(1, dtype=divisor.type.dtype), checked))
    return pt.switch(is_minus_one, -pt.cast(x, dtype), quotient) if isinstance(op.scalar_op, IntDiv) else quotient


def _steps(node: Apply) -> Iterator[Check]:
    """Check the number of steps of a loop: NUMBA runs none if it is negative."""
    steps = node.inputs[0]
    if _may_be_negative(steps):
        yield 0, STEPS(steps, pt.ge(steps, 0))


def _may_be_negative(number: Variable) -> bool:
    """Return whether a 0-d integer can be negative, as far as its graph tells: the lengths of axes cannot."""
    if isinstance(number, Constant):
        return bool(number.data < 0)
    node: Any = number.owner
    match getattr(node, "op", None):
        case Shape_i():
            return False
        case Elemwise(scalar_op=Minimum()):
            return any(map(_may_be_negative, node.inputs))
        case Elemwise(scalar_op=Maximum()):
            return all(map(_may_be_negative, node.inputs))
        case Subtensor():
            of = node.inputs[0].owner
            return of is None or not isinstance(of.op, Shape)
    return True


def _positive(x: Any) -> Any:
    return x > 0


def _not_negative(x: Any) -> Any:
    return ~(x < 0)


def _rate(x: Any) -> Any:
    return (x >= 0) & (x < 1e18)


def _probability(x: Any) -> Any:
    return (x >= 0) & (x <= 1)


def _limit(x: Any) -> Any:
    return abs(x) < np.float64(1e300)  # in float32 it would be infinite


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
    MaskRV: {0: _probability},
    NormalRV: {1: _positive},
    PoissonRV: {0: _rate},
    StudentTRV: {0: _positive, 2: _positive},
    UniformRV: {0: _limit, 1: _limit},
    WeibullRV: {0: _positive},
}
"""Distributions for which NUMBA draws NumPy's numbers and leaves the generator in the same state, with the conditions
on parameters that NUMBA does not check. Where NumPy accepts zero but not minus zero, NumPy draws."""


_ALWAYS_POSITIVE = {(BetaRV, 0), (BetaRV, 1), (StudentTRV, 0)}


def has_same_draws(node: Apply) -> bool:
    """Return whether NUMBA draws NumPy's numbers."""
    return type(node.op) in _PARAMETERS or isinstance(node.op, DropoutMask)


def _parameters(node: Apply, conditions: dict[int, Callable[[Any], Any]]) -> Iterator[Check]:
    """Check the parameters of a distribution."""
    first = len(node.inputs) - len(node.op.ndims_params)
    for k, holds in conditions.items():
        value = node.inputs[first + k]
        if not (isinstance(value, Constant) and np.all(holds(value.data))):
            yield first + k, PARAMETER(value, pt.all(holds(value)))
    if isinstance(node.op, UniformRV):
        low, high = node.inputs[first:]
        if not (isinstance(low, Constant) and isinstance(high, Constant) and np.all(low.data <= high.data)):
            yield first, PARAMETER(low, pt.all(low <= high))


def _sufficient_parameters(node: Apply) -> Iterator[Check]:
    """Check conditions under which NumPy accepts the parameters; it may accept others."""
    return _parameters(node, _PARAMETERS[type(node.op)])


def _necessary_parameters(node: Apply) -> Iterator[Check]:
    """Check the conditions of NumPy, which accepts a scale of zero: nothing repeats a step of a loop."""
    kind = type(node.op)
    conditions = {
        k: _not_negative if holds is _positive and (kind, k) not in _ALWAYS_POSITIVE else holds
        for k, holds in _PARAMETERS[kind].items()
        if holds is not _limit
    }
    return _parameters(node, conditions)


_GUARDS: dict[type, Callable[[Apply], Iterator[Check]]] = {
    AdvancedSubtensor: _indices,
    AdvancedIncSubtensor: _increments,
    Blockwise: _batches,
    Scan: _steps,
    **dict.fromkeys(_PARAMETERS, _sufficient_parameters),
}
_GUARDS_INSIDE = {**_GUARDS, **dict.fromkeys(_PARAMETERS, _necessary_parameters)}
"""Checks of nodes inside of a loop, which must not fail for data that the other backends accept."""


def may_need_guard(node: Apply) -> bool:
    """Return whether `add_guards` may add a check for a node."""
    scalar_op = getattr(node.op, "scalar_op", None)
    if isinstance(node.op, CAReduce):
        return isinstance(scalar_op, Maximum | Minimum) and bool(_axes_that_may_be_empty(node))
    if isinstance(node.op, Elemwise):
        return divides_integers(node)
    if isinstance(node.op, Scan):
        return _may_be_negative(node.inputs[0])
    return any(t in _GUARDS for t in type(node.op).__mro__)


def _shared_index_checks(fgraph: FunctionGraph) -> dict[tuple[Apply, int], Variable]:
    """Return the checks of index inputs, one for all nodes that share an index, so that NUMBA compiles one loop.

    Lengths are taken only from arrays that depend on no gather; otherwise a check could depend on itself. Where there
    are conditionals, not all nodes run, and each has its own check.
    """
    if any(isinstance(node.op, IfElse) for node in fgraph.apply_nodes):
        return {}
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


def add_guards(fgraph: FunctionGraph, *, is_inside: bool = False) -> None:
    """Add the checks to a graph before any rewrite, in place.

    In the graph inside of an Op (`is_inside`) no call is repeated elsewhere if a check fails.
    """
    guards = _GUARDS_INSIDE if is_inside else _GUARDS
    order = fgraph.toposort()
    for node in order:  # results first: one of them may be an index that is checked too
        checked = _extreme(node)
        if checked is None and divides_integers(node):
            checked = _safe_division(node, is_inside)
        for client, at in list(fgraph.clients[node.outputs[0]]) if checked is not None else ():
            fgraph.change_node_input(client, at, checked, import_missing=True)
    shared = _shared_index_checks(fgraph)
    for node in order:
        make = next((guards[t] for t in type(node.op).__mro__ if t in guards), None)
        for position, changed in list(make(node)) if make else ():
            fgraph.change_node_input(node, position, shared.get((node, position), changed), import_missing=True)
