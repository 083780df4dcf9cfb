"""Recognises cross entropy that a user has spelled out, for `recognise`."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor

from pytensor_cl.nn.cross_entropy import LabelCheck, classes_along, cross_entropy_of, cross_entropy_with
from pytensor_cl.nn.recognise import register_recognition

_DTYPES = ("float32", "float64")

_LABELS = LabelCheck(IndexError, "cross entropy: a label is out of bounds for the classes of the logits")


class _LogSoftmax(NamedTuple):
    """The logits and the axis of a log-softmax, and the variables that replacing it makes superfluous."""

    logits: Any
    axis: int
    chain: tuple[Variable, ...]


def _log_softmax(variable: Variable) -> _LogSoftmax | None:
    """Return what a variable is the log-softmax of, through logarithms, transposition and reshapes."""
    node = variable.owner
    if node is None:
        return None
    if isinstance(node.op, LogSoftmax):
        return _of_softmax(node, (variable,))
    if node.op == pt.log and isinstance(getattr(node.inputs[0].owner, "op", None), Softmax):
        return _of_softmax(node.inputs[0].owner, (variable, node.inputs[0]))
    if isinstance(node.op, DimShuffle | Reshape):
        inner = _log_softmax(node.inputs[0])
        move = _transposed if isinstance(node.op, DimShuffle) else _reshaped
        return None if inner is None else move(node, inner)
    return None


def _of_softmax(node: Apply, chain: tuple[Variable, ...]) -> _LogSoftmax | None:
    axis = node.op.axis
    if axis is None or len(axis) != 1:
        return None
    return _LogSoftmax(node.inputs[0], axis[0] % node.inputs[0].type.ndim, chain)


def _transposed(node: Apply, inner: _LogSoftmax) -> _LogSoftmax | None:
    """transpose(log_softmax(x)) -> log_softmax(transpose(x))."""
    order = list(node.op.new_order)
    if inner.axis not in order:
        return None
    return _LogSoftmax(inner.logits.dimshuffle(order), order.index(inner.axis), (*node.outputs, *inner.chain))


def _reshaped(node: Apply, inner: _LogSoftmax) -> _LogSoftmax | None:
    """reshape(log_softmax(x), (..., C)) -> log_softmax(reshape(x, (..., C))), if C is the length of the last axis."""
    last, shape = inner.logits.type.ndim - 1, node.inputs[1]
    if inner.axis != last or not node.op.ndim or not _is_length_of(_last_of(shape), node.inputs[0], last):
        return None
    made = inner.logits.reshape(shape, ndim=node.op.ndim)
    return _LogSoftmax(made, node.op.ndim - 1, (*node.outputs, *inner.chain))


def _last_of(shape: Variable) -> Variable | None:
    """Return the last element of a vector that is written out."""
    if isinstance(shape, Constant):
        return pt.constant(shape.data[-1])
    node = shape.owner
    if node is not None and isinstance(node.op, MakeVector):
        return node.inputs[-1]
    return shape[-1]


def _lengths(variable: Variable, axis: int) -> Iterator[Variable]:
    """Yield the graphs that users write for the length of an axis, of this variable and of what it is made from."""
    ndim, node = variable.type.ndim, variable.owner
    yield from (variable.shape[axis], Shape_i(axis)(variable), variable.shape[axis - ndim])
    if ndim == 1:
        yield variable.size
    if node is None:
        return
    if isinstance(node.op, DimShuffle) and isinstance(node.op.new_order[axis], int):
        yield from _lengths(node.inputs[0], node.op.new_order[axis])
    elif isinstance(node.op, Reshape):
        if isinstance(node.inputs[1].owner and node.inputs[1].owner.op, MakeVector):
            yield node.inputs[1].owner.inputs[axis]
        if ndim == 1:
            yield node.inputs[0].size
    elif isinstance(node.op, LogSoftmax | Softmax | Elemwise) and len(node.inputs) == 1:
        yield from _lengths(node.inputs[0], axis)


def _is_length_of(length: Variable | None, variable: Variable, axis: int) -> bool:
    """Return whether a number is the length of an axis of a variable, as far as its graph tells."""
    if length is None:
        return False
    length = _without_casts(length)
    if isinstance(length, Constant):
        is_equal: bool = variable.type.shape[axis] == int(np.asarray(length.data).reshape(()))
        return is_equal
    return any(equal_computations([length], [_without_casts(form)]) for form in _lengths(variable, axis))


def _without_casts(number: Variable) -> Variable:
    """Return a number without changes of its dtype and of its kind of scalar."""
    while number.owner is not None and type(number.owner.op).__name__ in ("TensorFromScalar", "ScalarFromTensor"):
        number = number.owner.inputs[0]
    return number


def _is_private(fgraph: FunctionGraph, node: Apply, found: _LogSoftmax) -> bool:
    """Return whether nothing else reads the values of a log-softmax; shapes may."""
    inside = {v.owner for v in found.chain} | {node}
    clients = (client for v in found.chain for client, _ in fgraph.clients.get(v, ()))
    return all(c in inside or isinstance(c.op, Shape | Shape_i) for c in clients) and not any(
        isinstance(c.op, Output) for v in found.chain for c, _ in fgraph.clients.get(v, ())
    )


def _replaceable(fgraph: FunctionGraph, node: Apply, variable: Variable) -> _LogSoftmax | None:
    """Return the log-softmax that a node reads, if nothing else reads it and kernels have its dtype."""
    found = _log_softmax(variable)
    if found is None or variable.type.dtype not in _DTYPES or not _is_private(fgraph, node, found):
        return None
    return found


@register_recognition
@node_rewriter([AdvancedSubtensor])
def recognise_labels(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """log_softmax(x)[arange(n), y] -> -cross_entropy(x, y), also as take_along_axis(log_softmax(x), y, axis)."""
    values, *index = node.inputs
    ndim = values.type.ndim
    if tuple(node.op.idx_list) != tuple(range(ndim)) or len(index) != ndim:
        return None
    found = _replaceable(fgraph, node, values)
    if found is None or any(v.type.numpy_dtype.kind not in "iu" for v in index):
        return None
    labels = index[found.axis]
    if ndim == 2 and labels.type.ndim == 1:
        return _by_rows(node, found, index[1 - found.axis], labels)
    return _along_axis(node, found, index, labels)


def _by_rows(node: Apply, found: _LogSoftmax, rows: Variable, labels: Any) -> list[Variable] | None:
    """Return the replacement of ``log_softmax(x)[arange(n), y]``; n is the number of rows, or of labels."""
    rows_axis = 1 - found.axis
    length = _arange_length(rows)
    if length is None:
        return None
    if _is_length_of(length, node.inputs[0], rows_axis):
        return _replaced(node, -_checked(found, labels))
    if not _is_length_of(length, labels, 0):
        return None
    # There may be fewer labels than rows: the others are ignored, so that the gradient has no part for them.
    count = labels.shape[0]
    every = pt.full((found.logits.shape[rows_axis],), -1, dtype="int32")
    padded = every[:count].set(_wrapped(found, labels))
    return _replaced(node, -_losses(found, padded)[:count])


def _arange_length(rows: Variable) -> Variable | None:
    """Return n of ``arange(n)``; None of anything else."""
    node: Any = rows.owner
    if node is None or type(node.op).__name__ != "ARange":
        return None
    start, stop, step = node.inputs
    is_plain = all(isinstance(v, Constant) for v in (start, step))
    return stop if is_plain and (int(start.data), int(step.data)) == (0, 1) else None


def _along_axis(node: Apply, found: _LogSoftmax, index: list[Variable], labels: Any) -> list[Variable] | None:
    """Return the replacement of ``take_along_axis(log_softmax(x), y, axis)`` with one label for each row."""
    values, axis, ndim = node.inputs[0], found.axis, node.inputs[0].type.ndim
    if labels.type.ndim != ndim or not labels.type.broadcastable[axis]:
        return None
    for d in range(ndim):
        if d == axis:
            continue
        if labels.type.broadcastable[d] and not values.type.broadcastable[d]:
            return None  # a label for several rows
        source = index[d].owner
        inner = source.inputs[0] if source is not None and isinstance(source.op, Reshape | DimShuffle) else index[d]
        length = _arange_length(inner)
        shape = [n for k, n in enumerate(index[d].type.broadcastable) if k != d]
        if length is None or not all(shape) or not _is_length_of(length, values, d):
            return None
    losses = _checked(found, labels.squeeze(axis))
    return _replaced(node, -pt.expand_dims(losses, axis))


def _wrapped(found: _LogSoftmax, labels: Any) -> Variable:
    """Return labels as int32, counted from the end if they are negative, and checked."""
    classes = found.logits.shape[found.axis]
    signed = pt.cast(labels, "int64")
    wrapped = pt.switch(signed < 0, signed + classes, signed)
    fits = pt.all((wrapped >= 0) & (wrapped < classes))
    return _LABELS(pt.cast(wrapped, "int32"), fits)


def _checked(found: _LogSoftmax, labels: Any) -> Any:
    return _losses(found, _wrapped(found, labels))


def _losses(found: _LogSoftmax, labels: Variable) -> Any:
    return cross_entropy_of(found.logits, classes_along(found.logits, found.axis), labels, found.axis)


def _replaced(node: Apply, new: Variable) -> list[Variable]:
    (old,) = node.outputs
    return [old.type.filter_variable(pt.cast(new, old.type.dtype), allow_convert=True)]


@register_recognition
@node_rewriter([Sum])
def recognise_probabilities(fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """sum(t * log_softmax(x), axis) -> -cross_entropy(x, t), summed over the other axes."""
    (product,) = node.inputs
    if product.owner is None or product.owner.op != pt.mul or len(fgraph.clients[product]) > 1:
        return None
    for k, factor in enumerate(product.owner.inputs):
        found = _replaceable(fgraph, product.owner, factor)
        axes = tuple(range(product.type.ndim)) if node.op.axis is None else node.op.axis
        others = [v for i, v in enumerate(product.owner.inputs) if i != k]
        if found is not None and found.axis in axes and _fits_rows(found, factor, product, others):
            target = pt.cast(pt.mul(*others) if len(others) > 1 else others[0], factor.type.dtype)
            losses = cross_entropy_with(found.logits, target, found.axis)
            rest = [d - (d > found.axis) for d in axes if d != found.axis]
            return _replaced(node, -(losses.sum(rest) if rest else losses))
    return None


def _fits_rows(found: _LogSoftmax, factor: Variable, product: Variable, others: list[Variable]) -> bool:
    """Return whether the other factors have an element for each class, and no more rows than the log-softmax."""
    if factor.type.broadcastable != product.type.broadcastable or product.type.dtype != factor.type.dtype:
        return False
    has_classes = any(not v.type.broadcastable[found.axis] for v in others)
    return has_classes and all(v.type.numpy_dtype.kind in "iufb" for v in others)
