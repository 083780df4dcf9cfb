"""Shape, strides and offset of an array: arithmetic without data.

Strides and offset count elements, not bytes. A view costs a new `Layout`, nothing else.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import mul
from typing import NamedTuple


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


class Layout(NamedTuple):
    """The positions of the elements of an array in its buffer.

    Attributes
    ----------
    shape
        Extent of each dimension.
    strides
        Step of each dimension, in elements; may be zero or negative.
    offset
        Position of the first element, in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def contiguous(cls, shape: Sequence[int]) -> "Layout":
        """Return the C-contiguous layout of `shape`."""
        shape = tuple(shape)
        return cls(shape, contiguous_strides(shape))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return reduce(mul, self.shape, 1)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow one another in C order."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n == 0:
                return True
            if n != 1 and stride != step:
                return False
            step *= n
        return True

    @property
    def span(self) -> tuple[int, int]:
        """First and one past the last element of the buffer that the array touches."""
        if 0 in self.shape:
            return self.offset, self.offset
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(r for r in reach if r < 0)
        return low, self.offset + sum(r for r in reach if r > 0) + 1

    def broadcast_to(self, shape: Sequence[int]) -> "Layout":
        """Repeat dimensions of length one, and add leading ones, with stride zero.

        Raises
        ------
        ValueError
            The layout does not broadcast to `shape`.
        """
        shape = tuple(shape)
        lead = len(shape) - self.ndim
        fits = lead >= 0 and all(n in (1, m) for n, m in zip(self.shape, shape[lead:], strict=True))
        if not fits or any(n < 0 for n in shape):
            raise ValueError(f"an array of shape {self.shape} does not broadcast to shape {shape}")
        own = zip(self.shape, self.strides, shape[lead:], strict=True)
        return Layout(shape, (0,) * lead + tuple(s if n == m else 0 for n, s, m in own), self.offset)

    def without_leading_ones(self, ndim: int) -> "Layout":
        """Drop leading dimensions of length one until `ndim` are left, as assignments do; else return the same."""
        extra = max(0, self.ndim - ndim)
        return Layout(self.shape[extra:], self.strides[extra:], self.offset) if set(self.shape[:extra]) == {1} else self

    def transpose(self, axes: Sequence[int] | None = None) -> "Layout":
        """Permute the dimensions (reverse them if `axes` is None)."""
        if axes is None:
            return Layout(self.shape[::-1], self.strides[::-1], self.offset)
        return self.dimshuffle(tuple(axes))

    def dimshuffle(self, order: Sequence[int | str]) -> "Layout":
        """Permute, drop and insert dimensions; ``"x"`` inserts one of length one.

        Raises
        ------
        ValueError
            A dropped dimension is not of length one.
        """
        for axis in set(range(self.ndim)).difference(order):
            if self.shape[axis] != 1:
                raise ValueError(f"cannot drop dimension {axis} of shape {self.shape}: its length is not 1")
        shape = tuple(1 if a == "x" else self.shape[a] for a in order)  # type: ignore[index]
        strides = tuple(0 if a == "x" else self.strides[a] for a in order)  # type: ignore[index]
        return Layout(shape, strides, self.offset)

    def subscript(self, items: Sequence[int | slice]) -> "Layout":
        """Apply basic indexing: an integer drops a dimension, a slice narrows it.

        Raises
        ------
        IndexError
            An integer is out of bounds, or there are more items than dimensions.
        """
        if len(items) > self.ndim:
            raise IndexError(f"too many indices for array: array is {self.ndim}-dimensional")
        shape, strides, offset = [], [], self.offset
        for axis, item in enumerate(items):
            n, stride = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                start, stop, step = item.indices(n)
                count = len(range(start, stop, step))
                offset += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
                continue
            if not -n <= item < n:
                raise IndexError(f"index {item} is out of bounds for axis {axis} with size {n}")
            offset += (item % n) * stride
        rest = len(items)
        return Layout((*shape, *self.shape[rest:]), (*strides, *self.strides[rest:]), offset)

    def reshape(self, shape: Sequence[int]) -> "Layout | None":
        """Return a view with another shape of the same size, or None where only a copy will do."""
        shape = tuple(shape)
        if prod(shape) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {shape}")
        if self.is_contiguous or not self.size:
            return Layout(shape, contiguous_strides(shape), self.offset)
        strides = _regroup(self, shape)
        return None if strides is None else Layout(shape, strides, self.offset)


def _regroup(layout: Layout, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of `shape` over the same elements, if each merged run of dimensions splits into whole new ones."""
    sizes, (steps,) = collapse(layout.shape, (layout.strides,))
    strides, axis = [0] * len(shape), len(shape) - 1
    for left, step in zip(reversed(sizes), reversed(steps), strict=True):
        while left > 1:
            if left % shape[axis]:
                return None
            strides[axis] = step
            step *= shape[axis]
            left //= shape[axis]
            axis -= 1
    return tuple(strides)


def collapse(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Merge adjacent dimensions that every operand steps through in one stride.

    Parameters
    ----------
    shape
        The common shape of the operands.
    strides
        Strides of each operand over `shape`.

    Returns
    -------
    shape, strides
        The same iteration with as few dimensions as possible (none for a single element).
    """
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        current = [s[axis] for s in strides]
        if sizes and all(p[-1] == c * n for p, c in zip(steps, current, strict=True)):
            sizes[-1] *= n
            for p, c in zip(steps, current, strict=True):
                p[-1] = c
            continue
        sizes.append(n)
        for p, c in zip(steps, current, strict=True):
            p.append(c)
    return tuple(sizes), tuple(tuple(p) for p in steps)
