"""Batches of convolutions: `vectorize_graph` adds axes in front of arrays, which are folded into an axis that is there.

Where one array has a batch, it joins the images, or the channels inside each group. Where both have one, each entry of
the batch becomes groups of its own.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node

from pytensor_cl.nn.batches import common_batch, lengths_of, shared_entry
from pytensor_cl.nn.conv import Conv, ConvGradInput, ConvGradWeight


class _Fold(NamedTuple):
    """The axes of an array and of the result that a batch of the array joins, and whether these fall into groups."""

    axis: int
    has_groups: bool
    result: int
    result_has_groups: bool


class _Folds(NamedTuple):
    """The folds for a batch of one array, and the axes of both arrays and the result that a batch of both joins."""

    left: _Fold
    right: _Fold
    both: tuple[int, int, int]


_FOLDS = {
    Conv: _Folds(_Fold(0, False, 0, False), _Fold(0, True, 1, True), (1, 0, 1)),
    ConvGradInput: _Folds(_Fold(1, False, 1, True), _Fold(0, False, 0, False), (0, 1, 1)),
    ConvGradWeight: _Folds(_Fold(1, True, 1, False), _Fold(1, True, 0, True), (1, 1, 0)),
}


def _product(lengths: Sequence[Any]) -> Any:
    product: Any = 1
    for n in lengths:
        product = product * n
    return product


def _fold(x: Variable, axis: int, groups: Any) -> Variable:
    """Put axis 0 into another one, which is then (groups, batch, members of a group)."""
    batch, *lengths = lengths_of(x, range(x.type.ndim))
    x = x.reshape((batch, *lengths[:axis], groups, lengths[axis] // groups, *lengths[axis + 1 :]))
    x = pt.moveaxis(x, 0, axis + 1)
    return x.reshape((*lengths[:axis], batch * lengths[axis], *lengths[axis + 1 :]))


def _unfold(x: Variable, axis: int, groups: Any, batch: Any, lengths: Sequence[Any]) -> Variable:
    """Undo `_fold`; `lengths` are the result's without its batch."""
    members = lengths[axis]
    x = x.reshape((*lengths[:axis], groups, batch, members // groups, *lengths[axis + 1 :]))
    x = pt.moveaxis(x, axis + 1, 0)
    return x.reshape((batch, *lengths[:axis], members, *lengths[axis + 1 :]))


def _convolve(op: Any, arrays: Sequence[Variable], is_batched: Sequence[bool], batch: Any, others: Any) -> Variable:
    """Apply the Op to arrays that may have one batch axis in front."""
    core = op.ndim + 2
    shapes = [lengths_of(a, range(a.type.ndim))[-core:] for a in arrays]
    (result,) = op.infer_shape(SimpleNamespace(inputs=[*arrays, *others]), shapes)
    kind, geometry = type(op), op.geometry([*arrays, *others])
    folds, lengths, groups = _FOLDS[kind], others[: op.first_parameter - 2], geometry.groups
    if all(is_batched):
        *axes, axis_of_result = folds.both
        folded = [_fold(a, axis, 1) for a, axis in zip(arrays, axes, strict=True)]
        y = kind.call(geometry._replace(groups=groups * batch), *folded, *lengths)
        return _unfold(y, axis_of_result, 1, batch, result)
    fold = folds.left if is_batched[0] else folds.right
    folded = [
        _fold(a, fold.axis, groups if fold.has_groups else 1) if b else a
        for a, b in zip(arrays, is_batched, strict=True)
    ]
    y = kind.call(geometry, *folded, *lengths)
    return _unfold(y, fold.result, groups if fold.result_has_groups else 1, batch, result)


@_vectorize_node.register(Conv)
@_vectorize_node.register(ConvGradInput)
@_vectorize_node.register(ConvGradWeight)
def _vectorize_convolution(op: Any, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    core = op.ndim + 2
    others = [shared_entry(v) for v in inputs[2:]]
    is_batched = [v.type.ndim > core for v in inputs[:2]]
    if not any(is_batched):
        y = op(*inputs[:2], *others)
        if all(v.type.ndim == 0 for v in inputs[2:]):
            return [y]
        _, shape = common_batch(inputs[2:], [0] * len(others))
        return [pt.broadcast_to(y, (*shape, *lengths_of(y, range(core))))]
    batched = [v for v, flag in zip(inputs[:2], is_batched, strict=True) if flag]
    batched, shape = common_batch(batched, [core] * len(batched))
    batch, flat = _product(shape), iter(batched)
    arrays = []
    for v, flag in zip(inputs[:2], is_batched, strict=True):
        x = next(flat) if flag else v
        arrays.append(x.reshape((batch, *lengths_of(x, range(len(shape), x.type.ndim)))) if flag else v)
    y = _convolve(op, arrays, is_batched, batch, others)
    return [y.reshape((*shape, *lengths_of(y, range(1, y.type.ndim))))]
