"""Selection by an index with arrays: NumPy's rules for shapes and axes, without data."""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from pytensor_cl.runtime.layout import Layout

Entry = int | slice
"""The index of an axis: the number of an index input, or a slice of such numbers and None."""

Bounds = tuple[int, int]
"""The least and the greatest value of an index array."""

UNCHECKED_BOUNDS: Bounds = (0, -1)
"""Bounds of an index array that cannot be out of range."""


class IndexArray(NamedTuple):
    """One index array of a selection.

    `strides`: its strides over the dimensions of the result; `axis`, `length`: the axis that it indexes, and that
    axis's length; `step`: stride of the indexed array along that axis.
    """

    strides: tuple[int, ...]
    axis: int
    length: int
    step: int


class Selection(NamedTuple):
    """The result of an index.

    `strides`: strides of the indexed array over the dimensions of the result; 0 where index arrays step; `offset`:
    where the selection starts, relative to the array, in elements; `advanced`: the dimensions of the result in which
    the index arrays step; `arrays`: one entry for each index input that is an array, in their order.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    advanced: range
    arrays: tuple[IndexArray, ...]

    @property
    def positions(self) -> Layout:
        """The layout of one element per combination of indices."""
        return Layout.contiguous([self.shape[d] for d in self.advanced])


def out_of_bounds(index: int, axis: int, length: int) -> IndexError:
    """Return the error that NumPy raises."""
    return IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")


def check_bounds(bounds: Bounds, axis: int, length: int) -> None:
    """Raise IndexError if an index array with these bounds does not fit an axis."""
    low, high = bounds
    if high >= length:
        raise out_of_bounds(high, axis, length)
    if low < -length:
        raise out_of_bounds(low, axis, length)


def _common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        text = " ".join(map(str, shapes))
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {text}"
        ) from error


def _sliced(entry: slice, values: Sequence[Layout | int], length: int) -> tuple[int, int, int]:
    """Return start, number of elements, and step."""
    numbers = (None if at is None else values[at] for at in (entry.start, entry.stop, entry.step))
    start, stop, step = slice(*numbers).indices(length)
    return start, len(range(start, stop, step)), step


def _is_adjacent(axes: Sequence[int]) -> bool:
    return axes[-1] - axes[0] + 1 == len(axes)


def select(entries: Sequence[Entry], array: Layout, values: Sequence[Layout | int]) -> Selection:
    """Apply an index.

    `entries`: the index of each axis; axes without an entry are taken whole; `array`: the indexed array; `values`:
    index inputs: layouts of index arrays, numbers of the host.

    Raises `IndexError`: a number is out of bounds, or the index arrays do not broadcast together.
    """
    kept, offset, advanced = [], 0, []
    for axis, (n, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        entry = entries[axis] if axis < len(entries) else slice(None)
        if isinstance(entry, slice):
            start, count, step = _sliced(entry, values, n)
            offset += start * stride if count else 0
            kept.append((count, stride * step))
            continue
        advanced.append((axis, values[entry]))
    axes = [axis for axis, _ in advanced]
    shape = _common_shape([v.shape for _, v in advanced if isinstance(v, Layout)])
    before = axes[0] if axes and _is_adjacent(axes) else 0
    arrays = []
    for axis, value in advanced:
        n, stride = array.shape[axis], array.strides[axis]
        if isinstance(value, Layout):
            steps = (0,) * before + value.broadcast_to(shape).strides + (0,) * (len(kept) - before)
            arrays.append(IndexArray(steps, axis, n, stride))
            continue
        check_bounds((value, value), axis, n)
        offset += value % n * stride
    return Selection(
        (*(n for n, _ in kept[:before]), *shape, *(n for n, _ in kept[before:])),
        (*(s for _, s in kept[:before]), *(0 for _ in shape), *(s for _, s in kept[before:])),
        offset,
        range(before, before + len(shape)),
        tuple(arrays),
    )


def in_units(selection: Selection) -> tuple[Selection, int, int]:
    """Return the selection with positions in units of elements, the elements of a unit, and the number of positions."""
    unit = gcd(*(a.step for a in selection.arrays if a.length > 1)) or 1
    arrays = tuple(a._replace(step=a.step // unit if a.length > 1 else 0) for a in selection.arrays)
    span = sum((a.length - 1) * a.step for a in arrays if a.length) + 1
    return selection._replace(arrays=arrays), unit, span
