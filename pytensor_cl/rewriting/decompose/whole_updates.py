"""Slice updates that take a whole array -> elementwise functions, and sums along other axes than new ones.

Both stand between elementwise functions in gradients of models, which are then fused: ``m[:, 0]`` of a maximum that
keeps its dimensions, and sums of an array that was given a last axis.
"""

from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor import add, constant, second
from pytensor.tensor.elemwise import CAReduce, DimShuffle
from pytensor.tensor.subtensor import IncSubtensor, unflatten_index_variables

_REASON = "opencl_whole_updates"


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


def replace_whole_updates(fgraph: FunctionGraph) -> None:
    """``x[:, 0] += y`` of a column -> ``x + y``; sum of ``x[:, :, None]`` -> that of x."""
    for node in fgraph.toposort():
        found = None
        if isinstance(node.op, IncSubtensor):
            found = _whole_update(fgraph, node)
        elif isinstance(node.op, CAReduce):
            found = _reduced_first(node)
        old = node.outputs[0]
        if found is not None and found.type.dtype == old.type.dtype and found.type.ndim == old.type.ndim:
            pair = (old, old.type.filter_variable(found))
            fgraph.replace_all_validate([pair], reason=_REASON)
