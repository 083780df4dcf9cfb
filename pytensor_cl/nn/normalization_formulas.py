"""Recognises normalisation that a user has spelled out, for `recognise`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Sum

from pytensor_cl.nn.recognise import register_recognition
from pytensor_cl.nn.standardize import Normalization, broadcast_axes

_SUM_DISTANCE = 4  # nodes at most between a mean and its sum


def _inputs(variable: Variable, op: object) -> Sequence[Variable]:
    """Return the inputs of the node of a variable, if it is of that Op."""
    node = variable.owner
    return node.inputs if node is not None and node.op == op else ()


def _number(variable: Variable) -> float | None:
    """Return the value of a constant that is one number, with any number of dimensions."""
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    if not isinstance(variable, Constant) or np.size(variable.data) != 1:
        return None
    return float(np.ravel(variable.data)[0])


def _unexpanded(variable: Variable) -> tuple[Variable, tuple[int, ...]]:
    """Return a variable without its last Op that adds dimensions, and the positions of these."""
    node = variable.owner
    if node is None or not isinstance(node.op, DimShuffle) or not node.op.is_expand_dims:
        return variable, ()
    return node.inputs[0], tuple(i for i, d in enumerate(node.op.new_order) if d == "x")


def _mean_of(variable: Variable, added: tuple[int, ...] = ()) -> tuple[Variable, tuple[int, ...]] | None:
    """Return x and the axes of x.mean(axes), which stay with length one; None of anything else.

    `added`: positions of dimensions that are added to the variable.
    """
    if not added:
        variable, added = _unexpanded(variable)
    for node in _sums_near(variable):
        x, axes = node.inputs[0], node.op.axis
        axes = tuple(range(x.type.ndim)) if axes is None else tuple(axes)
        if added not in ((), axes):
            continue
        if equal_computations([variable], [x.mean(axis=node.op.axis, keepdims=not added)]):
            return x, axes
    return None


def _sums_near(variable: Variable) -> Iterator[Apply]:
    """Yield the sums that are a few nodes before a variable, along the first inputs."""
    for _ in range(_SUM_DISTANCE):
        node = variable.owner
        if node is None:
            return
        if isinstance(node.op, Sum):
            yield node
        variable = node.inputs[0]


def _centred(variable: Variable) -> tuple[Variable, tuple[int, ...]] | None:
    """Return x and the axes of x - x.mean(axes)."""
    x, *center = _inputs(variable, pt.sub)[:2] or (None,)
    found = _mean_of(center[0]) if center else None
    return found if found is not None and found[0] is x else None


def _squared(variable: Variable) -> Variable | None:
    """Return x of its square."""
    if sqr := _inputs(variable, pt.sqr):
        return sqr[0]
    if power := _inputs(variable, pt.pow):
        return power[0] if _number(power[1]) == 2 else None
    product = _inputs(variable, pt.mul)
    return product[0] if len(product) == 2 and product[0] is product[1] else None


def _radicand(divisor: Variable) -> Variable | None:
    """Return x of sqrt(x) or x ** 0.5."""
    if root := _inputs(divisor, pt.sqrt):
        return root[0]
    power = _inputs(divisor, pt.pow)
    return power[0] if power and _number(power[1]) == 0.5 else None


def _reciprocal_radicand(factor: Variable) -> Variable | None:
    """Return x of 1 / sqrt(x) or x ** -0.5."""
    if inverse := _inputs(factor, pt.reciprocal):
        return _radicand(inverse[0])
    if (quotient := _inputs(factor, pt.true_div)) and _number(quotient[0]) == 1:
        return _radicand(quotient[1])
    power = _inputs(factor, pt.pow)
    return power[0] if power and _number(power[1]) == -0.5 else None


def _normalized(values: Variable, divisor: Variable, inner: Callable[[Variable], Any]) -> Variable | None:
    """Return normalised values as a marker, if `inner` of the divisor is their mean square with an epsilon."""
    divisor, added = _unexpanded(divisor)
    radicand = inner(divisor)
    terms = _inputs(radicand, pt.add) if radicand is not None else ()
    numbers = [_number(v) for v in terms]
    if len(terms) != 2 or (numbers[0] is None) == (numbers[1] is None):
        return None
    epsilon = next(n for n in numbers if n is not None)
    mean = _mean_of(terms[0] if numbers[0] is None else terms[1], added)
    base = _squared(mean[0]) if mean is not None else None
    if mean is None or base is None or epsilon <= 0 or values.type.dtype not in ("float32", "float64"):
        return None
    axes, centred, about = mean[1], _centred(values), _centred(base)
    if centred is not None and about is not None and centred[0] is about[0] and centred[1] == about[1] == axes:
        values, is_centred = centred[0], True
    elif base is values:
        is_centred = False
    else:
        return None
    op = Normalization(
        axes=axes,
        epsilon=epsilon,
        is_centred=is_centred,
        has_scale=False,
        has_shift=False,
        dtype=values.type.dtype,
    )
    return op(values, return_list=True)[0]


def _replaced(node: Apply, new: Variable | None) -> list[Variable] | None:
    """Return what replaces a node, if it has its dtype."""
    old = node.outputs[0].type
    if new is None or new.type.dtype != old.dtype or new.type.broadcastable != old.broadcastable:
        return None
    return [old.filter_variable(new)]


@register_recognition
@node_rewriter([pt.true_div])
def recognise_quotient(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """(x - x.mean(a)) / sqrt(x.var(a) + eps) -> Normalization(x); x / sqrt(mean(x**2) + eps) too, not centred."""
    values, divisor = node.inputs
    return _replaced(node, _normalized(values, divisor, _radicand))


@register_recognition
@node_rewriter([pt.mul])
def recognise_product(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """(x - x.mean(a)) * (1 / sqrt(x.var(a) + eps)) -> Normalization(x); Normalization(x) * w -> the same with a scale.

    The reciprocal may be a power of -0.5; w is broadcast.
    """
    if len(node.inputs) != 2:
        return None
    for values, factor in (node.inputs, node.inputs[::-1]):
        new = _normalized(values, factor, _reciprocal_radicand)
        if new is None:
            new = _with_parameter(fgraph, values, factor, "has_scale")
        if new is not None:
            return _replaced(node, new)
    return None


@register_recognition
@node_rewriter([pt.add])
def recognise_sum(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Normalization(x) + b -> the same with a shift; b is broadcast."""
    if len(node.inputs) != 2:
        return None
    for values, shift in (node.inputs, node.inputs[::-1]):
        new = _with_parameter(fgraph, values, shift, "has_shift")
        if new is not None:
            return _replaced(node, new)
    return None


def _with_parameter(fgraph: FunctionGraph, values: Variable, parameter: Variable, name: str) -> Variable | None:
    """Return the result of a normalisation, which nothing else reads, with a scale or a shift; None of other values."""
    node = values.owner
    if node is None or type(node.op) is not Normalization or values is not node.outputs[0]:
        return None
    op, x = node.op, node.inputs[0]
    is_free = not (op.has_shift or getattr(op, name)) and len(fgraph.clients[values]) == 1
    is_broadcast = set(broadcast_axes(parameter.type)) - set(broadcast_axes(x.type))
    if not is_free or not is_broadcast or parameter.type.dtype != op.dtype or x in set(ancestors([parameter])):
        return None
    properties = {p: getattr(op, p) for p in op.__props__} | {name: True}
    return Normalization(**properties)(*node.inputs, parameter, return_list=True)[0]
