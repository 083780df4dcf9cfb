"""Sums, extrema and other reductions along dimensions."""

from builtins import max as builtin_max
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from pytensor import scalar as ps

from pytensor_cl.array import elementwise
from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.dispatch import assign_result
from pytensor_cl.array.dtypes import DTypeLike, default_float
from pytensor_cl.array.launches import cast_to, copied, thread_cache
from pytensor_cl.routines.elemwise.routine import Cast
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.routines.rowwise.program import Map, Operand, Reduce, RowFunction
from pytensor_cl.routines.rowwise.routine import Rowwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout, collapse
from pytensor_cl.scalar.base import element_function

Axis = int | Sequence[int] | None


def axes_of(x: GpuArray, axis: Axis) -> tuple[int, ...]:
    """Return the dimensions that an argument ``axis`` means, in order.

    Raises `AxisError`: there is no such dimension.
    """
    return tuple(range(x.ndim)) if axis is None else tuple(sorted(normalize_axis_tuple(axis, x.ndim, "axis")))


def reduced_shape(x: GpuArray, axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """Return the shape of a reduction."""
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return tuple(n for a, n in enumerate(x.shape) if a not in axes)


@lru_cache(1024)
def _rows_last(layout: Layout, axes: tuple[int, ...]) -> tuple[Layout, int]:
    """Return the layout of `rows_last`."""
    others = [a for a in range(layout.ndim) if a not in axes]
    sizes, steps = [], []
    for part in (others, axes):
        merged, (strides,) = collapse([layout.shape[a] for a in part], ([layout.strides[a] for a in part],))
        sizes.append(merged)
        steps.append(strides)
    shape, strides = (*sizes[0], *(sizes[1] or (1,))), (*steps[0], *(steps[1] or (0,)))
    return Layout(shape, strides, layout.offset), len(sizes[0])


def rows_last(x: GpuArray, axes: tuple[int, ...]) -> tuple[GpuArray, int]:
    """Return a view with the dimensions `axes` last, and adjacent dimensions merged, and the number of merged others.

    Few kernels serve all shapes: they depend on numbers of dimensions.
    """
    layout, kept = _rows_last(x.layout, axes)
    return x.with_layout(layout), kept


def reduce(
    operation: str, x: GpuArray, axis: Axis, keepdims: bool, dtype: np.dtype, accumulator: np.dtype | None = None
) -> GpuArray:
    """Reduce dimensions of an array by an operation of `routines.reduction`.

    Raises `ValueError`: there are no elements, and the operation has no value for none.
    """
    axes = axes_of(x, axis)
    shape = reduced_shape(x, axes, keepdims)
    if not axes:
        return cast_to(x, dtype) if dtype != x.dtype else copied(x)
    view, kept = rows_last(x, axes)
    (result,) = routine_of(operation, x.context, x.dtype, dtype, accumulator, view.ndim, kept)(view)
    return result.with_layout(Layout.contiguous(shape))


def routine_of(
    operation: str,
    context: Context,
    source: np.dtype,
    dtype: np.dtype,
    accumulator: np.dtype | None = None,
    ndim: int = 1,
    kept: int = 0,
) -> Reduction:
    """Return the thread's routine of a reduction of all but the first `kept` dimensions."""
    cache = thread_cache()
    wide = accumulator or _accumulator(dtype)
    key = context, operation, source, wide, dtype, ndim, kept
    routine: Reduction | None = cache.get(key)
    if routine is None:
        context.check_dtype(dtype)
        reduced = tuple(range(kept, ndim))
        routine = cache[key] = Reduction(context, operation, str(source), str(wide), str(dtype), ndim, reduced)
    return routine


def _accumulator(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which sums and products are accumulated: the widest of its kind."""
    widest = {"f": "float64", "c": "complex128", "i": "int64", "u": "uint64"}.get(dtype.kind, str(dtype))
    return np.dtype(widest)


def total_dtype(source: np.dtype, dtype: DTypeLike = None) -> np.dtype:
    """Return the dtype of sums and products: int64 or uint64 of integers, int64 of bools.

    Raises `TypeError`: complex numbers would lose their imaginary parts.
    """
    if dtype is not None:
        target = np.dtype(dtype)
        if source.kind == "c" and target.kind not in "cb":
            raise TypeError(f"a total of dtype {target} loses the imaginary parts of {source} numbers: take real(x)")
        return target
    return {"b": np.dtype("int64"), "i": np.dtype("int64"), "u": np.dtype("uint64")}.get(source.kind, source)


def _addends(x: GpuArray, target: np.dtype) -> GpuArray:
    """Return an array whose dtype has a kernel of sums and products of a dtype."""
    if x.dtype.kind == target.kind:
        return x
    # Elements are bools before they are combined; the kernel does not convert bytes so, and complex numbers not at all.
    if target.kind in "bc" or x.dtype.kind == "c":
        return cast_to(x, target)
    return cast_to(x, np.dtype("uint8")) if x.dtype.kind == "b" else x


def _finished(name: str, result: GpuArray, out: GpuArray | None) -> GpuArray:
    return result if out is None else assign_result(name, out, result)


@takes_arrays
def sum(
    x: GpuArray, /, axis: Axis = None, dtype: DTypeLike = None, out: GpuArray | None = None, keepdims: bool = False
) -> GpuArray:
    """Return sums along dimensions.

    Parameters
    ----------
    x
        An array.
    axis
        A dimension, a sequence of them, or None for all. A sum over no dimension is a copy.
    dtype
        The dtype of the result. None is that of `x`; int64 or uint64 of integers, int64 of bools. float32 is summed
        in float64, or with the rounding errors where the device has no float64.
    keepdims
        Whether the reduced dimensions stay, with length 1.
    out
        An array that the result is written into.

    Returns
    -------
    GpuArray
        0-d where all dimensions are reduced. Equal calls give equal bits.
    """
    target = total_dtype(x.dtype, dtype)
    return _finished("sum", reduce("add", _addends(x, target), axis, keepdims, target), out)


@takes_arrays
def prod(
    x: GpuArray, /, axis: Axis = None, dtype: DTypeLike = None, out: GpuArray | None = None, keepdims: bool = False
) -> GpuArray:
    """Return products along dimensions; the parameters are those of `sum`."""
    target = total_dtype(x.dtype, dtype)
    return _finished("prod", reduce("mul", _addends(x, target), axis, keepdims, target), out)


def _extremum(name: str, x: GpuArray, axis: Axis, keepdims: bool) -> GpuArray:
    if x.dtype.kind == "c":
        raise TypeError(f"{name} of {x.dtype}: complex numbers have no order here")
    if 0 in [x.shape[a] for a in axes_of(x, axis)]:
        raise ValueError(f"{name} of an array of shape {x.shape}, which has no elements along the dimensions")
    return reduce({"max": "maximum", "min": "minimum"}[name], x, axis, keepdims, x.dtype, x.dtype)


@takes_arrays
def max(x: GpuArray, /, axis: Axis = None, out: GpuArray | None = None, keepdims: bool = False) -> GpuArray:
    """Return the greatest elements along dimensions; NaN where one of them is. The parameters are those of `sum`.

    Raises
    ------
    ValueError
        There are no elements along the dimensions.
    TypeError
        The dtype is complex.
    """
    return _finished("max", _extremum("max", x, axis, keepdims), out)


@takes_arrays
def min(x: GpuArray, /, axis: Axis = None, out: GpuArray | None = None, keepdims: bool = False) -> GpuArray:
    """Return the least elements along dimensions; NaN where one is. The parameters are those of `sum`.

    Raises `ValueError`: there are no elements.
    """
    return _finished("min", _extremum("min", x, axis, keepdims), out)


def _truth(operation: str, x: GpuArray, axis: Axis, keepdims: bool) -> GpuArray:
    truth = np.dtype("bool")
    return reduce(operation, x if x.dtype == truth else cast_to(x, truth), axis, keepdims, truth, truth)


@takes_arrays
def all(x: GpuArray, /, axis: Axis = None, out: GpuArray | None = None, keepdims: bool = False) -> GpuArray:
    """Return whether all elements along dimensions are true, that is, not zero, as bools; true where there are none.

    The parameters are those of `sum`.
    """
    return _finished("all", _truth("and", x, axis, keepdims), out)


@takes_arrays
def any(x: GpuArray, /, axis: Axis = None, out: GpuArray | None = None, keepdims: bool = False) -> GpuArray:
    """Return whether an element along dimensions is true, that is, not zero, as bools; false where there are none.

    The parameters are those of `sum`.
    """
    return _finished("any", _truth("or", x, axis, keepdims), out)


@takes_arrays
def count_nonzero(x: GpuArray, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return how many elements along dimensions are not zero, as int64."""
    return sum(x if x.dtype.kind == "b" else cast_to(x, np.dtype("bool")), axis=axis, keepdims=keepdims)


def _count(x: GpuArray, axes: Sequence[int]) -> int:
    return int(np.prod([x.shape[a] for a in axes], dtype=object)) if axes else 1


@takes_arrays
def mean(
    x: GpuArray, /, axis: Axis = None, dtype: DTypeLike = None, out: GpuArray | None = None, keepdims: bool = False
) -> GpuArray:
    """Return means along dimensions; NaN where there are no elements. The parameters are those of `sum`.

    Returns
    -------
    GpuArray
        `dtype`; where it is None the dtype of `x`, and floatX of integers and bools.
    """
    target = np.dtype(dtype) if dtype is not None else x.dtype if x.dtype.kind in "fc" else default_float(x.context)
    total = sum(x, axis=axis, dtype=_of_sums(target), keepdims=keepdims)
    count = _count(x, axes_of(x, axis))
    result = elementwise.divide(total, total.dtype.type(count), out=total)
    return _finished("mean", result if target == total.dtype else cast_to(result, target), out)


def _of_sums(dtype: np.dtype) -> np.dtype:
    """Return the dtype of sums that are divided later: those of float16 overflow, and their count does."""
    return np.dtype("float32") if dtype == np.dtype("float16") else dtype


@takes_arrays
def var(
    x: GpuArray,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    out: GpuArray | None = None,
    ddof: float | None = None,
) -> GpuArray:
    """Return variances along dimensions.

    Parameters
    ----------
    x, axis, keepdims, out
        The same as in `sum`. Variances of integers are floatX, those of complex numbers real.
    correction
        The number that is subtracted from the number of elements; 1 gives the unbiased estimate.
    ddof
        NumPy's older name of `correction`.

    Raises
    ------
    ValueError
        Both `correction` and `ddof` are given.
    """
    return _finished("var", _moment(x, axis, _correction(correction, ddof), keepdims, is_root=False), out)


def _correction(correction: float, ddof: float | None) -> float:
    if ddof is None:
        return correction
    if correction:
        raise ValueError("ddof and correction are two names of one argument")
    return ddof


def _moment(x: GpuArray, axis: Axis, correction: float, keepdims: bool, is_root: bool) -> GpuArray:
    """Return variances, or their square roots."""
    dtype = x.dtype if x.dtype.kind in "fc" else default_float(x.context)
    axes = axes_of(x, axis)
    count = float(_count(x, axes))
    degrees = builtin_max(count - correction, 0.0)
    if dtype.kind == "c":  # the variance of the real parts, and that of the imaginary ones
        parts = [_moment(part, axis, correction, keepdims, is_root=False) for part in (x.real, x.imag)]
        variance = elementwise.add(*parts, out=parts[0])
        return elementwise.sqrt(variance, out=variance) if is_root else variance
    view, kept = rows_last(x, axes)
    key = x.context, "moment", x.dtype, dtype, is_root, view.ndim, kept
    cache = thread_cache()
    if key not in cache:
        reduced = range(kept, view.ndim)
        function = _moment_function(x.context.check_dtype(x.dtype), dtype, is_root)
        flags = (False, False, False, True)
        cache[key] = Rowwise(x.context, function, view.ndim, reduced, flags, ((False,) * view.ndim,))
    number = _of_sums(dtype).type
    return cache[key](view, number(count), number(degrees))[0].with_layout(
        Layout.contiguous(reduced_shape(x, axes, keepdims))
    )


def _moment_function(source: np.dtype, dtype: np.dtype, is_root: bool) -> RowFunction:
    """Return the function of rows that takes a row, its length and the divisor, and computes the moment of `_moment`.

    The second sum is that of squares of distances from the mean: of squares of the numbers themselves, digits cancel.
    """
    wide = str(_of_sums(dtype))
    x, y = ps.get_scalar_type(wide)(), ps.get_scalar_type(wide)()
    distance = element_function(ps.Composite([x, y], [ps.sqr(x - y)]), (wide, wide), (wide,))
    quotient = element_function(ps.true_div, (wide, wide), (wide,))
    steps: list[Map | Reduce] = []

    def add(step: Map | Reduce) -> int:
        steps.append(step)
        return 2 + len(steps)

    row = 0 if str(source) == wide else add(Map(Cast(str(source), wide), (0,)))
    mean = add(Map(quotient, (add(Reduce("add", row, "float64", wide, True)), 1)))
    total = add(Reduce("add", add(Map(distance, (row, mean), is_positive=True)), "float64", wide, True))
    result = add(Map(quotient, (total, 2)))
    if is_root:
        result = add(Map(element_function(ps.sqrt, (wide,), (wide,)), (result,)))
    if str(dtype) != wide:
        result = add(Map(Cast(wide, str(dtype)), (result,)))
    return RowFunction(
        (Operand("full", str(source)), Operand("value", wide), Operand("value", wide)), tuple(steps), (result,)
    )


@takes_arrays
def std(
    x: GpuArray,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    out: GpuArray | None = None,
    ddof: float | None = None,
) -> GpuArray:
    """Return standard deviations along dimensions: the square roots of `var`, which has the same parameters."""
    return _finished("std", _moment(x, axis, _correction(correction, ddof), keepdims, is_root=True), out)
