"""Counts, histograms, and reductions without NaN: functions of NumPy's that the array API standard does not have."""

from typing import Any

import numpy as np

from pytensor_cl.array import elementwise, reductions, sorting
from pytensor_cl.array.arguments import check_arrays, takes_arrays
from pytensor_cl.array.creation import asarray, zeros
from pytensor_cl.array.dispatch import assign_result, common_context
from pytensor_cl.array.dtypes import DTypeLike
from pytensor_cl.array.indexing import add_at
from pytensor_cl.array.launches import cast_to
from pytensor_cl.array.manipulation import concat, ravel
from pytensor_cl.array.reductions import Axis
from pytensor_cl.runtime.array import GpuArray


@takes_arrays
def cumsum(x: GpuArray, /, axis: int | None = None, dtype: DTypeLike = None, out: GpuArray | None = None) -> GpuArray:
    """Return the sums of each element and all before it along a dimension, as `cumulative_sum`.

    Parameters
    ----------
    x
        An array.
    axis
        The dimension; None flattens the array.
    dtype
        The dtype of the result; None is as in `sum`.
    out
        An array that the result is written into.
    """
    result = sorting.cumulative_sum(ravel(x) if axis is None else x, axis, dtype)
    return result if out is None else assign_result("cumsum", out, result)


@takes_arrays
def cumprod(x: GpuArray, /, axis: int | None = None, dtype: DTypeLike = None, out: GpuArray | None = None) -> GpuArray:
    """Return the products of each element and all before it along a dimension; the parameters are those of `cumsum`."""
    result = sorting.cumulative_prod(ravel(x) if axis is None else x, axis, dtype)
    return result if out is None else assign_result("cumprod", out, result)


@takes_arrays
def bincount(x: GpuArray, /, weights: GpuArray | None = None, minlength: int = 0) -> GpuArray:
    """Return how often each number from 0 to the greatest comes in a vector; waits for the greatest.

    Parameters
    ----------
    x
        A vector of integers that are not negative.
    weights
        An array of the same shape, with the number that each element counts; None is 1. They are added in a fixed
        order.
    minlength
        The least length of the result.

    Returns
    -------
    GpuArray
        int64; with weights float64, or float32 on a device without it.

    Raises
    ------
    ValueError
        An element is negative, `x` is no vector, or the shapes differ.
    TypeError
        The elements are no integers.
    """
    if x.dtype.kind not in "iub":
        raise TypeError(f"bincount counts integers, not {x.dtype}")
    if x.ndim != 1:
        raise ValueError(f"bincount takes a vector, not an array of shape {x.shape}")
    wide = x if x.dtype.kind != "b" else cast_to(x, np.dtype("uint8"))
    low, high = (int(reductions.min(wide)), int(reductions.max(wide))) if x.size else (0, -1)
    if low < 0:
        raise ValueError("bincount: the elements must not be negative")
    length = max(high + 1, minlength)
    if weights is None:
        result = zeros(length, "int64", device=x.context.name)
        add_at(result, wide, 1)
        return result
    check_arrays("bincount", (weights,))
    common_context("bincount", (x, weights))
    if weights.shape != x.shape:
        raise ValueError(f"bincount: the weights have shape {weights.shape}, the vector has shape {x.shape}")
    result = zeros(length, "float64" if x.context.info.has_fp64 else "float32", device=x.context.name)
    add_at(result, wide, weights)
    return result


@takes_arrays
def histogram(
    x: GpuArray, /, bins: Any = 10, range: tuple[float, float] | None = None, density: bool | None = None
) -> tuple[GpuArray, GpuArray]:
    """Return how many elements are between each two of a sequence of edges, and the edges.

    Waits for the least and the greatest element, unless `range`, or the edges, are given.

    Parameters
    ----------
    x
        An array of a real dtype, which is flattened and sorted.
    bins
        The number of equal parts, or their edges in ascending order: a sequence, or an array of the host. The last part
        has its right edge, the others do not.
    range
        The first and the last edge; None takes the least and the greatest element.
    density
        Whether counts are divided by their sum and by the widths of the parts.

    Returns
    -------
    tuple of GpuArray
        The counts (int64, or floatX with `density`), and the edges.

    Raises
    ------
    ValueError
        The range is not finite, or the edges do not ascend.
    """
    values = ravel(x if x.dtype.kind != "b" else cast_to(x, np.dtype("uint8")))
    ends = np.zeros(0, values.dtype)
    if range is None and np.ndim(bins) == 0 and values.size:
        ends = np.array([reductions.min(values).item(), reductions.max(values).item()], values.dtype)
    edges = np.histogram_bin_edges(ends, bins, range)
    below = asarray(edges, device=x.context.name)
    ordered = sorting.sort(values)
    before = sorting.searchsorted(ordered, below[:-1], "left")
    counts = sorting.diff(concat([before, sorting.searchsorted(ordered, below[-1:], "right")]))
    if density:
        counts = elementwise.divide(elementwise.divide(counts, reductions.sum(counts)), sorting.diff(below))
    return counts, below


