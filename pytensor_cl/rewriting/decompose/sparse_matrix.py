"""A sparse matrix as dense vectors, and operations on the vectors: coordinates, order, sums, searches.

All vectors are tensors, which devices can hold; no object of SciPy is made.
"""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.extra_ops import searchsorted

_NONE = np.iinfo("int64").max


class Matrix(NamedTuple):
    """A matrix of compressed rows or columns."""

    data: Variable  # the entries, row after row, or column after column
    indices: Variable  # int64: column, or row, of each entry
    pointers: Variable  # int64: first entry of each row, or column; then the number of entries
    rows: Variable  # int64, 0-d: number of rows
    columns: Variable  # int64, 0-d: number of columns
    form: str  # "csr" or "csc"

    def with_data(self, data: Variable) -> "Matrix":
        """Return a matrix with other entries at the same places."""
        return self._replace(data=data)

    def transposed(self) -> "Matrix":
        """Return the transpose: the same vectors."""
        return self._replace(rows=self.columns, columns=self.rows, form="csc" if self.form == "csr" else "csr")

    def coordinates(self) -> tuple[Variable, Variable]:
        """Return row and column of each entry."""
        outer = expanded(self.pointers, self.data.shape[0])
        return (outer, self.indices) if self.form == "csr" else (self.indices, outer)

    def keys(self) -> Variable:
        """Return the number of each entry's place, counted row by row."""
        row, column = self.coordinates()
        return row * self.columns + column


class Groups(NamedTuple):
    """Entries that are grouped by place."""

    keys: Variable  # ascending places, then the largest integer: as many elements as entries
    count: Variable  # number of places, 0-d
    group: Variable  # number of the place of each entry

    def sums(self, data: Variable) -> Variable:
        """Return the sum of the entries of each place, and zeros after them."""
        return pt.zeros_like(data)[self.group].inc(data)


def expanded(pointers: Variable, entries: Variable) -> Variable:
    """Return for each entry the number of the row to which pointers say that it belongs."""
    return searchsorted(pointers, pt.arange(entries), side="right") - 1


def compressed(
    place: tuple[Variable, Variable],
    data: Variable,
    lengths: tuple[Variable, Variable],
    form: str,
    is_sorted: bool = False,
) -> Matrix:
    """Return the matrix of entries at places (rows, columns) that may be in any order, and may occur again."""
    rows, columns = lengths
    outer, inner = place if form == "csr" else place[::-1]
    length, width = lengths if form == "csr" else lengths[::-1]
    if not is_sorted:
        order = pt.argsort(outer * width + inner)
        outer, inner, data = outer[order], inner[order], data[order]
    pointers = pt.cast(searchsorted(outer, pt.arange(length + 1)), "int64")
    return Matrix(data, inner, pointers, rows, columns, form)


def groups_of(keys: Variable) -> Groups:
    """Group entries with equal keys, which are not negative."""
    n = keys.shape[0]
    order = pt.argsort(keys)
    ordered = keys[order]
    is_first = pt.neq(ordered, pt.join(0, np.array([-1]), ordered)[:-1])
    number = pt.cumsum(pt.cast(is_first, "int64")) - 1
    places = pt.alloc(np.int64(_NONE), n)[number].set(ordered)
    return Groups(places, pt.cast(is_first, "int64").sum(), pt.zeros_like(number)[order].set(number))


def chosen(keys: Variable, data: Variable, is_chosen: Variable, like: Matrix, form: str) -> Matrix:
    """Return the matrix of the entries that are chosen; keys are in ascending order."""
    (kept,) = pt.nonzero(is_chosen)
    keys = keys[kept]
    place = keys // like.columns, keys % like.columns
    return compressed(place, data[kept], (like.rows, like.columns), form, is_sorted=form == "csr")


def values_at(matrix: Matrix, keys: Variable) -> Variable:
    """Return the elements of a matrix at places; zeros where there is no entry."""
    groups = groups_of(matrix.keys())
    places = pt.join(0, groups.keys, np.array([_NONE]))
    sums = pt.join(0, groups.sums(matrix.data), np.zeros(1, matrix.data.type.dtype))
    found = searchsorted(places, keys)
    return pt.switch(pt.eq(places[found], keys), sums[found], np.zeros((), matrix.data.type.dtype))


def from_dense(x: Variable, form: str) -> Matrix:
    """Return the matrix of the elements that are not zero."""
    rows, columns = (pt.cast(n, "int64") for n in x.shape)
    row, column = pt.nonzero(x if form == "csr" else x.T)
    if form == "csc":
        row, column = column, row
    return compressed((row, column), x[row, column], (rows, columns), form, is_sorted=True)
