"""Discrete Fourier transforms, after the Python array API standard.

Parameters are NumPy's: `n` or `s` are the lengths to which an array is cut, or padded with zeros; `norm` is
``"backward"`` (the inverse is divided by the length), ``"ortho"`` (both by its square root) or ``"forward"``. float32
and complex64 are computed in single precision; float16 in single precision too, integers in floatX. Any length works;
products of small primes are fast.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pytensor_cl.array import elementwise
from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.creation import asarray
from pytensor_cl.array.device import context_of
from pytensor_cl.array.dtypes import DTypeLike, default_float
from pytensor_cl.array.launches import cast_to
from pytensor_cl.array.manipulation import roll
from pytensor_cl.array.rows import as_rows, cached
from pytensor_cl.routines.fft.routine import FFT, IRFFT, RFFT
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def _scale(norm: str | None, length: int, inverse: bool) -> float:
    """Return the factor of a transform of a length; None is ``"backward"``, as in NumPy.

    Raises `ValueError`: there is no such norm.
    """
    norm = norm or "backward"
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f"norm must be 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == "ortho":
        return float(length) ** -0.5
    return 1.0 / length if (norm == "backward") == inverse else 1.0


def _scaled(x: GpuArray, factor: float) -> GpuArray:
    return x if factor == 1.0 else elementwise.multiply(x, factor, out=x)


def _length(n: int | None, own: int) -> int:
    length = own if n is None else n
    if length < 1:
        raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    return length


def _floating(x: GpuArray) -> GpuArray:
    """Return the array in a dtype that is transformed."""
    if x.dtype.kind in "fc" and x.dtype != np.dtype("float16"):
        return x
    return cast_to(x, np.dtype("float32") if x.dtype.kind == "f" else default_float(x.context))


def _complex(x: GpuArray, n: int | None, axis: int, norm: str | None, inverse: bool) -> GpuArray:
    x = _floating(x)
    rows, back = as_rows(x, axis)
    length = _length(n, x.shape[axis])
    part = {"float32": "float32", "complex64": "float32"}.get(str(x.dtype), "float64")
    routine = cached((x.context, FFT, x.dtype, inverse), lambda: FFT(x.context, part, 2, str(x.dtype), inverse=inverse))
    factor = _scale(norm, length, inverse)
    result, is_scaled = routine.scaled(rows, length, 1, factor)
    return back(result if is_scaled else _scaled(result, factor))


@takes_arrays
def fft(x: GpuArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> GpuArray:
    """Return the transforms along a dimension.

    Parameters
    ----------
    x
        An array; integers and bools become floatX.
    n
        The length that is transformed: longer rows are cut, shorter ones get zeros. None is the length of `axis`.
    axis
        The dimension.
    norm
        The place of the factor ``1 / n``: ``"backward"`` is in the inverse, ``"forward"`` in this one, ``"ortho"`` its
        root in both.

    Returns
    -------
    GpuArray
        Complex numbers in the shape of `x`, with length `n` along `axis`. They are complex64 where `x` is float16,
        float32 or complex64, else complex128.

    Raises
    ------
    ValueError
        `n` is less than one, or there is no such `norm`.
    IndexError
        There is no such dimension.

    Examples
    --------
    >>> xp.fft.fft(xp.asarray([1.0, 0.0, 0.0, 0.0])).tolist()
    [(1+0j), (1+0j), (1+0j), (1+0j)]
    """
    return _complex(x, n, axis, norm, inverse=False)


@takes_arrays
def ifft(x: GpuArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> GpuArray:
    """Return the inverse of `fft`; the parameters are the same."""
    return _complex(x, n, axis, norm, inverse=True)


def _pairs(x: GpuArray) -> GpuArray:
    """Return a complex array as one of its parts, with a last dimension of length 2."""
    shape, strides, offset = x.layout
    layout = Layout((*shape, 2), (*(2 * s for s in strides), 1), 2 * offset)
    return GpuArray(x.context, x.buffer, np.dtype(f"float{4 * x.dtype.itemsize}"), layout, x.readonly, x.owner)


@takes_arrays
def rfft(x: GpuArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> GpuArray:
    """Return the transforms of real numbers along a dimension.

    Parameters are the same as for `fft`.

    Returns
    -------
    GpuArray
        The first ``n // 2 + 1`` complex numbers along `axis`: the others are their conjugates.

    Raises
    ------
    TypeError
        The array is complex.
    """
    if x.dtype.kind == "c":
        raise TypeError(f"rfft takes real numbers, not {x.dtype}: take fft")
    x = _floating(x)
    rows, back = as_rows(x, axis)
    length = _length(n, x.shape[axis])
    routine = cached((x.context, RFFT, x.dtype), lambda: RFFT(x.context, str(x.dtype), 2))
    (pairs,) = routine(rows, [length])
    layout = Layout.contiguous(pairs.shape[:-1])
    result = GpuArray(x.context, pairs.buffer, np.dtype(f"complex{16 * x.dtype.itemsize}"), layout)
    return back(_scaled(result, _scale(norm, length, inverse=False)))


@takes_arrays
def irfft(x: GpuArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> GpuArray:
    """Return the inverse of `rfft`.

    Parameters
    ----------
    x
        An array of m numbers along `axis`, complex or real.
    n
        The number of real numbers along `axis` in the result; None is ``2 * (m - 1)``.
    axis, norm
        The same as for `fft`.
    """
    wide = _as_complex(x)
    rows, back = as_rows(wide, axis)
    length = _length(n, 2 * (x.shape[axis] - 1))
    part = f"float{4 * wide.dtype.itemsize}"
    routine = cached((x.context, IRFFT, part), lambda: IRFFT(x.context, part, 3))
    factor = _scale(norm, length, inverse=True)
    result, is_scaled = routine.scaled(_pairs(rows), [length], factor)
    return back(result if is_scaled else _scaled(result, factor))


def _as_complex(x: GpuArray) -> GpuArray:
    x = _floating(x)
    return x if x.dtype.kind == "c" else cast_to(x, np.dtype(f"complex{16 * x.dtype.itemsize}"))


def _axes_and_lengths(
    x: GpuArray, s: Sequence[int] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], list[int | None]]:
    """Return the dimensions of a transform of several, and its lengths.

    Raises `ValueError`: there are not as many lengths as dimensions.
    """
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    places = normalize_axis_tuple(axes, x.ndim, "axes", allow_duplicate=True)
    lengths: list[int | None] = [None] * len(places) if s is None else [None if n == -1 else n for n in s]
    if len(lengths) != len(places):
        raise ValueError(f"shape and axes have different length: {len(lengths)} and {len(places)}")
    return places, lengths


@takes_arrays
def fftn(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> GpuArray:
    """Return the transforms over several dimensions.

    Parameters
    ----------
    x
        An array; integers and bools become floatX.
    s
        The lengths that are transformed, one for each of `axes`; None are those of `x`.
    axes
        The dimensions; None are the last ones, as many as `s` has, or all.
    norm
        The place of the factor, as for `fft`.

    Returns
    -------
    GpuArray
        Complex numbers, with the lengths `s` along `axes`.
    """
    for axis, n in reversed(list(zip(*_axes_and_lengths(x, s, axes), strict=True))):
        x = fft(x, n=n, axis=axis, norm=norm)
    return x if x.dtype.kind == "c" else _as_complex(x)


@takes_arrays
def ifftn(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> GpuArray:
    """Return the inverse of `fftn`; the parameters are the same."""
    for axis, n in reversed(list(zip(*_axes_and_lengths(x, s, axes), strict=True))):
        x = ifft(x, n=n, axis=axis, norm=norm)
    return x if x.dtype.kind == "c" else _as_complex(x)


@takes_arrays
def rfftn(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> GpuArray:
    """Return the transforms of real numbers over several dimensions.

    Parameters are the same as for `fftn`. The last of `axes` is transformed by `rfft`, and has ``n // 2 + 1`` numbers.
    """
    places, lengths = _axes_and_lengths(x, s, axes)
    result = rfft(x, n=lengths[-1], axis=places[-1], norm=norm)
    for axis, n in zip(places[-2::-1], lengths[-2::-1], strict=True):
        result = fft(result, n=n, axis=axis, norm=norm)
    return result


@takes_arrays
def irfftn(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = "backward"
) -> GpuArray:
    """Return the inverse of `rfftn`; the parameters are the same. The last of `s` is the length of the real result."""
    places, lengths = _axes_and_lengths(x, s, axes)
    for axis, n in zip(places[:-1], lengths[:-1], strict=True):
        x = ifft(x, n=n, axis=axis, norm=norm)
    return irfft(x, n=lengths[-1], axis=places[-1], norm=norm)


@takes_arrays
def fft2(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> GpuArray:
    """Return the transforms over two dimensions, complex; parameters as of `fftn`."""
    return fftn(x, s, axes, norm)


@takes_arrays
def ifft2(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> GpuArray:
    """Return the inverse transforms over two dimensions, complex; parameters as of `ifftn`."""
    return ifftn(x, s, axes, norm)


@takes_arrays
def rfft2(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> GpuArray:
    """Return the transforms of real numbers over two dimensions; parameters as of `rfftn`."""
    return rfftn(x, s, axes, norm)


@takes_arrays
def irfft2(
    x: GpuArray, /, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = "backward"
) -> GpuArray:
    """Return the inverse of `rfft2`; parameters as of `irfftn`."""
    return irfftn(x, s, axes, norm)


_OPPOSITE = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


@takes_arrays
def hfft(x: GpuArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> GpuArray:
    """Return the real transforms of numbers with Hermitian symmetry, of which one half is given.

    The result has `n` real numbers along `axis`; None is ``2 * (m - 1)`` for m given ones. Other parameters are as for
    `fft`.
    """
    _scale(norm, 1, inverse=False)
    return irfft(elementwise.conj(_as_complex(x)), n=n, axis=axis, norm=_OPPOSITE[norm])


@takes_arrays
def ihfft(x: GpuArray, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> GpuArray:
    """Return the inverse of `hfft`: the first ``n // 2 + 1`` of the numbers, which have Hermitian symmetry.

    Parameters are the same as for `rfft`.
    """
    _scale(norm, 1, inverse=False)
    result = rfft(x, n=n, axis=axis, norm=_OPPOSITE[norm])
    return elementwise.conj(result)


def _frequencies(numbers: np.ndarray, n: int, d: float, dtype: DTypeLike, device: Any) -> GpuArray:
    context = context_of(device)
    target = default_float(context) if dtype is None else np.dtype(dtype)
    return asarray((numbers / (n * d)).astype(target), device=device)


def fftfreq(n: int, /, d: float = 1.0, dtype: DTypeLike = None, device: Any = None) -> GpuArray:
    """Return the frequencies of the elements of a transform of length `n`, in cycles per unit of `d`.

    Parameters
    ----------
    n
        The length.
    d
        The distance of two samples.
    dtype
        The dtype; None is floatX.
    device
        The name of a context; None is the default one.

    Returns
    -------
    GpuArray
        A vector (n,): 0 and the positive frequencies, then the negative ones.
    """
    half = (n - 1) // 2 + 1
    return _frequencies(np.concatenate([np.arange(half), np.arange(-(n // 2), 0)]), n, d, dtype, device)


def rfftfreq(n: int, /, d: float = 1.0, dtype: DTypeLike = None, device: Any = None) -> GpuArray:
    """Return the frequencies of the elements of `rfft`, (n // 2 + 1,); the parameters are those of `fftfreq`."""
    return _frequencies(np.arange(n // 2 + 1), n, d, dtype, device)


def _shifted(x: GpuArray, axes: Any, sign: int) -> GpuArray:
    places = range(x.ndim) if axes is None else normalize_axis_tuple(axes, x.ndim, "axes")
    shifts = [x.shape[a] // 2 if sign > 0 else -(x.shape[a] // 2) for a in places]
    return roll(x, tuple(shifts), axis=tuple(places))


@takes_arrays
def fftshift(x: GpuArray, /, axes: int | Sequence[int] | None = None) -> GpuArray:
    """Return a copy with frequency zero in the middle of `axes`: one dimension, several, or all (None)."""
    return _shifted(x, axes, 1)


@takes_arrays
def ifftshift(x: GpuArray, /, axes: int | Sequence[int] | None = None) -> GpuArray:
    """Return a copy with frequency zero first: the inverse of `fftshift`, with the same parameters."""
    return _shifted(x, axes, -1)
