"""Arrays of given values."""

from operator import index
from typing import Any

import numpy as np

from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.device import context_of
from pytensor_cl.array.dispatch import common_context, number_of
from pytensor_cl.array.dtypes import DTypeLike, default_complex, default_float, of_python
from pytensor_cl.array.launches import cast_to, copied, copy_into, fill, thread_cache
from pytensor_cl.routines.creation import ARange, Linspace, Triangle
from pytensor_cl.routines.indexing.diagonal import diagonal
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.interchange import from_pyopencl, on_device
from pytensor_cl.runtime.pyopencl_array import is_pyopencl_array


def _shape(shape: Any) -> tuple[int, ...]:
    """Return a shape, given as an integer or a sequence of them.

    Raises `TypeError` or `ValueError`: it is something else, or a length is negative.
    """
    lengths = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    lengths = tuple(map(index, lengths))
    if any(n < 0 for n in lengths):
        raise ValueError(f"negative dimensions are not allowed: {lengths}")
    return lengths


def _dtype(dtype: DTypeLike, context: Context) -> np.dtype:
    return context.check_dtype(default_float(context) if dtype is None else dtype)


def empty(shape: Any, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return an array of arbitrary values.

    Parameters
    ----------
    shape
        An integer, or a sequence of integers.
    dtype
        None is floatX, or float32 on a device without float64.
    device
        A `Device` or the name of a context; None is the default.
    """
    context = context_of(device)
    return context.empty(_shape(shape), _dtype(dtype, context))


def _scalar(value: Any, dtype: np.dtype) -> np.generic:
    return dtype.type(np.asarray(value, dtype))


def full(shape: Any, fill_value: Any, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return an array of which all elements have one value.

    Parameters
    ----------
    shape
        An integer, or a sequence of integers.
    fill_value
        A number, or a 0-d array.
    dtype
        None is that of the value: int64 of Python's ``int``, floatX of ``float``.
    device
        A `Device` or the name of a context; None is the default.

    Raises
    ------
    OverflowError
        The value is a Python ``int`` out of the bounds of the dtype.
    """
    context = context_of(device)
    if isinstance(fill_value, GpuArray):
        result = context.empty(_shape(shape), _dtype(dtype or fill_value.dtype, context))
        if fill_value.context is not context:
            fill_value = context.from_host(fill_value.to_host())
        copy_into(result, fill_value)
        return result
    value = number_of(fill_value)
    if dtype is None:
        dtype = value.dtype if isinstance(value, np.generic) else of_python(type(value), context)
    result = context.empty(_shape(shape), context.check_dtype(dtype))
    fill(result, _scalar(value, result.dtype))
    return result


def zeros(shape: Any, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return an array of zeros; the parameters are those of `empty`."""
    return full(shape, 0, dtype=_dtype(dtype, context_of(device)), device=device)


def ones(shape: Any, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return an array of ones; the parameters are those of `empty`."""
    return full(shape, 1, dtype=_dtype(dtype, context_of(device)), device=device)


def _device_like(x: GpuArray, device: Any) -> Any:
    return x.context.name if device is None else device


@takes_arrays
def empty_like(x: GpuArray, /, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return an array of arbitrary values; shape, and where they are None dtype and device, are those of `x`."""
    return empty(x.shape, dtype=dtype or x.dtype, device=_device_like(x, device))


@takes_arrays
def zeros_like(x: GpuArray, /, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return zeros; shape, and where they are None dtype and device, are those of `x`."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=_device_like(x, device))


@takes_arrays
def ones_like(x: GpuArray, /, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return ones; shape, and where they are None dtype and device, are those of `x`."""
    return ones(x.shape, dtype=dtype or x.dtype, device=_device_like(x, device))


@takes_arrays
def full_like(x: GpuArray, /, fill_value: Any, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return an array of one value; shape, and where they are None dtype and device, are those of `x`."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=_device_like(x, device))


def arange(start: Any, /, stop: Any = None, step: Any = 1, dtype: DTypeLike = None, *, device: Any = None) -> GpuArray:
    """Return evenly spaced numbers from `start`, or from 0, to before `stop`, as `numpy.arange` does.

    Parameters
    ----------
    start, stop, step
        Numbers; with one number alone it is `stop`.
    dtype
        None is int64 if all numbers are integers, else floatX.
    device
        A `Device` or the name of a context; None is the default.

    Raises
    ------
    RangeLengthError
        The step is zero, or the range has no length.
    TypeError
        The dtype is bool.
    """
    context = context_of(device)
    first, last = (0, start) if stop is None else (start, stop)
    numbers = [number_of(v) for v in (first, last, step)]
    if dtype is None:
        kinds = {np.asarray(v).dtype.kind for v in numbers}
        dtype = np.dtype("int64") if kinds <= set("biu") else default_float(context)
    dtype = context.check_dtype(dtype)
    if dtype.kind == "b":
        raise TypeError("arange makes numbers, not bools")
    part = np.empty(0, dtype).real.dtype  # complex numbers of a range are real
    cache, key = thread_cache(), (context, "arange", part)
    if key not in cache:
        cache[key] = ARange(context, str(part))
    (values,) = cache[key](*numbers)
    return values if part == dtype else cast_to(values, dtype)


def eye(
    n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: DTypeLike = None, *, device: Any = None
) -> GpuArray:
    """Return a matrix with ones on a diagonal, and zeros elsewhere.

    Parameters
    ----------
    n_rows, n_cols
        The shape; without `n_cols` the matrix is square.
    k
        The number of places by which the diagonal is above the main one; negative numbers are below.
    dtype, device
        They are as for `empty`.
    """
    context = context_of(device)
    result = zeros((n_rows, n_rows if n_cols is None else n_cols), dtype=dtype, device=device)
    if result.size:
        fill(result.with_layout(diagonal(result.layout, k)), _dtype(dtype, context).type(1))
    return result


def asarray(
    obj: Any, /, dtype: DTypeLike = None, *, device: Any = None, copy: bool | None = None, order: str | None = None
) -> GpuArray:
    """Return a device array of values.

    Parameters
    ----------
    obj
        A device array, an array of pyopencl, a NumPy array, an object that NumPy makes an array of, or nested sequences
        of numbers and of device arrays, which are stacked.
    dtype
        None is that of the values; int64 of Python's ``int``, floatX of ``float``.
    device
        A `Device` or the name of a context. None is the array's own, or the default.
    copy
        True copies always; None copies where it is necessary; False raises instead.
    order
        Ignored: arrays are made in C order.

    Raises
    ------
    ValueError
        `copy` is False, and a copy is necessary: memory of the host is always copied.
    UnsupportedDtype
        The device cannot hold the dtype.
    """
    found = from_pyopencl(obj, copy=None if copy else copy) if is_pyopencl_array(obj) else on_device(obj)
    if found is not None:
        return _of_device_array(found, dtype, device, copy)
    if copy is False:
        raise ValueError("asarray: values of the host cannot be used without a copy: take copy=None")
    context = context_of(device)
    stacked = _stacked(obj, dtype, context)
    if stacked is not None:
        return stacked
    if hasattr(obj, "dtype") or dtype is None:
        host = np.asarray(obj)
    else:  # which checks the range of Python's integers
        host = np.asarray(obj, np.dtype(dtype).newbyteorder("="))
    if dtype is None and not hasattr(obj, "dtype"):
        dtype = _dtype_of_numbers(host, context)
    native = (host.dtype if dtype is None else np.dtype(dtype)).newbyteorder("=")
    return context.from_host(host.astype(native, copy=False))


def _dtype_of_numbers(host: np.ndarray, context: Context) -> np.dtype:
    """Return the dtype of values that were numbers of Python."""
    if not host.size:
        return default_float(context)
    python = {"f": float, "c": complex}.get(host.dtype.kind)
    return (
        host.dtype if python is None or host.dtype.itemsize < np.dtype(python).itemsize else of_python(python, context)
    )


def _of_device_array(x: GpuArray, dtype: DTypeLike, device: Any, copy: bool | None) -> GpuArray:
    context = x.context if device is None else context_of(device)
    needs_cast = dtype is not None and np.dtype(dtype) != x.dtype
    if copy is False and (needs_cast or context is not x.context):
        what = f"another dtype, {np.dtype(dtype)}" if needs_cast else f"another device, {context.name!r}"
        raise ValueError(f"asarray: {what} needs a copy: take copy=None")
    if context is not x.context:
        x, copy = context.from_host(x.to_host()), False
    if needs_cast:
        return cast_to(x, np.dtype(dtype))
    return copied(x) if copy else x


def _leaves(obj: Any) -> list[Any]:
    return [leaf for item in obj for leaf in _leaves(item)] if isinstance(obj, list | tuple) else [obj]


def _stacked(obj: Any, dtype: DTypeLike, context: Context) -> GpuArray | None:
    """Return the array of nested sequences in which there are device arrays; None if there are none."""
    if not isinstance(obj, list | tuple):
        return None
    arrays = [leaf for leaf in _leaves(obj) if isinstance(leaf, GpuArray)]
    if not arrays:
        return None
    common_context("asarray", arrays)
    shapes = _shape_of(obj)
    kinds = [leaf.dtype if isinstance(leaf, GpuArray) else leaf for leaf in _leaves(obj)]
    target = np.dtype(dtype) if dtype is not None else np.result_type(*kinds)
    result = arrays[0].context.empty(shapes, context.check_dtype(target))
    _place(result, obj)
    return result


def _shape_of(obj: Any) -> tuple[int, ...]:
    if not isinstance(obj, list | tuple):
        return tuple(np.shape(obj)) if not isinstance(obj, GpuArray) else obj.shape
    inner = {_shape_of(item) for item in obj} or {()}
    if len(inner) > 1:
        raise ValueError(f"asarray: the parts of a sequence have different shapes: {sorted(inner)}")
    return (len(obj), *inner.pop())


def _place(target: GpuArray, obj: Any) -> None:
    if isinstance(obj, list | tuple):
        for number, item in enumerate(obj):
            _place(target[number], item)
    else:
        source = obj if isinstance(obj, GpuArray) else target.context.from_host(np.asarray(obj, target.dtype))
        copy_into(target, source)


@takes_arrays
def astype(x: GpuArray, dtype: DTypeLike, /, *, copy: bool = True, device: Any = None) -> GpuArray:
    """Return the array with another dtype, as NumPy casts.

    Parameters
    ----------
    x
        An array.
    dtype
        The dtype of the result.
    copy
        Whether to copy an array that has the dtype; else it is returned.
    device
        The device of the result; None is that of `x`.
    """
    if device is not None:
        x = x.to_device(device)
    if np.dtype(dtype) == x.dtype:
        return copied(x) if copy else x
    if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
        raise TypeError(f"astype: a cast from {x.dtype} to {np.dtype(dtype)} loses the imaginary part: take real(x)")
    return cast_to(x, np.dtype(dtype))


def linspace(
    start: Any, stop: Any, /, num: int = 50, *, dtype: DTypeLike = None, device: Any = None, endpoint: bool = True
) -> GpuArray:
    """Return evenly spaced numbers, as `numpy.linspace` does.

    Parameters
    ----------
    start, stop
        Numbers: the first value, and the last, or the one after the last without `endpoint`.
    num
        The number of points.
    dtype
        None is floatX, or complex if a number is.
    device
        A `Device` or the name of a context; None is the default.
    endpoint
        Whether `stop` is the last value.

    Raises
    ------
    ValueError
        `num` is negative.
    """
    context = context_of(device)
    if num < 0:
        raise ValueError(f"linspace: the number of values must not be negative, it is {num}")
    first, last = number_of(start), number_of(stop)
    if dtype is None:
        is_of_complex = any(np.asarray(v).dtype.kind == "c" for v in (first, last))
        dtype = default_complex(context) if is_of_complex else default_float(context)
    dtype = context.check_dtype(dtype)
    cache, key = thread_cache(), (context, "linspace", dtype, endpoint)
    if key not in cache:
        cache[key] = Linspace(context, str(dtype), endpoint=endpoint)
    result: GpuArray = cache[key](first, last, num)[0]
    return result


def _triangle(name: str, x: GpuArray, k: int) -> GpuArray:
    if x.ndim < 2:
        raise ValueError(f"{name} takes matrices, not an array of shape {x.shape}")
    cache, key = thread_cache(), (x.context, name, x.dtype, x.ndim)
    if key not in cache:
        cache[key] = Triangle(x.context, str(x.dtype), x.ndim, is_lower=name == "tril")
    result: GpuArray = cache[key](x, k)[0]
    return result


@takes_arrays
def tril(x: GpuArray, /, k: int = 0) -> GpuArray:
    """Return the lower triangles of matrices, with zeros above the diagonal `k` places above the main one."""
    return _triangle("tril", x, k)


@takes_arrays
def triu(x: GpuArray, /, k: int = 0) -> GpuArray:
    """Return the upper triangles of matrices, with zeros below the diagonal `k` places above the main one."""
    return _triangle("triu", x, k)
