"""Indices that differ from step to step -> selections, so that one kernel may compute the whole loop.

Rows of `x` are variables of that kernel, and it cannot look one up: `x[i]` becomes `x[0]` where `i` is 0, `x[1]` where
`i` is 1, and so on. Indices are checked before the loop, if their values are not known.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.math import Argmax
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, indices_from_subtensor

from pytensor_cl.scalar.unrolled import MOST_STATEMENTS

_check = CheckAndRaise(IndexError, "index out of bounds")


class _NoSelection(TypeError):
    """An index cannot be replaced."""


def with_selections(op: Scan, inputs: Sequence[Variable], ndim: int = 0) -> tuple[Scan, list[Variable]] | None:
    """Return a loop without indices that differ from step to step, and its inputs; None if there is none.

    `ndim` is the number of batch dimensions of the inputs.
    """
    if op.info.as_while:
        return None
    op, inputs = _with_arrays(op), [_as_array(v) for v in inputs]
    graph = op.fgraph.unfreeze()
    found = [n for n in graph.toposort() if isinstance(n.op, Subtensor | IncSubtensor) and _changing_entries(n)]
    outer = _outer_inputs(op, graph)
    least: dict[int, int] = {}  # the shortest axis that the values of an outer input index
    try:
        for indexed in found:
            for position, index in _changing_entries(indexed):
                _note_bound(index, _length(indexed, position), outer, least)
            old = indexed.outputs[0]
            graph.replace(old, old.type.filter_variable(_selection(indexed)), import_missing=True)
    except _NoSelection:
        return None
    if not found:
        return None
    checked, rows = list(inputs), (slice(None),) * ndim + (slice(pt.squeeze(inputs[0])),)
    for at, length in least.items():
        checked[at] = _checked(inputs[at], length, rows if at <= op.info.n_seqs else ())
    return op.clone_with_inner_graph(graph), checked


def _with_arrays(op: Scan) -> Scan:
    """Return a loop whose steps get arrays where they got numbers of C."""
    graph = op.fgraph.unfreeze()
    numbers = {v: pt.tensor(dtype=v.type.dtype, shape=()) for v in graph.inputs if isinstance(v.type, ScalarType)}
    if not numbers:
        return op
    outputs = clone_replace(list(graph.outputs), {old: pt.scalar_from_tensor(new) for old, new in numbers.items()})
    changed = FunctionGraph([numbers.get(v, v) for v in graph.inputs], outputs, clone=False)
    return op.clone_with_inner_graph(changed)


def _as_array(variable: Variable) -> Variable:
    return pt.as_tensor_variable(_plain(variable)) if isinstance(variable.type, ScalarType) else variable


def _changing_entries(node: Apply) -> list[tuple[int, Variable]]:
    """Return the integers of an index that are not known, with their positions."""
    entries = _entries(node)
    return [(k, e) for k, e in enumerate(entries) if not isinstance(e, slice) and not isinstance(_plain(e), Constant)]


def _entries(node: Apply) -> Sequence[Variable | slice]:
    first = 1 if isinstance(node.op, Subtensor) else 2
    return indices_from_subtensor(node.inputs[first:], node.op.idx_list)


def _plain(index: Variable) -> Variable:
    """Return a number without its conversions between scalars and arrays."""
    while index.owner is not None and isinstance(index.owner.op, ScalarFromTensor | TensorFromScalar):
        (index,) = index.owner.inputs
    return index


def _length(node: Apply, position: int) -> int:
    length = node.inputs[0].type.shape[position]
    if not length or length > MOST_STATEMENTS:
        raise _NoSelection
    return int(length)


# Bounds


def _outer_inputs(op: Scan, graph: FunctionGraph) -> dict[Variable, int]:
    """Return the inputs of a step that are sequences, or the same in all steps, with the outer ones' positions."""
    inputs = list(graph.inputs)
    sequences = {v: 1 + k for k, v in enumerate(op.inner_seqs(inputs))}
    constants = op.inner_non_seqs(inputs)
    first = op.n_outer_inputs - len(constants)
    return sequences | {v: first + k for k, v in enumerate(constants)}


def _note_bound(index: Variable, length: int, outer: dict[Variable, int], least: dict[int, int]) -> None:
    """Note what must be checked so that a number is an index of an axis."""
    index = _plain(index)
    if index in outer:
        least[outer[index]] = min(length, least.get(outer[index], length))
        return
    owner = index.owner
    if owner is not None and isinstance(owner.op, Argmax):
        shape = owner.inputs[0].type.shape
        if None not in shape and np.prod(shape) <= length:
            return
    raise _NoSelection


def _checked(values: Variable, length: int, rows: tuple[slice, ...]) -> Variable:
    """Return the values of indices, which are checked in each call if they are not known; `rows` are those of steps."""
    if isinstance(values, Constant) and np.all((values.data >= -length) & (values.data < length)):
        return values
    used = values[rows]
    return _check(values, pt.all(pt.and_(pt.ge(used, -length), pt.lt(used, length))))


# Selections


def _selection(node: Apply) -> Variable:
    """Return what an Op with an index of changing integers computes, by elementwise Ops."""
    return _taken(node) if isinstance(node.op, Subtensor) else _updated(node)


def _taken(node: Apply) -> Variable:
    """Return the elements that an index takes, one axis after the other from the last one on."""
    result, changing = node.inputs[0], dict(_changing_entries(node))
    for position, entry in reversed(list(enumerate(_entries(node)))):
        before = (slice(None),) * position
        if position not in changing:
            result = result[(*before, entry)]
            continue
        index, length = _wrapped(entry, _length(node, position))
        rows = [result[(*before, k)] for k in range(length)]
        result = rows[-1]
        for k in reversed(range(length - 1)):
            result = pt.switch(pt.eq(index, k), rows[k], result)
    return result


def _updated(node: Apply) -> Variable:
    """Return an array of which an index sets or increments elements."""
    x, value = node.inputs[:2]
    entries = [*_entries(node), *[slice(None)] * (x.type.ndim - len(node.op.idx_list))]
    dropped, masks = [], []
    for position, entry in enumerate(entries):
        if isinstance(entry, slice):
            if entry != slice(None):
                raise _NoSelection
            continue
        index, length = _wrapped(entry, _length(node, position))
        axes = [d for d in range(x.type.ndim) if d != position]
        masks.append(pt.expand_dims(pt.eq(pt.constant(np.arange(length)), index), axes))
        dropped.append(position)
    kept = x.type.ndim - len(dropped)
    value = pt.expand_dims(pt.expand_dims(value, list(range(kept - value.type.ndim))), dropped).astype(x.type.dtype)
    mask = masks[0] if len(masks) == 1 else pt.and_(*masks) if len(masks) == 2 else pt.all(pt.stack(masks), axis=0)
    return pt.switch(mask, value if node.op.set_instead_of_inc else x + value, x)


def _wrapped(entry: Variable, length: int) -> tuple[Variable, int]:
    """Return an index that is not negative, as a 0-d array, and the length."""
    index = pt.as_tensor_variable(_plain(entry))
    if isinstance(index, Constant) or index.type.numpy_dtype.kind in "ub":
        return index, length
    return pt.switch(pt.lt(index, 0), index + length, index), length
