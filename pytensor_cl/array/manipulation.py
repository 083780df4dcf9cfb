"""Functions that change shapes, order or number of elements. Most return views."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pytensor_cl.array.arguments import check_arrays, takes_arrays
from pytensor_cl.array.dispatch import common_context
from pytensor_cl.array.launches import copied, copy_into
from pytensor_cl.routines.indexing.diagonal import diagonal as diagonal_layout
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout


def _lengths(shape: Any) -> tuple[int, ...]:
    """Return integers, which are given as one or as a sequence.

    Raises `TypeError`: one is no integer.
    """
    return (index(shape),) if hasattr(shape, "__index__") else tuple(map(index, shape))


def _check_order(name: str, order: str) -> None:
    if order not in ("C", "F"):
        raise ValueError(f"{name}: order must be 'C' or 'F', not {order!r}")


@takes_arrays
def reshape(x: GpuArray, /, shape: Any, *, copy: bool | None = None, order: str = "C") -> GpuArray:
    """Return the elements in another shape.

    Parameters
    ----------
    x
        An array.
    shape
        An integer, or a sequence of integers; one of them may be -1, which stands for what the others leave.
    copy
        True copies; None copies where a view is not possible; False raises instead.
    order
        The order in which elements are read and written: ``"C"``, or ``"F"`` with the first dimension the fastest.

    Raises
    ------
    ValueError
        The size differs, or `copy` is False and a copy is necessary.
    """
    wanted = _lengths(shape)
    if order != "C":
        _check_order("reshape", order)
        return reshape(x.T, wanted[::-1], copy=copy).T
    if wanted.count(-1) > 1 or any(n < -1 for n in wanted):
        raise ValueError(f"reshape: shape {wanted} may have one -1, and no other negative length")
    if -1 in wanted:
        rest = prod(n for n in wanted if n != -1)
        if not rest or x.size % rest:
            raise ValueError(f"cannot reshape array of size {x.size} into shape {wanted}")
        wanted = tuple(x.size // rest if n == -1 else n for n in wanted)
    layout = x.layout.reshape(wanted)
    if layout is None and copy is False:
        raise ValueError(f"reshape of strides {x.strides} into shape {wanted} needs a copy: take copy=None")
    if layout is not None and not copy:
        return x.with_layout(layout)
    dense = copied(x)
    return dense.with_layout(Layout.contiguous(wanted))


@takes_arrays
def ravel(x: GpuArray, /, order: str = "C") -> GpuArray:
    """Return the elements as a vector: a view where one is possible, else a copy.

    `order` is that of `reshape`.
    """
    if order != "C":
        _check_order("ravel", order)
        x = x.T
    return reshape(x, (-1,)) if x.size else reshape(x, (0,))


@takes_arrays
def permute_dims(x: GpuArray, /, axes: Sequence[int]) -> GpuArray:
    """Return a view with the dimensions in another order.

    Parameters
    ----------
    x
        An array.
    axes
        The dimensions of `x` in the order of the result; each is given once.

    Raises
    ------
    ValueError
        A dimension is missing, or is given twice.
    """
    order = normalize_axis_tuple(axes, x.ndim, "axes")
    if len(order) != x.ndim:
        raise ValueError(f"permute_dims: axes {tuple(axes)} must name each of the {x.ndim} dimensions once")
    return x.with_layout(x.layout.transpose(order))


@takes_arrays
def transpose(x: GpuArray, /, axes: Sequence[int] | None = None) -> GpuArray:
    """Return a view with the dimensions in another order: `axes` as for `permute_dims`, or the reverse order."""
    return x.T if axes is None else permute_dims(x, axes)


@takes_arrays
def matrix_transpose(x: GpuArray, /) -> GpuArray:
    """Return a view with the last two dimensions exchanged.

    Raises `ValueError`: there are fewer than two.
    """
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose needs two dimensions or more, not shape {x.shape}")
    return swapaxes(x, -1, -2)


@takes_arrays
def swapaxes(x: GpuArray, axis1: int, axis2: int, /) -> GpuArray:
    """Return a view with the dimensions `axis1` and `axis2` exchanged.

    Raises `AxisError`, an `IndexError`: there is no such dimension.
    """
    order = list(range(x.ndim))
    first, second = normalize_axis_index(axis1, x.ndim), normalize_axis_index(axis2, x.ndim)
    order[first], order[second] = order[second], order[first]
    return x.with_layout(x.layout.transpose(order))


@takes_arrays
def moveaxis(x: GpuArray, source: Any, destination: Any, /) -> GpuArray:
    """Return a view with dimensions moved to other places; the others keep their order.

    Parameters
    ----------
    x
        An array.
    source, destination
        Places of the dimensions before and after: an integer, or a sequence of integers.

    Raises
    ------
    ValueError
        A place is given twice, or the numbers of places differ.
    """
    sources = normalize_axis_tuple(source, x.ndim, "source")
    targets = normalize_axis_tuple(destination, x.ndim, "destination")
    if len(sources) != len(targets):
        raise ValueError("moveaxis: source and destination must have the same number of axes")
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return x.with_layout(x.layout.transpose(order))


@takes_arrays
def expand_dims(x: GpuArray, /, axis: int | Sequence[int]) -> GpuArray:
    """Return a view with new dimensions of length 1.

    Parameters
    ----------
    x
        An array.
    axis
        The places of the new dimensions in the result: an integer, or a sequence of integers.

    Raises
    ------
    IndexError
        A place is out of bounds.
    ValueError
        A place is given twice.
    """
    axes = _lengths(axis)
    ndim = x.ndim + len(axes)
    if any(not -ndim <= a < ndim for a in axes):
        raise IndexError(f"expand_dims: axis {axis} is out of bounds for a result of {ndim} dimensions")
    places = normalize_axis_tuple(axes, ndim, "axis")
    own = iter(range(x.ndim))
    return x.with_layout(x.layout.dimshuffle(tuple("x" if a in places else next(own) for a in range(ndim))))


@takes_arrays
def squeeze(x: GpuArray, /, axis: int | Sequence[int] | None = None) -> GpuArray:
    """Return a view without dimensions of length 1.

    Parameters
    ----------
    x
        An array.
    axis
        The dimensions that are removed; None removes all of length 1, which the array API standard does not have.

    Raises
    ------
    ValueError
        A dimension has another length.
    """
    if axis is None:
        axes: tuple[int, ...] = tuple(a for a, n in enumerate(x.shape) if n == 1)
    else:
        axes = normalize_axis_tuple(axis, x.ndim, "axis")
    return x.with_layout(x.layout.dimshuffle(tuple(a for a in range(x.ndim) if a not in axes)))


@takes_arrays
def broadcast_to(x: GpuArray, /, shape: Any) -> GpuArray:
    """Return a view in another shape, in which dimensions are repeated; it is read-only, as its elements share places.

    Parameters
    ----------
    x
        An array.
    shape
        An integer, or a sequence of integers, to which the shape of `x` broadcasts by NumPy's rules.

    Raises
    ------
    ValueError
        The array does not broadcast to the shape.
    """
    return x.with_layout(x.layout.broadcast_to(_lengths(shape)))


def broadcast_arrays(*arrays: GpuArray) -> list[GpuArray]:
    """Return views of the arrays in their common shape.

    Raises `ValueError`: they do not broadcast.
    """
    check_arrays("broadcast_arrays", arrays)
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the common shape of arrays of these shapes.

    Raises `ValueError`: they do not broadcast.
    """
    return np.broadcast_shapes(*shapes)


