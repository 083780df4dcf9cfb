"""Sorting, searching and sets."""

from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.creation import arange, full, zeros
from pytensor_cl.array.dispatch import common_context, number_of
from pytensor_cl.array.indexing import take_index
from pytensor_cl.array.launches import cast_to, copied
from pytensor_cl.array.manipulation import broadcast_to, concat, expand_dims, ravel, reshape
from pytensor_cl.array.reductions import axes_of, reduced_shape, rows_last, total_dtype
from pytensor_cl.array.rows import as_rows, cached, merged
from pytensor_cl.routines.argmax import Argmax, Argmin
from pytensor_cl.routines.cumop import CumOp, CumOpWithInitial
from pytensor_cl.routines.repeat import Repeat
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.routines.sort.searchsorted import SearchSorted
from pytensor_cl.routines.sort.unique import Unique
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout


def _check_order(name: str, x: GpuArray) -> None:
    if x.dtype.kind == "c":
        raise TypeError(f"{name} of {x.dtype}: complex numbers have no order here")


def _sorted(kind: Any, name: str, x: GpuArray, axis: int | None, descending: bool) -> GpuArray:
    _check_order(name, x)
    if not x.ndim:
        raise ValueError(f"{name} needs an array of one dimension or more")
    if axis is None:
        raise TypeError(f"{name}: axis must be an integer, not None: ravel(x) flattens the array")
    rows, back = as_rows(x, axis)
    routine = cached(
        (x.context, kind, x.dtype, descending), lambda: kind(x.context, str(x.dtype), 2, 1, is_descending=descending)
    )
    return back(routine(rows)[0])


