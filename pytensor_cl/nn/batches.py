"""Batch axes that `vectorize_graph` adds in front of arrays."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor


def shared_entry(value: Variable) -> Variable:
    """Return a length or parameter of which a batch has the same for all its entries, as lengths of batched arrays."""
    if not value.type.ndim:
        return value
    node = value.owner
    if node is not None and isinstance(node.op, Subtensor) and node.inputs[0].owner is not None:
        repeated = node.inputs[0].owner
        indices: list[Any] = list(indices_from_subtensor(node.inputs[1:], node.op.idx_list))
        if isinstance(repeated.op, Alloc) and indices[:-1] == [slice(None)] * value.type.ndim:
            return repeated.inputs[0][indices[-1]]  # of a shape that is repeated for each entry, if there are any
    return value.flatten()[0]


def common_batch(arrays: Sequence[Variable], core_ndims: Sequence[int]) -> tuple[list[Variable], list[Any]]:
    """Return arrays with the same batch dimensions in front, and the lengths of these."""
    batches = [a.type.ndim - core for a, core in zip(arrays, core_ndims, strict=True)]
    ndim = max(batches)
    padded = [pt.shape_padleft(a, ndim - batch) for a, batch in zip(arrays, batches, strict=True)]
    patterns = {p.type.broadcastable[:ndim] for p in padded}
    if len(padded) == 1 or (len(patterns) == 1 and not any(*patterns)):
        return padded, lengths_of(padded[0], range(ndim))
    shape = list(pt.broadcast_shape(*(lengths_of(p, range(ndim)) for p in padded), arrays_are_shapes=True))
    return [pt.broadcast_to(p, (*shape, *lengths_of(p, range(ndim, p.type.ndim)))) for p in padded], shape


def lengths_of(x: Variable, axes: Sequence[int]) -> list[Any]:
    """Return lengths of an array, as integers where they are static."""
    return [x.shape[axis] if x.type.shape[axis] is None else x.type.shape[axis] for axis in axes]
