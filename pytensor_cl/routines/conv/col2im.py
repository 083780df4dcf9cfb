"""Gradients of inputs as products of operands that are read in place; contributions to one element are added."""

from itertools import pairwise
from math import prod
from typing import NamedTuple

from pytensor_cl.routines.conv.plan import Problem, runs_of

__all__ = ["MOST_TAPS", "Col2imBlocks", "is_applicable", "is_dense", "positions_of", "split_blocks"]

MOST_TAPS = 8  # along a dimension
_MANY = 512  # positions of several images for which a product with kernels of one tap had better pack its operands
_STRIDED, _PLAIN = 32, 128  # terms of a sum that justify keeping it for each tap, with strides and without
_STEP = 2  # stride that is stored in vectors
_PRODUCT_BYTES = 1 << 20  # of the products of a block: they should stay in the second-level cache
# The same where there is one image, which is in the cache anyway, and sums are short.
_SINGLE_BYTES, _MANY_TERMS = 256 << 10, 256
_DEPTH = 1024  # terms of a sum that are computed at a time


class Col2imBlocks(NamedTuple):
    """How a problem is split: channels of a block and how many there are, distance of their rows, terms at a time."""

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
    """Whether the positions of an image follow one another in y."""
    return all(outer.out == 1 or outer.y == inner.out * inner.y for outer, inner in pairwise(p.axes))


def _taps(p: Problem) -> int:
    return prod(a.taps for a in p.axes)


def _row_stride(p: Problem, lanes: int) -> int:
    """Return the distance of rows of products: whole vectors, and no power of two."""
    return -(-positions_of(p) // lanes) * lanes + lanes


def is_applicable(p: Problem, lanes: int, rows: int, itemsize: int) -> bool:
    """Whether the gradient with respect to x of a simplified problem can be computed so, and in the cache.

    Parameters
    ----------
    p
        The convolution itself: y is what the gradient is computed from.
    lanes, rows
        Of a register tile.
    itemsize
        Bytes of an element.
    """
    size = lanes * _taps(p) * _row_stride(p, lanes) * itemsize
    fits = size <= (_PRODUCT_BYTES if p.batch > 1 or p.m >= _MANY_TERMS else _SINGLE_BYTES)
    in_place = runs_of(p) == (p.depth, 1, 0)
    is_strided = any(a.stride > 1 for a in p.axes) and p.axes[-1].stride <= _STEP
    terms = _STRIDED if is_strided else _PLAIN
    large = p.c >= lanes and p.m >= terms and positions_of(p) >= rows
    few = _taps(p) > 1 or p.batch == 1 or p.columns < _MANY
    return is_dense(p) and fits and in_place and large and few and all(a.taps <= MOST_TAPS for a in p.axes)


def split_blocks(p: Problem, lanes: int, vectors: int, itemsize: int, units: int) -> Col2imBlocks:
    """Split a problem for which `is_applicable` holds.

    Parameters
    ----------
    p, lanes, itemsize
        As of `is_applicable`.
    vectors
        Of a register tile.
    units
        Work-items that run at a time.
    """
    taps, row_stride = _taps(p), _row_stride(p, lanes)
    most = max(1, _PRODUCT_BYTES // (lanes * taps * row_stride * itemsize))  # vectors of channels
    wanted = min(most, -(-vectors // taps))
    count, others = -(-p.c // lanes), p.groups * p.batch
    blocks = -(-count // wanted)
    if blocks * others % units and others % units:
        blocks = min(count, -(-blocks // units) * units)
    channels = min(p.c // lanes, -(-count // blocks)) * lanes
    return Col2imBlocks(channels, -(-p.c // channels), row_stride, min(p.m, _DEPTH))
