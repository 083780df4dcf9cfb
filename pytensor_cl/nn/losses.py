"""Losses per element, of Theano and of torch, and the confusion matrix."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Variable
from pytensor.tensor.special import Softmax
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.arguments import as_floats, as_number, one_shape, reduced, working
from pytensor_cl.nn.composed import cast, composed
from pytensor_cl.nn.cross_entropy import REDUCTIONS, nll, softmax_cross_entropy
from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.windows import as_variable

LEAST_LOG = -100.0
"""Bound of logarithms of probabilities, as in torch: 0 log 0 is 0."""

LEAST_PROBABILITY = 1e-12
"""Bound of the divisor in their gradients, as in torch."""


class BoundedLog(Marker):
    """max(log(p), -100), or max(log(1 - p), -100) for `complement`; the gradient is finite at 0."""

    __props__ = ("complement",)
    complement: bool

    def build_inner_graph(self, p: Any) -> list[Variable]:
        """Return the definition in ordinary Ops."""
        return [pt.maximum(pt.log1p(-p) if self.complement else pt.log(p), as_number(LEAST_LOG, p))]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Variable], output_grads: Sequence[Any]) -> list[Any]:
        """Return the quotient by a bounded probability."""
        (p,), (slope,) = inputs, output_grads
        least = as_number(LEAST_PROBABILITY, p)
        return [-slope / pt.maximum(1 - p, least) if self.complement else slope / pt.maximum(p, least)]


class LogitLoss(Marker):
    """positive (-log(sigmoid(x))) + negative (-log(sigmoid(-x))).

    Two terms that are not negative: x - x t + log(1 + exp(-x)) would cancel.
    """

    def build_inner_graph(self, x: Any, positive: Any, negative: Any) -> list[Variable]:
        """Return the definition in ordinary Ops."""
        tail = pt.softplus(-pt.abs(x))
        return [positive * (tail - pt.minimum(x, 0)) + negative * (tail + pt.maximum(x, 0))]

    def pullback(self, inputs: Sequence[Any], outputs: Sequence[Variable], output_grads: Sequence[Any]) -> list[Any]:
        """Return formulas that are right at 0 too, where the gradients of abs and maximum are not."""
        (x, positive, negative), (slope,) = inputs, output_grads
        if isinstance(slope.type, DisconnectedType):
            return [disconnected_type()] * 3
        by_x = slope * (negative * pt.sigmoid(x) - positive * pt.sigmoid(-x))
        return [by_x, slope * pt.softplus(-x), slope * pt.softplus(x)]


def _pair(output: Any, target: Any, name: str, argument: str, against: str = "target") -> tuple[Any, Any, str]:
    """Return two arrays of one shape and of one dtype, in which to compute, and the dtype of the result."""
    given = as_floats(output, f"{name}: {argument}")
    other = as_variable(target, f"{name}: {against}")
    if other.type.numpy_dtype.kind not in "iufb":
        raise TypeError(f"{name}: {against} has dtype {other.type.dtype}: it must be real numbers")
    other = one_shape(given, other, range(given.type.ndim), given.type.shape, name, against)
    is_float = other.type.numpy_dtype.kind == "f"
    x, dtype = working(given, *([other] if is_float else []))
    return x, cast(other, x.type.dtype) if is_float else pt.cast(other, x.type.dtype), dtype


def _check_reduction(reduction: Any, name: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: reduction must be 'mean', 'sum' or 'none', not {reduction!r}")


def binary_crossentropy(output: Any, target: Any) -> TensorVariable:
    """Return the cross entropy of probabilities with targets, for each element.

    Parameters
    ----------
    output
        Probabilities, floats of any shape.
    target
        Numbers from 0 to 1 of the same shape; it is never broadcast.

    Returns
    -------
    Variable
        -t log(o) - (1 - t) log(1 - o). Logarithms are at least -100 and gradients finite, as torch's.

    Raises
    ------
    TypeError
        `output` is no array of floats, or `target` is not of real numbers.
    ValueError
        The shapes differ.
    """
    p, t, dtype = _pair(output, target, "binary_crossentropy", "output")
    losses = -(t * BoundedLog(complement=False)(p) + (1 - t) * BoundedLog(complement=True)(p))
    return cast(losses, dtype)


def sigmoid_binary_crossentropy(output: Any, target: Any) -> TensorVariable:
    """Return ``binary_crossentropy(sigmoid(output), target)`` for each element, which is right for large `output` too.

    Raises
    ------
    TypeError, ValueError
        As `binary_crossentropy`.
    """
    x, t, dtype = _pair(output, target, "sigmoid_binary_crossentropy", "output")
    return cast(LogitLoss()(x, t, 1 - t), dtype)


def binary_crossentropy_with_logits(
    input: Any, target: Any, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> TensorVariable:
    """Return the cross entropy of the sigmoid of logits with targets.

    Parameters
    ----------
    input
        Logits, floats of any shape.
    target
        Numbers from 0 to 1 of the same shape; it is never broadcast.
    weight
        Factors of the losses, and `pos_weight` of their part for target 1: numbers, or arrays that are broadcast to the
        shape of `input`.
    reduction
        ``"mean"`` over all elements, 0 if there are none; ``"sum"``; ``"none"``.

    Raises
    ------
    TypeError
        `input` or a weight is no array of floats, or `target` is not of real numbers.
    ValueError
        The shapes differ, or there is no such `reduction`.

    Examples
    --------
    >>> import numpy as np
    >>> from pytensor_cl import nn
    >>> float(nn.binary_crossentropy_with_logits(np.array([0.0, 100.0]), np.array([1, 1])).eval().round(4))
    0.3466
    """
    name = "binary_crossentropy_with_logits"
    _check_reduction(reduction, name)
    x, t, dtype = _pair(input, target, name, "input")
    positive: Any = t
    if pos_weight is not None:
        positive = t * _weight(pos_weight, x, f"{name}: pos_weight")
    losses = LogitLoss()(x, positive, 1 - t)
    if weight is not None:
        losses = losses * _weight(weight, x, f"{name}: weight")
    return cast(reduced(losses, reduction, x.size), dtype)


def _weight(value: Any, like: Any, name: str) -> Any:
    """Return weights in the dtype of an array with which they broadcast; a number is one for all."""
    if not isinstance(value, Variable) and isinstance(value, int | float):
        return as_number(value, like)
    weight = as_floats(value, name)
    if weight.type.ndim > like.type.ndim:
        raise ValueError(f"{name} has {weight.type.ndim} dimensions, and input {like.type.ndim}: it needs no more")
    pairs = zip(reversed(weight.type.shape), reversed(like.type.shape), strict=False)
    if any(full == 1 and own != 1 for own, full in pairs):
        raise ValueError(f"{name} has shape {weight.type.shape}, to which input {like.type.shape} is not broadcast")
    return cast(weight, like.type.dtype)


def categorical_crossentropy(coding_dist: Any, true_dist: Any) -> TensorVariable:
    """Return the cross entropy of rows of probabilities with labels or with other probabilities, for each row.

    The softmax of logits along the last axis is recognised: the result is that of `softmax_cross_entropy`, which is
    right where a probability is too small for its dtype.

    Parameters
    ----------
    coding_dist
        Probabilities, floats of shape (..., C).
    true_dist
        Floats of the same shape, or labels 0 to C - 1, integers of shape (...).

    Returns
    -------
    Variable
        Shape (...). Logarithms of other probabilities are at least -100 and gradients finite.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `softmax_cross_entropy`.
    """
    name = "categorical_crossentropy"
    given = as_floats(coding_dist, f"{name}: coding_dist")
    node = given.owner
    if node is not None and isinstance(node.op, Softmax) and node.op.axis == (given.type.ndim - 1,):
        return softmax_cross_entropy(node.inputs[0], true_dist, reduction="none", axis=-1)
    other = as_variable(true_dist, f"{name}: true_dist")
    p, dtype = working(given, *([other] if other.type.numpy_dtype.kind == "f" else []))
    logs = BoundedLog(complement=False)(p)
    return cast(nll(logs, other, reduction="none", axis=-1), dtype)


def confusion_matrix(actual: Any, pred: Any) -> tuple[TensorVariable, TensorVariable]:
    """Return how often each label was taken for each other one.

    Parameters
    ----------
    actual, pred
        Labels, integers of shape (N,).

    Returns
    -------
    tuple of Variable
        The counts, int64 of shape (K, K), rows for `actual` and columns for `pred`; and the K labels that occur,
        sorted.

    Raises
    ------
    TypeError
        One is no array of integers.
    ValueError
        One is no vector, or the lengths differ.
    """
    labels = [as_variable(v, f"confusion_matrix: {name}") for v, name in ((actual, "actual"), (pred, "pred"))]
    for variable, name in zip(labels, ("actual", "pred"), strict=True):
        if variable.type.numpy_dtype.kind not in "iu":
            raise TypeError(f"confusion_matrix: {name} must be labels of an integer dtype, not {variable.type.dtype}")
        if variable.type.ndim != 1:
            raise ValueError(f"confusion_matrix: {name} must be a vector, not of {variable.type.ndim} dimensions")
    first, second = labels
    second = one_shape(first, second, [0], first.type.shape, "confusion_matrix", "pred", "actual")
    order = pt.unique(pt.concatenate([first, second]))
    found = [pt.cast(pt.eq(v[:, None], order[None, :]), "int64") for v in (first, second)]
    return pt.dot(found[0].T, found[1]), order


def huber(input: Any, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> TensorVariable:
    """Return half the squared difference where it is below delta, else a line that continues it (Huber, 1964).

    Parameters
    ----------
    input
        Floats of any shape.
    target
        Numbers of the same shape; it is never broadcast.
    delta
        Difference from which it is a line: a positive number that is finite.
    reduction
        ``"mean"`` over all elements, 0 if there are none; ``"sum"``; ``"none"``.

    Raises
    ------
    TypeError
        `input` is no array of floats, or `target` is not of real numbers.
    ValueError
        The shapes differ, `delta` is not positive and finite, or there is no such `reduction`.
    """
    _check_reduction(reduction, "huber")
    if isinstance(delta, Variable) or not 0 < delta < np.inf:  # the line would be 0 times infinity
        raise ValueError(f"huber: delta must be a positive number that is finite, not {delta!r}")
    x, t, dtype = _pair(input, target, "huber", "input")
    losses = composed(_huber, x, t, as_number(delta, x))
    return cast(reduced(losses, reduction, x.size), dtype)


def _huber(x: Any, target: Any, delta: Any) -> Any:
    distance = pt.abs(x - target)
    near = pt.minimum(distance, delta)
    # The line has a factor of its own: near * (distance - near / 2) has the gradient 0 times infinity at infinity.
    return as_number(0.5, x) * pt.sqr(near) + delta * (distance - near)