@takes_arrays
def sort(x: GpuArray, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> GpuArray:
    """Return the elements in ascending, or in descending, order along a dimension.

    Parameters
    ----------
    x
        An array of a real dtype.
    axis
        The dimension. It cannot be None: sort ``ravel(x)`` to flatten the array.
    descending
        Whether the greatest element comes first. NaN is greater than any number.
    stable
        Ignored: equal elements cannot be told apart, but for zeros, of which -0.0 comes first.

    Returns
    -------
    GpuArray
        A new array with the shape and the dtype of `x`.

    Raises
    ------
    TypeError
        The dtype is complex.
    ValueError
        The array is 0-d.
    """
    return _sorted(Sort, "sort", x, axis, descending)


@takes_arrays
def argsort(x: GpuArray, /, axis: int = -1, *, descending: bool = False, stable: bool = True) -> GpuArray:
    """Return the indices that sort an array along a dimension; equal elements keep their order.

    Parameters
    ----------
    x
        An array of a real dtype.
    axis
        The dimension.
    descending
        Whether the greatest element comes first. NaN is greater than any number.
    stable
        Ignored: the order is always stable.

    Returns
    -------
    GpuArray
        int64, in the shape of `x`.

    Raises
    ------
    TypeError
        The dtype is complex.
    ValueError
        The array is 0-d.
    """
    return _sorted(ArgSort, "argsort", x, axis, descending)


def _extreme(kind: Any, name: str, x: GpuArray, axis: int | None, keepdims: bool) -> GpuArray:
    _check_order(name, x)
    axes = axes_of(x, axis)
    if 0 in [x.shape[a] for a in axes]:
        raise ValueError(f"{name} of an array of shape {x.shape}, which has no elements along the dimensions")
    shape = reduced_shape(x, axes, keepdims)
    if not axes:
        return zeros(shape, dtype="int64", device=x.context.name)
    view, kept = rows_last(x, axes)
    key = x.context, kind, x.dtype, view.ndim, kept
    routine = cached(key, lambda: kind(x.context, str(x.dtype), view.ndim, tuple(range(kept, view.ndim))))
    return routine(view)[0].with_layout(Layout.contiguous(shape))


@takes_arrays
def argmax(x: GpuArray, /, axis: int | None = None, *, keepdims: bool = False) -> GpuArray:
    """Return the indices of the greatest elements along a dimension.

    Parameters
    ----------
    x
        An array of a real dtype.
    axis
        The dimension; None searches the flattened array.
    keepdims
        Whether the dimension stays, with length 1.

    Returns
    -------
    GpuArray
        int64, in the shape of `x` without `axis`. Of equal elements it is the first, and NaN counts as the greatest.

    Raises
    ------
    ValueError
        The dimension has no elements.
    TypeError
        The dtype is complex.
    """
    return _extreme(Argmax, "argmax", x, axis, keepdims)


@takes_arrays
def argmin(x: GpuArray, /, axis: int | None = None, *, keepdims: bool = False) -> GpuArray:
    """Return the indices of the least elements along a dimension.

    Parameters, result and errors are the same as for `argmax`; NaN counts as the least.
    """
    return _extreme(Argmin, "argmin", x, axis, keepdims)


@takes_arrays
def searchsorted(x1: GpuArray, x2: Any, /, side: str = "left", sorter: GpuArray | None = None) -> GpuArray:
    """Return the indices where values belong in a sorted vector.

    Parameters
    ----------
    x1
        A vector (n,) in ascending order, of a real dtype.
    x2
        The values: an array of any shape, or a number.
    side
        ``"left"`` for the place before equal elements, ``"right"`` for the place after them.
    sorter
        Integers (n,) that sort `x1`, where it is not sorted.

    Returns
    -------
    GpuArray
        int64 from 0 to n, in the shape of `x2`.

    Raises
    ------
    ValueError
        `x1` is no vector, or `side` is neither of the two.
    TypeError
        `x1` is complex.
    IndexError
        An element of `sorter` is out of bounds; it is found by the next wait.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side must be 'left' or 'right', not {side!r}")
    if x1.ndim != 1:
        raise ValueError(f"searchsorted searches a vector, not an array of shape {x1.shape}")
    _check_order("searchsorted", x1)
    if not isinstance(x2, GpuArray):
        number = number_of(x2)
        try:
            host = np.asarray(number, np.result_type(x1.dtype, number))
        except OverflowError:  # all elements are on one side of it
            host = np.asarray(number)
        x2 = x1.context.from_host(host)
    common_context("searchsorted", [x1, x2] if sorter is None else [x1, x2, sorter])
    half = np.dtype("float16")
    if (x1.dtype == half) != (x2.dtype == half):
        x1, x2 = (cast_to(v, np.dtype("float32")) if v.dtype == half else v for v in (x1, x2))
    kinds = (str(x1.dtype), str(x2.dtype)), side, None if sorter is None else str(sorter.dtype)
    routine = cached(
        (x1.context, SearchSorted, kinds),
        lambda: SearchSorted(x1.context, kinds[0], 1, side, kinds[2]),
    )
    given = (x1, ravel(x2)) if sorter is None else (x1, ravel(x2), sorter)
    if routine.is_checked:
        description = f"searchsorted of shapes {x1.shape} and {x2.shape}"
        (found,) = x1.context.deferred_errors.enqueue(routine, description, lambda: routine(*given))
    else:
        (found,) = routine(*given)
    return reshape(found, x2.shape)


@takes_arrays
def unique(
    x: GpuArray,
    equal_nan: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> GpuArray | tuple[GpuArray, ...]:
    """Return the distinct elements in ascending order, as `numpy.unique` does without `axis`; waits for the device.

    Parameters
    ----------
    x
        An array of a real dtype, which is flattened.
    equal_nan
        Whether all NaN count as one element.
    return_index, return_inverse, return_counts
        Whether the result is a tuple, in which arrays of int64 follow: where each distinct element comes first in the
        flattened array; which distinct element each element of `x` is, in the shape of `x`; how often each comes.

    Returns
    -------
    GpuArray, or tuple of GpuArray
        A vector with the dtype of `x`, and what else is wanted.

    Examples
    --------
    >>> values, counts = xp.unique(x, return_counts=True)  # doctest: +SKIP
    """
    found = _unique(x, equal_nan, return_index, return_inverse, return_counts)
    return found if len(found) > 1 else found[0]


def _unique(
    x: GpuArray,
    equal_nan: bool,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[GpuArray, ...]:
    """Return the results of `unique` as a tuple."""
    wanted: dict[str, Any] = {
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
    }
    key = x.context, Unique, x.dtype, equal_nan, *wanted.items()
    found = cached(key, lambda: Unique(x.context, str(x.dtype), 1, equal_nan=equal_nan, **wanted))(ravel(x))
    if return_inverse:
        place = 1 + return_index
        found = (*found[:place], reshape(found[place], x.shape), *found[place + 1 :])
    return found


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: GpuArray
    indices: GpuArray
    inverse_indices: GpuArray
    counts: GpuArray


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: GpuArray
    counts: GpuArray


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: GpuArray
    inverse_indices: GpuArray


@takes_arrays
def unique_all(x: GpuArray, /) -> UniqueAll:
    """Return the distinct elements in ascending order, and three arrays of int64; waits for the device.

    Parameters
    ----------
    x
        An array of a real dtype. Every NaN is an element of its own.

    Returns
    -------
    UniqueAll
        `values` (k,); `indices` (k,), where each comes first in the flattened array; `inverse_indices`, in the shape of
        `x`, so that ``values[inverse_indices]`` is `x`; `counts` (k,), how often each comes.
    """
    return UniqueAll(*_unique(x, False, return_index=True, return_inverse=True, return_counts=True))


@takes_arrays
def unique_counts(x: GpuArray, /) -> UniqueCounts:
    """Return the distinct elements (k,) in ascending order, and how often each comes, int64 (k,); waits for the device.

    Every NaN is an element of its own.
    """
    return UniqueCounts(*_unique(x, False, return_counts=True))


@takes_arrays
def unique_inverse(x: GpuArray, /) -> UniqueInverse:
    """Return the distinct elements (k,) in ascending order, and which of them each element of `x` is; waits for the
    device.

    The second array is of int64, in the shape of `x`. Every NaN is an element of its own.
    """
    return UniqueInverse(*_unique(x, False, return_inverse=True))


@takes_arrays
def unique_values(x: GpuArray, /) -> GpuArray:
    """Return the distinct elements (k,) in ascending order; waits for the device.

    Every NaN is an element of its own.
    """
    return _unique(x, False)[0]


@takes_arrays
def take_along_axis(x: GpuArray, indices: GpuArray, /, axis: int = -1) -> GpuArray:
    """Return elements along a dimension, by an array of indices.

    Parameters
    ----------
    x
        An array.
    indices
        Integers, with as many dimensions as `x`. All dimensions but `axis` broadcast against `x`. Negative ones count
        from the end.
    axis
        The dimension.

    Returns
    -------
    GpuArray
        The dtype of `x`, and the common shape, with the length of `indices` along `axis`.

    Raises
    ------
    ValueError
        The numbers of dimensions differ.
    IndexError
        An index is out of bounds; it is found by the next wait.

    Examples
    --------
    >>> xp.take_along_axis(x, xp.argsort(x), axis=-1)  # the same as xp.sort(x)  # doctest: +SKIP
    """
    common_context("take_along_axis", [x, indices])
    if x.ndim != indices.ndim:
        raise ValueError(f"take_along_axis: the array has {x.ndim} dimensions, the indices have {indices.ndim}")
    place = np.lib.array_utils.normalize_axis_index(axis, x.ndim)

    index: list[Any] = []
    for a in range(x.ndim):
        if a == place:
            index.append(indices)
            continue
        length = x.shape[a] if x.shape[a] != 1 else indices.shape[a]
        steps = arange(length, device=x.context.name) if x.shape[a] != 1 else None
        shape = tuple(length if b == a else 1 for b in range(x.ndim))
        index.append(np.zeros((*shape[:a], 1, *shape[a + 1 :]), np.int64) if steps is None else reshape(steps, shape))
    return take_index(x, tuple(index))


def _cumulative(
    name: str, operation: str, x: GpuArray, axis: int | None, dtype: Any, include_initial: bool
) -> GpuArray:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"{name} of {x.ndim} dimensions needs an axis")
        axis = 0
    x = reshape(x, (1,)) if not x.ndim else x
    target = total_dtype(x.dtype, dtype)
    wide = np.dtype("float32") if target == np.dtype("float16") else target
    rows, back = as_rows(x if x.dtype == wide else cast_to(x, wide), axis)
    kind = CumOpWithInitial if include_initial else CumOp
    routine = cached((x.context, kind, operation, wide), lambda: kind(x.context, operation, str(wide), 2, 1))
    result = routine(rows)[0]
    if wide != target:
        result = cast_to(result, target)
    return back(result)


@takes_arrays
def cumulative_sum(
    x: GpuArray, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
) -> GpuArray:
    """Return the sums of each element and all before it along a dimension.

    Parameters
    ----------
    x
        An array.
    axis
        The dimension. None is that of a vector; `cumsum` flattens other arrays.
    dtype
        The dtype of the result; None is as in `sum`.
    include_initial
        Whether the result begins with 0, and is longer by one.

    Returns
    -------
    GpuArray
        The shape of `x`; a number gives a vector of one element. float16 is added up in float32.

    Raises
    ------
    ValueError
        `axis` is None, and the array has several dimensions.
    """
    return _cumulative("cumulative_sum", "add", x, axis, dtype, include_initial)


@takes_arrays
def cumulative_prod(
    x: GpuArray, /, axis: int | None = None, dtype: Any = None, *, include_initial: bool = False
) -> GpuArray:
    """Return the products of each element and all before it along a dimension.

    Parameters, result and errors are the same as for `cumulative_sum`; `include_initial` puts 1 first.
    """
    return _cumulative("cumulative_prod", "mul", x, axis, dtype, include_initial)


@takes_arrays
def diff(x: GpuArray, /, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> GpuArray:
    """Return differences of neighbours along a dimension.

    Parameters
    ----------
    x
        An array.
    n
        The number of times that differences are taken.
    axis
        The dimension.
    prepend, append
        Arrays that are put before, and after, along the dimension; a number is put once.

    Returns
    -------
    GpuArray
        The shape of `x` with what was put, less `n` along `axis`. Differences of bools are whether they differ.

    Raises
    ------
    ValueError
        `n` is negative, or the shapes do not fit.
    """
    if n < 0:
        raise ValueError(f"diff: n must not be negative, it is {n}")
    place = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    line = (*x.shape[:place], 1, *x.shape[place + 1 :])
    parts = [
        part if isinstance(part, GpuArray) and part.ndim else full(line, part, device=x.context.name)
        for part in (prepend, x, append)
        if part is not None
    ]
    x = concat(parts, axis=place) if len(parts) > 1 else x
    before = (slice(None),) * place
    for _ in range(n):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = later ^ earlier if x.dtype.kind == "b" else later - earlier
    return copied(x) if not n else x


@takes_arrays
def repeat(x: GpuArray, repeats: Any, /, axis: int | None = None) -> GpuArray:
    """Repeat each element along a dimension.

    Parameters
    ----------
    x
        An array.
    repeats
        The numbers of repetitions: an integer, or a vector as long as the dimension, of the device or the host. One of
        the device is waited for.
    axis
        The dimension; None repeats the elements of the flattened array.

    Returns
    -------
    GpuArray
        A new array, whose length along `axis` is the sum of all numbers of repetitions.

    Raises
    ------
    ValueError
        A number is negative, or there are not as many as elements.
    """
    if axis is None:
        x, axis = ravel(x), 0
    place = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    if not isinstance(repeats, GpuArray):
        host = np.asarray(repeats, np.int64)
        if host.size == 1:
            return _repeat_all(x, int(host.reshape(-1)[0]), place)
        repeats = x.context.from_host(host)
    common_context("repeat", [x, repeats])
    if repeats.ndim == 0:
        repeats = reshape(repeats, (1,))
    before, after = range(place), range(place + 1, x.ndim)
    view = merged(x, (before, (place,), after))
    key = x.context, Repeat, x.dtype, repeats.dtype
    routine = cached(key, lambda: Repeat(x.context, str(x.dtype), 3, 1, str(repeats.dtype)))
    (result,) = routine(view, repeats)
    return reshape(result, (*x.shape[:place], result.shape[1], *x.shape[place + 1 :]))


def _repeat_all(x: GpuArray, count: int, axis: int) -> GpuArray:
    if count < 0:
        raise ValueError("repeats may not contain negative values.")
    wide = broadcast_to(expand_dims(x, axis=axis + 1), (*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    return reshape(copied(wide), (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))
