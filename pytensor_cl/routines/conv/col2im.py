"""Gradients of inputs as products of operands that are read in place; contributions to one element are added."""

from itertools import pairwise
from math import prod
from typing import NamedTuple

from pytensor_cl.integers import ceil_div, round_up
from pytensor_cl.routines.conv.limits import (
    COL2IM_LONG_SUM_TERMS,
    COL2IM_MAX_DEPTH,
    COL2IM_MAX_STRIDE,
    COL2IM_MAX_TAPS,
    COL2IM_MIN_STRIDED_TERMS,
    COL2IM_MIN_TERMS,
    COL2IM_POINTWISE_POSITIONS,
    COL2IM_PRODUCT_BYTES,
    COL2IM_SINGLE_IMAGE_BYTES,
)
from pytensor_cl.routines.conv.plan import Problem, runs_of


class Col2imBlocks(NamedTuple):
    """Split of a problem: channels per block, number of blocks, distance of rows, terms at a time."""

    channels: int
    blocks: int
    row_stride: int
    depth: int

    def workspace_size(self, taps: int, lanes: int) -> int:
        """Return how many elements of the workspace a work-item needs."""
        return self.channels * taps * self.row_stride + 3 * lanes


def positions_of(p: Problem) -> int:
    """Return the number of positions of an image."""
    return prod(a.out for a in p.axes)


def is_dense(p: Problem) -> bool:
    """Return whether the positions of an image follow one another in y."""
    return all(outer.out == 1 or outer.y == inner.out * inner.y for outer, inner in pairwise(p.axes))


def _taps(p: Problem) -> int:
    return prod(a.taps for a in p.axes)


def _row_stride(p: Problem, lanes: int) -> int:
    """Return the distance of rows of products: whole vectors, and no power of two."""
    return round_up(positions_of(p), lanes) + lanes


def is_applicable(p: Problem, lanes: int, rows: int, itemsize: int) -> bool:
    """Return whether the gradient with respect to x of a simplified problem can be computed so, and in the cache.

    `p`: the convolution itself: y is what the gradient is computed from; `itemsize`: bytes of an element.
    """
    size = lanes * _taps(p) * _row_stride(p, lanes) * itemsize
    fits = size <= (COL2IM_PRODUCT_BYTES if p.batch > 1 or p.m >= COL2IM_LONG_SUM_TERMS else COL2IM_SINGLE_IMAGE_BYTES)
    in_place = runs_of(p) == (p.depth, 1, 0)
    is_strided = any(a.stride > 1 for a in p.axes) and p.axes[-1].stride <= COL2IM_MAX_STRIDE
    terms = COL2IM_MIN_STRIDED_TERMS if is_strided else COL2IM_MIN_TERMS
    large = p.c >= lanes and p.m >= terms and positions_of(p) >= rows
    few = _taps(p) > 1 or p.batch == 1 or p.columns < COL2IM_POINTWISE_POSITIONS
    return is_dense(p) and fits and in_place and large and few and all(a.taps <= COL2IM_MAX_TAPS for a in p.axes)


def split_blocks(p: Problem, lanes: int, vectors: int, itemsize: int, units: int) -> Col2imBlocks:
    """Split a problem for which `is_applicable` holds.

    `units`: work-items that run at a time.
    """
    taps, row_stride = _taps(p), _row_stride(p, lanes)
    most = max(1, COL2IM_PRODUCT_BYTES // (lanes * taps * row_stride * itemsize))  # vectors of channels
    wanted = min(most, ceil_div(vectors, taps))
    count, others = ceil_div(p.c, lanes), p.groups * p.batch
    blocks = ceil_div(count, wanted)
    if blocks * others % units and others % units:
        blocks = min(count, round_up(blocks, units))
    channels = min(p.c // lanes, ceil_div(count, blocks)) * lanes
    return Col2imBlocks(channels, ceil_div(p.c, channels), row_stride, min(p.m, COL2IM_MAX_DEPTH))