def meshgrid(*arrays: GpuArray, indexing: str = "xy") -> list[GpuArray]:
    """Return the coordinates of a grid, one array for each vector.

    Parameters
    ----------
    arrays
        Vectors of one dtype, of lengths n1, n2, ...
    indexing
        ``"xy"``: the arrays have shape (n2, n1, n3, ...), as images have; ``"ij"``: (n1, n2, n3, ...).

    Returns
    -------
    list of GpuArray
        New arrays; NumPy's arguments ``copy`` and ``sparse`` do not exist.

    Raises
    ------
    ValueError
        The dtypes differ, or `indexing` is neither of the two.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', not {indexing!r}")
    check_arrays("meshgrid", arrays)
    if len({x.dtype for x in arrays}) > 1:
        raise ValueError(f"meshgrid: the vectors must have one dtype, not {', '.join(str(x.dtype) for x in arrays)}")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[0], order[1] = 1, 0
    flat = [x if x.ndim == 1 else reshape(x, (-1,)) for x in arrays]
    shape = tuple(flat[k].size for k in order)
    lines = [
        reshape(x, tuple(x.size if at == order[k] else 1 for at in range(len(arrays)))) for k, x in enumerate(flat)
    ]
    return [copied(broadcast_to(line, shape)) for line in lines]


@takes_arrays
def flip(x: GpuArray, /, axis: int | Sequence[int] | None = None) -> GpuArray:
    """Return a view with the elements in the reverse order along one dimension, several, or all (None)."""
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim, "axis")
    backwards = slice(None, None, -1)
    return x[tuple(backwards if a in axes else slice(None) for a in range(x.ndim))]


@takes_arrays
def unstack(x: GpuArray, /, *, axis: int = 0) -> tuple[GpuArray, ...]:
    """Return views of the parts along a dimension, without it.

    Parameters
    ----------
    x
        An array of n elements along `axis`.
    axis
        The dimension.

    Returns
    -------
    tuple of GpuArray
        n arrays with one dimension less.

    Raises
    ------
    ValueError
        The array is 0-d.
    """
    return tuple(moveaxis(x, axis, 0)) if x.ndim else _no_dimension("unstack")


def _no_dimension(name: str) -> Any:
    raise ValueError(f"{name} needs an array of one dimension or more")


@takes_arrays
def diagonal(x: GpuArray, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> GpuArray:
    """Return a view of diagonals.

    Parameters
    ----------
    x
        An array of two dimensions or more.
    offset
        The place of the diagonal above the main one; below it the number is negative.
    axis1, axis2
        The dimensions of the matrices.

    Returns
    -------
    GpuArray
        The other dimensions of `x`, and the diagonals in a new last one. NumPy's is read-only; this one can be written
        to.
    """
    first, second = normalize_axis_tuple((axis1, axis2), x.ndim, "axis")
    return x.with_layout(diagonal_layout(x.layout, offset, first, second))


def _check_axis_is_no_array(name: str, axis: Any) -> None:
    if isinstance(axis, GpuArray):
        raise TypeError(f"{name} takes the arrays as one sequence: {name}([x1, x2])")


def concat(arrays: Sequence[GpuArray], /, axis: int | None = 0) -> GpuArray:
    """Concatenate arrays along a dimension.

    Parameters
    ----------
    arrays
        Device arrays of the same shape but for `axis`.
    axis
        The dimension. None concatenates the flattened arrays.

    Returns
    -------
    GpuArray
        A new array, of the dtype to which those of the arrays promote.

    Raises
    ------
    ValueError
        The shapes do not fit, or there are no arrays.
    TypeError
        The arrays are not in a sequence.
    """
    _check_axis_is_no_array("concat", axis)
    arrays = list(arrays)
    if not arrays:
        raise ValueError("concat needs at least one array")
    check_arrays("concat", arrays)
    context = common_context("concat", arrays)
    if axis is None:
        arrays, axis = [reshape(x, (x.size,)) for x in arrays], 0
    first = arrays[0]
    if not first.ndim:
        _no_dimension("concat")
    axis = normalize_axis_index(axis, first.ndim)
    for x in arrays:
        if x.ndim != first.ndim or any(
            m != n for a, (m, n) in enumerate(zip(x.shape, first.shape, strict=True)) if a != axis
        ):
            raise ValueError(
                f"concat: all dimensions but axis {axis} must have the same lengths, the shapes are "
                f"{', '.join(str(x.shape) for x in arrays)}"
            )
    dtype = np.result_type(*(x.dtype for x in arrays))
    lengths = [x.shape[axis] for x in arrays]
    result = context.empty((*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :]), context.check_dtype(dtype))
    start, before = 0, (slice(None),) * axis
    for x, length in zip(arrays, lengths, strict=True):
        copy_into(result[(*before, slice(start, start + length))], x)
        start += length
    return result


concatenate = concat


def stack(arrays: Sequence[GpuArray], /, axis: int = 0) -> GpuArray:
    """Concatenate arrays along a new dimension.

    Parameters
    ----------
    arrays
        Device arrays of one shape.
    axis
        The place of the new dimension in the result.

    Raises
    ------
    ValueError
        The shapes differ, or there are no arrays.
    TypeError
        The arrays are not in a sequence.
    """
    _check_axis_is_no_array("stack", axis)
    arrays = list(arrays)
    if not arrays:
        raise ValueError("stack needs at least one array")
    check_arrays("stack", arrays)
    if len({x.shape for x in arrays}) != 1:
        raise ValueError(f"stack: the arrays must have one shape, not {', '.join(str(x.shape) for x in arrays)}")
    place = normalize_axis_index(axis, arrays[0].ndim + 1)
    return concat([expand_dims(x, axis=place) for x in arrays], axis=place)


def _at_least(name: str, x: GpuArray, ndim: int) -> GpuArray:
    check_arrays(name, (x,))
    return reshape(x, (1,) * (ndim - x.ndim) + x.shape) if x.ndim < ndim else x


def hstack(arrays: Sequence[GpuArray], /) -> GpuArray:
    """Concatenate a sequence of arrays along the second dimension; vectors along their only one."""
    arrays = [_at_least("hstack", x, 1) for x in arrays]
    return concat(arrays, axis=0 if arrays and arrays[0].ndim == 1 else 1)


def vstack(arrays: Sequence[GpuArray], /) -> GpuArray:
    """Concatenate a sequence of arrays along the first dimension; vectors of length n become rows (1, n)."""
    return concat([_at_least("vstack", x, 2) for x in arrays], axis=0)


def dstack(arrays: Sequence[GpuArray], /) -> GpuArray:
    """Concatenate a sequence of arrays along the third dimension.

    Matrices (m, n) become (m, n, 1), vectors (n,) become (1, n, 1).
    """
    matrices = [_at_least("dstack", x, 2) for x in arrays]
    return concat([x[..., None] if x.ndim < 3 else x for x in matrices], axis=2)


@takes_arrays
def array_split(x: GpuArray, sections: Any, /, axis: int = 0) -> list[GpuArray]:
    """Return views of parts of an array along a dimension.

    Parameters
    ----------
    x
        An array.
    sections
        The number of parts, whose lengths differ by one at most, the longer ones first; or the indices where the second
        and later parts begin.
    axis
        The dimension.

    Raises
    ------
    ValueError
        The number of parts is not positive.
    """
    axis = normalize_axis_index(axis, x.ndim)
    length = x.shape[axis]
    if hasattr(sections, "__index__"):
        count = sections.__index__()
        if count < 1:
            raise ValueError(f"array_split: the number of sections must be positive, not {count}")
        ends = np.cumsum([length // count + (k < length % count) for k in range(count)]).tolist()[:-1]
    else:
        ends = [int(k) for k in sections]
    before = (slice(None),) * axis
    borders = [0, *ends, length]
    return [x[(*before, slice(low, high))] for low, high in pairwise(borders)]


@takes_arrays
def split(x: GpuArray, sections: Any, /, axis: int = 0) -> list[GpuArray]:
    """Return views of parts of an array along a dimension, all of one length.

    Parameters are the same as for `array_split`.

    Raises
    ------
    ValueError
        The number of parts does not divide the length, or is not positive.
    """
    is_number = hasattr(sections, "__index__") and sections > 0  # array_split raises the error for others
    if is_number and x.shape[normalize_axis_index(axis, x.ndim)] % sections.__index__():
        raise ValueError(f"split: {sections} equal parts of shape {x.shape} along axis {axis} are not possible")
    return array_split(x, sections, axis=axis)


def _checked_dimensions(name: str, x: GpuArray, least: int) -> None:
    if x.ndim < least:
        raise ValueError(f"{name}: only arrays of {least} or more dimensions are split so, not of {x.ndim}")


@takes_arrays
def hsplit(x: GpuArray, sections: Any, /) -> list[GpuArray]:
    """Return views of parts along the second dimension, of a vector along its only one, as `split` does."""
    _checked_dimensions("hsplit", x, 1)
    return split(x, sections, axis=min(1, x.ndim - 1))


@takes_arrays
def vsplit(x: GpuArray, sections: Any, /) -> list[GpuArray]:
    """Return views of parts of a matrix, or of more dimensions, along the first one, as `split` does."""
    _checked_dimensions("vsplit", x, 2)
    return split(x, sections, axis=0)


@takes_arrays
def dsplit(x: GpuArray, sections: Any, /) -> list[GpuArray]:
    """Return views of parts along the third dimension, as `split` does."""
    _checked_dimensions("dsplit", x, 3)
    return split(x, sections, axis=2)


@takes_arrays
def roll(x: GpuArray, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> GpuArray:
    """Return a copy whose elements are moved along dimensions; those past the end come first.

    Parameters
    ----------
    x
        An array.
    shift
        By how many places elements move: one integer, or one for each dimension; a negative one moves them backwards.
    axis
        A dimension, or several; None moves the elements of the flattened array.

    Raises
    ------
    ValueError
        There are not as many shifts as dimensions.
    """
    if axis is None:
        if not hasattr(shift, "__index__"):
            raise TypeError(f"roll of the flattened array takes one integer, not {shift!r}")
        return reshape(roll(reshape(x, (x.size,)), shift, axis=0), x.shape)
    axes, shifts = _lengths(axis), _lengths(shift)
    shifts = shifts * len(axes) if hasattr(shift, "__index__") else shifts
    if len(axes) != len(shifts):
        raise ValueError(f"roll: there are {len(shifts)} shifts for {len(axes)} axes")
    places = [0] * x.ndim
    for a, s in zip(normalize_axis_tuple(axes, x.ndim, "axis", allow_duplicate=True), shifts, strict=True):
        places[a] += s
    result = x.context.empty(x.shape, x.dtype)
    if x.size:
        _roll(result, x, [s % n for s, n in zip(places, x.shape, strict=True)])
    return result


def _roll(target: GpuArray, source: GpuArray, shifts: list[int]) -> None:
    """Enqueue a copy for each block of elements that stays together."""
    moved = next((a for a, s in enumerate(shifts) if s), None)
    if moved is None:
        copy_into(target, source)
        return
    before, shift, length = (slice(None),) * moved, shifts[moved], source.shape[moved]
    rest = [0 if a == moved else s for a, s in enumerate(shifts)]
    _roll(target[(*before, slice(shift, length))], source[(*before, slice(0, length - shift))], rest)
    _roll(target[(*before, slice(0, shift))], source[(*before, slice(length - shift, length))], rest)


@takes_arrays
def tile(x: GpuArray, repetitions: int | Sequence[int], /) -> GpuArray:
    """Return an array that repeats `x` along dimensions.

    Parameters
    ----------
    x
        An array.
    repetitions
        The number of copies along each of the last dimensions. More numbers than dimensions add dimensions in front.

    Returns
    -------
    GpuArray
        A new array, as of `numpy.tile`.

    Raises
    ------
    ValueError
        A number of copies is negative.
    """
    counts = _lengths(repetitions)
    if any(n < 0 for n in counts):
        raise ValueError(f"tile: numbers of copies must not be negative, they are {counts}")
    ndim = max(x.ndim, len(counts))
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    wide = tuple(n for pair in zip((1,) * ndim, shape, strict=True) for n in pair)
    full = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    repeated = broadcast_to(reshape(x, wide), full)
    return reshape(copied(repeated), tuple(c * n for c, n in zip(counts, shape, strict=True)))


@takes_arrays
def ascontiguousarray(x: GpuArray, /) -> GpuArray:
    """Return the array itself if its elements follow one another in C order, else a copy in which they do."""
    return x if x.layout.is_contiguous else copied(x)


@takes_arrays
def asfortranarray(x: GpuArray, /) -> GpuArray:
    """Return the array itself if its elements follow one another in Fortran's order, else a copy in which they do."""
    return ascontiguousarray(x.T).T
