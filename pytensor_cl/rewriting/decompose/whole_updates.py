"""Slice updates of a whole array, and conditions that hold together -> elementwise functions; sums before new axes.

All stand between elementwise functions in gradients of models, which are then fused: ``m[:, 0]`` of a maximum that
keeps its dimensions, sums of an array that was given a last axis, and checks of parameters.
"""

from functools import reduce
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import AND, OR
from pytensor.tensor import add, and_, constant, or_, second
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.subtensor import IncSubtensor, unflatten_index_variables

_REASON = "opencl_whole_updates"
_LOGICAL = {AND: and_, OR: or_}
_VECTOR = (None, (0,))  # axes along which a vector is reduced
_FEW = 16


def _kept_axes(array: Variable, index: tuple[Any, ...]) -> list[int] | None:
    """Return the axes that an index keeps if it takes every element; else None."""
    kept = []
    for axis, one in enumerate((*index, *[slice(None)] * (array.type.ndim - len(index)))):
        if isinstance(one, slice):
            if (one.start, one.stop, one.step) != (None, None, None):
                return None
            kept.append(axis)
        elif array.type.shape[axis] != 1 or not (isinstance(one, Constant) and one.data in (0, -1)):
            return None
    return kept


def _fits(fgraph: FunctionGraph, array: Variable, value: Variable, kept: list[int]) -> bool:
    """Return whether a value is known to have the lengths of these axes, or length 1."""
    feature = getattr(fgraph, "shape_feature", None)
    axes = kept[len(kept) - value.type.ndim :]
    return value.type.ndim <= len(kept) and all(
        n == 1
        or (n is not None and n == array.type.shape[axis])
        or (feature is not None and feature.same_shape(value, array, d, axis))
        for d, (n, axis) in enumerate(zip(value.type.shape, axes, strict=True))
    )


def _whole_update(fgraph: FunctionGraph, node: Apply) -> Variable | None:
    """Return ``x + y`` for ``x[...] += y``, or y in the shape of x for ``x[...] = y``, if the index takes all of x."""
    array, value = node.inputs[:2]
    kept = _kept_axes(array, tuple(unflatten_index_variables(node.inputs[2:], node.op.idx_list)))
    if kept is None or value.type.dtype != array.type.dtype or not _fits(fgraph, array, value, kept):
        return None
    axes = kept[len(kept) - value.type.ndim :]
    order = [axes.index(axis) if axis in axes else "x" for axis in range(array.type.ndim)]
    if isinstance(value, Constant):
        value = constant(value.data.reshape([1 if d == "x" else value.data.shape[d] for d in order]))
    elif order != list(range(value.type.ndim)):
        value = value.dimshuffle(*order)
    if not node.op.set_instead_of_inc:
        return add(array, value)
    is_repeated = any(n == 1 != m for n, m in zip(value.type.shape, array.type.shape, strict=True))
    return second(array, value) if is_repeated else value


def _reduced_first(node: Apply) -> Variable | None:
    """Return the reduction before new axes for one after them, if it is along none of these."""
    view = node.inputs[0].owner
    if view is None or not isinstance(view.op, DimShuffle) or view.op.drop or node.op.axis is None:
        return None
    order, axes = view.op.new_order, set(node.op.axis)
    old = [o for o in order if o != "x"]
    if old != sorted(old) or "x" not in order or not axes or any(order[axis] == "x" for axis in axes):
        return None
    op = node.op.clone(axis=tuple(order[axis] for axis in sorted(axes)))
    result = op(view.inputs[0])
    position = iter(range(result.type.ndim))
    left = ["x" if o == "x" else next(position) for axis, o in enumerate(order) if axis not in axes]
    return result.dimshuffle(*left)


def _of_few(node: Apply) -> Variable | None:
    """Return ``a & b`` for ``all([a, b])``, and ``a | b`` for ``any([a, b])``, of at most `_FEW` conditions."""
    function = _LOGICAL.get(type(node.op.scalar_op))
    vector = node.inputs[0].owner
    if function is None or vector is None or not isinstance(vector.op, MakeVector) or node.op.axis not in _VECTOR:
        return None
    conditions = vector.inputs
    is_short = 0 < len(conditions) <= _FEW and all(v.type.dtype == "bool" for v in conditions)
    return reduce(function, conditions) if is_short else None


def replace_whole_updates(fgraph: FunctionGraph) -> None:
    """``x[:, 0] += y`` -> ``x + y``; sum of ``x[:, :, None]`` -> that of x; ``all([a, b])`` -> ``a & b``."""
    for node in fgraph.toposort():
        found = None
        if isinstance(node.op, IncSubtensor):
            found = _whole_update(fgraph, node)
        elif isinstance(node.op, CAReduce):
            found = _of_few(node) if isinstance(node.op.scalar_op, tuple(_LOGICAL)) else None
            found = _reduced_first(node) if found is None else found
        old = node.outputs[0]
        if found is not None and found.type.dtype == old.type.dtype and found.type.ndim == old.type.ndim:
            pair = (old, old.type.filter_variable(found))
            fgraph.replace_all_validate([pair], reason=_REASON)
