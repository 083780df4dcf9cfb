"""Units of work of schedule simt: some elements of a row for each work-item; see kernels/common/units.mako."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from pytensor_cl.integers import ceil_div
from pytensor_cl.routines.base.limits import INTERLEAVED_ITEMS, VECTOR_BYTES

MEMBERS = "units across vectors vectors_across dims bits"
"""Members of a kernel's struct, of its type of indices, in the order of `Units`."""


class Units(NamedTuple):
    """Numbers of units and of units of a row, without and with vectors; 0 vectors if the layout has none.

    `dims`: dimensions that were not merged; `bits`: binary logarithm of the distance of a unit's elements.
    """

    units: int
    across: int
    vectors: int
    vectors_across: int
    dims: int
    bits: int

    @property
    def expected(self) -> int:
        """Units that are likely taken."""
        return self.vectors or self.units


def share_out(shape: Sequence[int], lanes: int, has_vectors: bool = False, rows_each: int = 1) -> Units:
    """Return the units of `lanes` elements, a power of two, of `rows_each` rows, of an array with merged dimensions."""
    last, rows = (shape[-1], ceil_div(prod(shape[:-1]), rows_each)) if shape else (1, 1)
    apart = 1
    while lanes > 1 and apart < INTERLEAVED_ITEMS and apart * lanes < last:
        apart *= 2
    across, vectors_across = ceil_div(last, apart * lanes), ceil_div(last, lanes)
    vectors = rows * vectors_across if has_vectors else 0
    return Units(rows * across * apart, across, vectors, vectors_across, max(1, len(shape)), apart.bit_length() - 1)


def vector_lanes(itemsize: int, most: int = 4) -> int:
    """Return how many elements of this size, at most, a work-item moves at a time: 16 bytes."""
    return max(1, min(most, VECTOR_BYTES // itemsize))


def rows_have_vectors(shape: Sequence[int], strides: Sequence[Sequence[int]], lanes: int) -> bool:
    """Return whether arrays that are contiguous along the last dimension have rows of whole vectors, all aligned.

    The kernel looks at the addresses. The only row of one dimension may end with a part of a vector.
    """
    if not shape or lanes == 1 or any(s[-1] != 1 for s in strides):
        return False
    return len(shape) == 1 or not (shape[-1] % lanes or any(step % lanes for s in strides for step in s[:-1]))
