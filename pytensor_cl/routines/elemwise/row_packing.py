"""Elementwise functions of short rows: several rows are taken for one, so that vectors are full. Arithmetic only.

Where all arrays but a few are dense, and those few repeat along the rows or across them, as in ``x - mean`` of data
with ten columns, a row would be a vector that is not full. Instead, rows are joined until their elements
fill whole vectors.
"""

from math import gcd, prod
from typing import NamedTuple

import numpy as np

from pytensor_cl.routines.elemwise.limits import (
    FOLDED_ROW_VECTORS,
    MAX_FOLDED_ELEMENTS,
    MIN_FOLDED_ARRAY_ELEMENTS,
    MIN_FOLDED_ELEMENTS,
)
from pytensor_cl.runtime.layout import Layout, contiguous_strides

Shape = tuple[int, ...]
Strides = tuple[tuple[int, ...], ...]


class Fold(NamedTuple):
    """Rows that are taken together.

    `shape`, `strides`: shape of all arrays and strides of each, rows along the first dimension; `roles`: role of each
    array: ``"dense"``, ``"row"`` (the same for each row), ``"column"`` (one element for each row), or ``"same"`` (one
    element).
    """

    shape: Shape
    strides: Strides
    group: int
    roles: tuple[str, ...]

    @property
    def width(self) -> int:
        """Elements of a row."""
        return prod(self.shape[1:])

    def numbers(self, role: str) -> tuple[int, ...]:
        """Return which arrays have a role."""
        return tuple(a for a, own in enumerate(self.roles) if own == role)

    def parts(self) -> list[tuple[Shape, Strides, tuple[int, ...]]]:
        """Return shape, strides and shifts of each launch: whole groups of rows, and the rows that are left."""
        whole, rest = divmod(self.shape[0], self.group)
        steps = tuple(self.group * s[0] for s in self.strides)
        strides = tuple((step, int(role in ("dense", "row"))) for role, step in zip(self.roles, steps, strict=True))
        found: list[tuple[Shape, Strides, tuple[int, ...]]] = [
            ((whole, self.group * self.width), strides, (0,) * len(steps))
        ]
        if rest:
            found.append(((1, rest * self.width), strides, tuple(whole * step for step in steps)))
        return found

    def row(self, array: int, offset: int) -> Layout:
        """Return the layout of a row that is the same for all, with a dimension to repeat it along."""
        return Layout((1, *self.shape[1:]), (0, *self.strides[array][1:]), offset)

    def places(self, array: int) -> np.ndarray:
        """Return where the element of a column is for each element of a group."""
        return np.repeat(np.arange(self.group, dtype="int32") * np.int32(self.strides[array][0]), self.width)


def _role(strides: tuple[int, ...], dense: tuple[int, ...]) -> str:
    if strides == dense:
        return "dense"
    if not any(strides[1:]):
        return "column" if strides[0] else "same"
    return "other" if strides[0] else "row"


def _group_of(width: int, lanes: int) -> int:
    """Return how many rows are whole vectors, and enough of them; 0 where rows are long."""
    group = lanes // gcd(width, lanes)
    if width < FOLDED_ROW_VECTORS * lanes:
        return group * max(1, MIN_FOLDED_ELEMENTS // (group * width))
    return group if group > 1 and group * width <= MAX_FOLDED_ELEMENTS else 0


def find_fold(shape: Shape, strides: Strides, lanes: int, outputs: int) -> Fold | None:
    """Return how to fold rows, or None where that is not possible, or gains nothing.

    `shape`, `strides`: shape of all arrays and strides of each, the outputs last; dimensions that can be merged have
    been; `lanes`: elements of a vector.
    """
    if len(shape) < 2 or prod(shape) < MIN_FOLDED_ARRAY_ELEMENTS:
        return None
    width, dense = prod(shape[1:]), contiguous_strides(shape)
    group = _group_of(width, lanes)
    roles = tuple(_role(s, dense) for s in strides)
    is_dense = all(role == "dense" for role in roles[-outputs:])
    if not is_dense or "other" in roles or not 0 < group <= shape[0] // 4:
        return None
    if width >= FOLDED_ROW_VECTORS * lanes and "dense" not in roles[:-outputs]:  # little is read
        return None
    return Fold(shape, strides, group, roles)
