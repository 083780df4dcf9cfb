"""Batch axes that `vectorize_graph` adds in front of arrays."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable


def shared_entry(value: Variable) -> Variable:
    """Return a length or parameter of which a batch has the same for all its entries, as lengths of batched arrays."""
    return value.flatten()[0] if value.type.ndim else value


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