@takes_arrays
def isin(x: GpuArray, values: Any, /, *, invert: bool = False) -> GpuArray:
    """Return whether each element of an array is one of some values.

    Parameters
    ----------
    x
        An array of a real dtype.
    values
        An array of the device, of any shape; a sequence, or an array of the host, is uploaded.
    invert
        Whether the result is true for the elements that are none of them.

    Returns
    -------
    GpuArray
        bool, in the shape of `x`. NaN is none of the values, as no two NaN are equal.
    """
    given = values if isinstance(values, GpuArray) else asarray(values, device=x.context.name)
    common_context("isin", (x, given))
    dtype = np.result_type(x.dtype, given.dtype)
    dtype = np.dtype("uint8") if dtype.kind == "b" else dtype
    ordered, searched = sorting.sort(cast_to(ravel(given), dtype)), cast_to(x, dtype)
    if not ordered.size:
        found = zeros(x.shape, "bool", device=x.context.name)
    else:
        places = elementwise.minimum(sorting.searchsorted(ordered, searched), ordered.size - 1)
        found = elementwise.equal(ordered[places], searched)
    return elementwise.logical_not(found) if invert else found


def _without_nan(x: GpuArray, value: float) -> GpuArray:
    """Return an array with a value in place of NaN."""
    return elementwise.where(elementwise.isnan(x), value, x) if x.dtype.kind in "fc" else x


def _numbers(x: GpuArray, axis: Axis, keepdims: bool) -> GpuArray:
    """Return how many elements along dimensions are not NaN."""
    is_number = elementwise.equal(x, x)
    return reductions.sum(is_number, axis, keepdims=keepdims)


@takes_arrays
def nansum(
    x: GpuArray, /, axis: Axis = None, dtype: DTypeLike = None, out: GpuArray | None = None, keepdims: bool = False
) -> GpuArray:
    """Return sums along dimensions, in which NaN counts as 0. The parameters are those of `sum`."""
    return reductions.sum(_without_nan(x, 0.0), axis, dtype, out, keepdims)


@takes_arrays
def nanmean(x: GpuArray, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return means of the elements along dimensions that are not NaN.

    Parameters are the same as for `mean`. The mean of none is NaN; there is no warning, as NumPy gives.
    """
    if x.dtype.kind not in "fc":
        return reductions.mean(x, axis, keepdims=keepdims)
    wide = np.dtype("float32") if x.dtype == np.dtype("float16") else x.dtype
    total = reductions.sum(_without_nan(x, 0.0), axis, wide, keepdims=keepdims)
    return cast_to(elementwise.divide(total, cast_to(_numbers(x, axis, keepdims), wide)), x.dtype)


@takes_arrays
def nanvar(x: GpuArray, /, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> GpuArray:
    """Return variances of the elements along dimensions that are not NaN.

    Parameters
    ----------
    x, axis, keepdims
        The same as in `var`.
    ddof
        The number that is subtracted from the number of elements.

    Returns
    -------
    GpuArray
        NaN where no more than `ddof` elements are left; there is no warning, as NumPy gives.
    """
    if x.dtype.kind == "c":  # the variance of the real parts, and that of the imaginary ones
        is_number = elementwise.equal(x, x)
        real, imag = (elementwise.where(is_number, part, float("nan")) for part in (x.real, x.imag))
        return elementwise.add(*(nanvar(part, axis, ddof=ddof, keepdims=keepdims) for part in (real, imag)))
    if x.dtype.kind != "f":
        return reductions.var(x, axis, correction=ddof, keepdims=keepdims)
    wide = cast_to(x, np.dtype("float32")) if x.dtype == np.dtype("float16") else x
    distance = elementwise.subtract(wide, nanmean(wide, axis, keepdims=True))
    # The distance of an infinity from the mean is NaN, and so is the variance: only NaN in `x` counts as nothing.
    squares = elementwise.where(elementwise.isnan(x), 0.0, elementwise.square(distance))
    total = reductions.sum(squares, axis, keepdims=keepdims)
    degrees = elementwise.subtract(cast_to(_numbers(x, axis, keepdims), wide.dtype), float(ddof))
    degrees = elementwise.where(degrees > 0, degrees, float("nan"))
    return cast_to(elementwise.divide(total, degrees), x.dtype)


@takes_arrays
def nanstd(x: GpuArray, /, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False) -> GpuArray:
    """Return standard deviations of the elements along dimensions that are not NaN: the square roots of `nanvar`."""
    return elementwise.sqrt(nanvar(x, axis, ddof=ddof, keepdims=keepdims))


def _extreme_number(name: str, x: GpuArray, axis: Axis, keepdims: bool) -> GpuArray:
    reduce, neutral = (reductions.max, -np.inf) if name == "nanmax" else (reductions.min, np.inf)
    if x.dtype.kind not in "fc":
        return reduce(x, axis, keepdims=keepdims)
    found = reduce(_without_nan(x, neutral), axis, keepdims=keepdims)
    return elementwise.where(_numbers(x, axis, keepdims) > 0, found, float("nan"))


@takes_arrays
def nanmax(x: GpuArray, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return the greatest elements along dimensions that are not NaN.

    Parameters and errors are the same as for `max`. Where all are NaN, so is the result; there is no warning, as NumPy
    gives.
    """
    return _extreme_number("nanmax", x, axis, keepdims)


@takes_arrays
def nanmin(x: GpuArray, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return the least elements along dimensions that are not NaN; the rest is as for `nanmax`."""
    return _extreme_number("nanmin", x, axis, keepdims)
