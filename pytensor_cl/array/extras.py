"""Functions of NumPy's that the array API standard does not have."""

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from pytensor_cl.array import elementwise, products, reductions, sorting
from pytensor_cl.array.arguments import check_arrays, takes_arrays
from pytensor_cl.array.creation import asarray, full
from pytensor_cl.array.dispatch import assign_result, common_context, number_of
from pytensor_cl.array.dtypes import default_float
from pytensor_cl.array.launches import cast_to, copied, copy_into
from pytensor_cl.array.manipulation import broadcast_to, concat, diagonal, flip, permute_dims, reshape
from pytensor_cl.array.reductions import Axis
from pytensor_cl.runtime.array import GpuArray, share_memory


def asnumpy(x: Any, /) -> np.ndarray:
    """Return a copy on the host; waits for the device."""
    return np.asarray(x)


@takes_arrays
def copy(x: GpuArray, /) -> GpuArray:
    """Return a C-contiguous copy on the same device."""
    return copied(x)


def copyto(target: Any, source: Any, /) -> None:
    """Copy values from an array of the device or the host into another one, with broadcasting and a cast.

    Parameters
    ----------
    target
        An array of the device or the host, which is changed. One of the host waits for the device.
    source
        An array of the device or the host, or a number, that broadcasts to `target`.

    Raises
    ------
    TypeError
        The cast is not allowed by NumPy's rule ``"same_kind"``.
    ValueError
        The shapes do not fit.
    """
    if isinstance(target, GpuArray):
        dtype = source.dtype if isinstance(source, GpuArray) else np.result_type(target.dtype, source)
        if not np.can_cast(dtype, target.dtype, "same_kind"):
            raise TypeError(
                f"copyto: cannot cast {dtype} to {target.dtype} with casting rule 'same_kind': target[...] = source can"
            )
        target[...] = source
    else:
        np.copyto(target, np.asarray(source), casting="same_kind")


def may_share_memory(x1: Any, x2: Any, /) -> bool:
    """Return whether the ranges of two arrays in memory may overlap."""
    if isinstance(x1, GpuArray) and isinstance(x2, GpuArray):
        return share_memory(x1, x2)
    if isinstance(x1, GpuArray) or isinstance(x2, GpuArray):
        device, host = (x1, x2) if isinstance(x1, GpuArray) else (x2, x1)
        seen = device.context.mappings.view(device)
        return seen is not None and np.may_share_memory(seen, host)
    return np.may_share_memory(x1, x2)


def isclose(x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> GpuArray:
    """Return whether ``abs(x1 - x2) <= atol + rtol * abs(x2)``; infinities of one sign are close.

    Parameters
    ----------
    x1, x2
        Device arrays that broadcast; one of them may be a number.
    rtol, atol
        The relative and the absolute tolerance.
    equal_nan
        Whether NaN is close to NaN.

    Returns
    -------
    GpuArray
        bool, in the common shape.
    """
    x1, x2 = _pair(x1, x2)
    same = elementwise.equal(x1, x2)
    if x1.dtype.kind not in "fc" and x2.dtype.kind not in "fc":
        wide = default_float(x1.context)
        x1, x2 = cast_to(x1, wide), cast_to(x2, wide)
    distance = elementwise.abs(elementwise.subtract(x1, x2))
    limit = elementwise.add(elementwise.multiply(elementwise.abs(x2), rtol), atol)
    near = elementwise.logical_and(elementwise.less_equal(distance, limit), elementwise.isfinite(x2))
    result = elementwise.logical_or(near, same)
    if equal_nan:
        both = elementwise.logical_and(elementwise.isnan(x1), elementwise.isnan(x2))
        result = elementwise.logical_or(result, both)
    return result


def _pair(x1: Any, x2: Any) -> tuple[GpuArray, GpuArray]:
    context = common_context("isclose", _arrays_of("isclose", x1, x2)).name
    first, second = (x if isinstance(x, GpuArray) else asarray(number_of(x), device=context) for x in (x1, x2))
    return first, second


def allclose(x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether all elements are close (`isclose`); waits for the device.

    Parameters are the same as for `isclose`; one of the arrays may be of the host, and is uploaded.
    """
    x1, x2 = _uploaded("allclose", x1, x2)
    return bool(reductions.all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)))


def _arrays_of(name: str, x1: Any, x2: Any) -> list[GpuArray]:
    """Return the device arrays among two operands.

    Raises `TypeError`: there is none.
    """
    found = [x for x in (x1, x2) if isinstance(x, GpuArray)]
    if not found:
        check_arrays(name, (x1, x2))
    return found


def _uploaded(name: str, x1: Any, x2: Any) -> tuple[GpuArray, GpuArray]:
    """Return two arrays on the device, of which one may be the host's: the result of a comparison goes there too."""
    context = _arrays_of(name, x1, x2)[0].context
    first, second = (x if isinstance(x, GpuArray) else asarray(x, device=context.name) for x in (x1, x2))
    return first, second


def array_equal(x1: Any, x2: Any, /, *, equal_nan: bool = False) -> bool:
    """Return whether two arrays have the same shape and equal elements; waits for the device.

    One of them may be an array of the host, which is uploaded.
    """
    x1, x2 = _uploaded("array_equal", x1, x2)
    if x1.shape != x2.shape:
        return False
    same = elementwise.equal(x1, x2)
    if equal_nan and x1.dtype.kind in "fc" and x2.dtype.kind in "fc":
        both = elementwise.logical_and(elementwise.isnan(x1), elementwise.isnan(x2))
        same = elementwise.logical_or(same, both)
    return bool(reductions.all(same))


@takes_arrays
def angle(x: GpuArray, /) -> GpuArray:
    """Return the angles of complex numbers in radians, from -pi to pi; 0 or pi of real ones, floatX of integers."""
    if x.dtype.kind != "c":
        x = x if x.dtype.kind == "f" else cast_to(x, default_float(x.context))
        return elementwise.atan2(full(x.shape, 0, dtype=x.dtype, device=x.context.name), x)
    return elementwise.atan2(x.imag, x.real)


@takes_arrays
def average(x: GpuArray, /, axis: Axis = None, weights: GpuArray | None = None) -> GpuArray:
    """Return means along dimensions, each element with a weight.

    Parameters
    ----------
    x
        An array.
    axis
        A dimension, a sequence of them, or None for all.
    weights
        An array that broadcasts to `x`, or a vector as long as `axis`; None is the mean.

    Returns
    -------
    GpuArray
        The shape without `axis`; floatX of integers. It is NaN where the weights add up to 0.
    """
    if weights is None:
        return reductions.mean(x, axis=axis)
    check_arrays("average", (weights,))
    if x.dtype.kind not in "fc" and weights.dtype.kind not in "fc":
        x = cast_to(x, default_float(x.context))  # products of integers would wrap
    if weights.ndim == 1 and x.ndim > 1 and isinstance(axis, int):
        shape = [1] * x.ndim
        shape[axis] = weights.size
        weights = reshape(weights, shape)
    total = reductions.sum(elementwise.multiply(x, weights), axis=axis)
    return elementwise.divide(total, reductions.sum(broadcast_to(weights, x.shape), axis=axis))


@takes_arrays
def ptp(x: GpuArray, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return the greatest less the least elements along dimensions; parameters and errors are the same as for `max`."""
    return reductions.max(x, axis=axis, keepdims=keepdims) - reductions.min(x, axis=axis, keepdims=keepdims)


@takes_arrays
def quantile(x: GpuArray, q: Any, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return quantiles along dimensions, by linear interpolation, as `numpy.quantile` does; NaN where an element is.

    Infinities stay infinite, as in `numpy.median`, where `numpy.quantile` gives NaN.

    Parameters
    ----------
    x
        An array of a real dtype.
    q
        A number of the host from 0 to 1, or a vector of them, whose dimension comes first in the result.
    axis
        A dimension or several; None takes the flattened array.
    keepdims
        Whether the dimensions stay, with length 1.

    Raises
    ------
    ValueError
        A number is not from 0 to 1, or there are no elements.
    TypeError
        The dtype is complex.
    """
    if x.dtype.kind == "c":
        raise TypeError(f"quantile of {x.dtype}: complex numbers have no order here")
    host = np.asarray(q, np.float64)
    if host.size and not (host.min() >= 0 and host.max() <= 1):
        raise ValueError("quantile: q must be in the range from 0 to 1")
    axes = reductions.axes_of(x, axis)
    rest = [a for a in range(x.ndim) if a not in axes]
    source = reshape(permute_dims(x, (*axes, *rest)), (-1 if x.size else 0, *(x.shape[a] for a in rest)))
    n = source.shape[0]
    if not n:
        raise ValueError(f"quantile of an array of shape {x.shape}, which has no elements along the dimension")
    wide = source if source.dtype.kind == "f" else cast_to(source, default_float(x.context))
    rows = sorting.sort(wide, axis=0)
    at = host.reshape(-1) * (n - 1)
    low = np.floor(at).astype(np.int64)
    first, second = rows[low], rows[np.ceil(at).astype(np.int64)]
    part = asarray((at - low).astype(wide.dtype), device=x.context.name)
    part = reshape(part, (len(low),) + (1,) * (rows.ndim - 1))
    result = elementwise.where(elementwise.isinf(first), first + second, first + (second - first) * part)
    is_nan = elementwise.isnan(rows[n - 1])  # NaN is sorted last
    result = elementwise.where(is_nan, float("nan"), result)
    if keepdims:
        return reshape(result, (*host.shape, *reductions.reduced_shape(x, axes, keepdims=True)))
    return reshape(result, (*host.shape, *rows.shape[1:]))


@takes_arrays
def percentile(x: GpuArray, q: Any, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return percentiles along dimensions: `quantile` of `q` / 100, which has the other parameters, and the errors."""
    return quantile(x, np.asarray(q, np.float64) / 100, axis=axis, keepdims=keepdims)


@takes_arrays
def median(x: GpuArray, /, axis: Axis = None, *, keepdims: bool = False) -> GpuArray:
    """Return medians along dimensions: `quantile` of 0.5.

    Parameters
    ----------
    x, axis, keepdims
        The same as in `quantile`.

    Returns
    -------
    GpuArray
        The dtype of `x`, floatX of integers; NaN where an element is.
    """
    return quantile(x, 0.5, axis=axis, keepdims=keepdims)


@takes_arrays
def nan_to_num(
    x: GpuArray, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> GpuArray:
    """Return a copy with numbers in place of NaN and infinities.

    Parameters
    ----------
    x
        An array; integers and bools are copied.
    nan
        The number in place of NaN.
    posinf, neginf
        The numbers in place of the infinities; None is the greatest, and the least, finite number of the dtype.
    """
    if x.dtype.kind == "c":
        result = copied(x)
        for part in (result.real, result.imag):
            part[...] = nan_to_num(part, nan=nan, posinf=posinf, neginf=neginf)
        return result
    if x.dtype.kind != "f":
        return copied(x)
    limits = np.finfo(x.dtype)
    most, least = (limits.max if posinf is None else posinf), (limits.min if neginf is None else neginf)
    result = elementwise.where(elementwise.isnan(x), x.dtype.type(nan), x)
    result = elementwise.where(elementwise.equal(result, float("inf")), x.dtype.type(most), result)
    return elementwise.where(elementwise.equal(result, -float("inf")), x.dtype.type(least), result)


@takes_arrays
def inner(x1: GpuArray, x2: GpuArray, /) -> GpuArray:
    """Return the sums of products over the last dimension of two arrays, as `numpy.inner` does.

    Parameters
    ----------
    x1, x2
        Arrays (..., k) and (..., k). A 0-d array is multiplied with the other one.

    Returns
    -------
    GpuArray
        The leading dimensions of `x1`, then those of `x2`.

    Raises
    ------
    ValueError
        The last dimensions differ.
    """
    if not x1.ndim or not x2.ndim:
        return elementwise.multiply(x1, x2)
    return products.tensordot(x1, x2, axes=((x1.ndim - 1,), (x2.ndim - 1,)))


@takes_arrays
def kron(x1: GpuArray, x2: GpuArray, /) -> GpuArray:
    """Return the Kronecker product of two arrays: blocks of `x2`, each times an element of `x1`.

    Its lengths are the products of theirs; the array of fewer dimensions gets leading ones of length 1.
    """
    ndim = max(x1.ndim, x2.ndim)
    first, second = (reshape(x, (1,) * (ndim - x.ndim) + x.shape) for x in (x1, x2))
    left = reshape(first, tuple(n for length in first.shape for n in (length, 1)))
    right = reshape(second, tuple(n for length in second.shape for n in (1, length)))
    shape = tuple(a * b for a, b in zip(first.shape, second.shape, strict=True))
    return reshape(elementwise.multiply(left, right), shape)


def einsum(subscripts: str, /, *operands: GpuArray, out: GpuArray | None = None, optimize: Any = True) -> GpuArray:
    """Return sums of products after Einstein's convention, as `numpy.einsum` does.

    Parameters
    ----------
    subscripts
        Letters of the dimensions of each operand, and of the result: ``"ij,jk->ik"``. ``...`` stands for dimensions
        that broadcast.
    operands
        Device arrays. Pairs of them are contracted as matrices, in the order that `numpy.einsum_path` finds.
    out
        An array that the result is written into.
    optimize
        Ignored: an order is always searched.

    Raises
    ------
    ValueError
        The subscripts do not fit the shapes.
    """
    if not isinstance(subscripts, str) or not operands:
        raise TypeError("einsum takes subscripts, such as 'ij,jk->ik', and device arrays")
    check_arrays("einsum", operands)
    common_context("einsum", operands)
    terms, result = _subscripts(subscripts, operands)
    arrays = [_with_diagonals(x, term) for x, term in zip(operands, terms, strict=True)]
    dummies = [np.broadcast_to(np.zeros((), np.int8), x.shape) for x, _ in arrays]
    text = f"{','.join(term for _, term in arrays)}->{result}"
    path = np.einsum_path(text, *dummies, optimize="greedy")[0][1:] if len(arrays) > 1 else []
    for pair in path:
        chosen = [arrays[k] for k in pair]
        arrays = [a for k, a in enumerate(arrays) if k not in pair]
        kept = {letter for _, term in arrays for letter in term} | set(result)
        combined = chosen[0]
        for other in chosen[1:]:
            combined = _contract(combined, other, kept)
        arrays.append(combined)
    (x, term), *_ = arrays
    x, term = _sum_out(x, term, set(result))
    found = permute_dims(x, [term.index(letter) for letter in result]) if result else reshape(x, ())
    return found if out is None else assign_result("einsum", out, found)


def _subscripts(text: str, operands: Sequence[GpuArray]) -> tuple[list[str], str]:
    """Return a letter for each dimension of each operand, and those of the result."""
    given, arrow, result = text.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum: {text!r} has {len(terms)} terms for {len(operands)} operands")
    others = set("".join([*terms, result]).replace("...", "")) - set(ascii_letters)
    if others:
        raise ValueError(f"einsum: subscripts are letters of ASCII and '...', {text!r} has {sorted(others)}")
    unused = [c for c in ascii_letters if c not in text]
    most = max((x.ndim - len(t) + 3 for t, x in zip(terms, operands, strict=True) if "..." in t), default=0)
    dots = "".join(unused[:most])
    full_terms = []
    for term, x in zip(terms, operands, strict=True):
        count = x.ndim - len(term) + 3 if "..." in term else 0
        full_term = term.replace("...", dots[most - count :])
        if len(full_term) != x.ndim or count < 0:
            raise ValueError(f"einsum: term {term!r} of {text!r} does not fit an operand of shape {x.shape}")
        full_terms.append(full_term)
    if not arrow:
        letters = "".join(terms).replace(".", "")
        result = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    result = result.replace("...", dots)
    if set(result) - set("".join(full_terms)) or len(set(result)) != len(result):
        raise ValueError(f"einsum: the result of {text!r} has a letter twice, or one that no operand has")
    return full_terms, result


def _with_diagonals(x: GpuArray, term: str) -> tuple[GpuArray, str]:
    """Return the view of diagonals where a letter stands for several dimensions."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(f"einsum: dimensions {letter!r} of an operand of shape {x.shape} differ")
            x = diagonal(x, axis1=first, axis2=second)
            term = "".join(c for k, c in enumerate(term) if k not in (first, second)) + letter
    return x, term


def _sum_out(x: GpuArray, term: str, kept: set[str]) -> tuple[GpuArray, str]:
    gone = tuple(k for k, letter in enumerate(term) if letter not in kept)
    if not gone:
        return x, term
    return reductions.sum(x, axis=gone, dtype=x.dtype), "".join(c for c in term if c in kept)


def _contract(first: tuple[GpuArray, str], second: tuple[GpuArray, str], kept: set[str]) -> tuple[GpuArray, str]:
    """Return the product of two operands, summed over letters that nothing else has, as a batch of matrices."""
    x, a = _sum_out(*first, kept | set(second[1]))
    y, b = _sum_out(*second, kept | set(a))
    shared = [c for c in a if c in b]
    batch, inner_letters = [c for c in shared if c in kept], [c for c in shared if c not in kept]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    x, y = _matched(x, a, y, b, shared)
    length = {c: x.shape[a.index(c)] for c in a} | {c: y.shape[b.index(c)] for c in b}
    sizes = [[length[c] for c in group] for group in (batch, rows, inner_letters, columns)]
    totals = [int(np.prod(s, dtype=object)) for s in sizes]
    left = permute_dims(x, [a.index(c) for c in (*batch, *rows, *inner_letters)])
    right = permute_dims(y, [b.index(c) for c in (*batch, *inner_letters, *columns)])
    term = "".join((*batch, *rows, *columns))
    shape = (*sizes[0], *sizes[1], *sizes[3])
    if not inner_letters:
        wide = reshape(left, (*left.shape, *(1,) * len(columns)))
        tall = reshape(right, (*sizes[0], *(1,) * len(rows), *sizes[3]))
        return elementwise.multiply(wide, tall), term
    product = products.matmul(
        reshape(left, (totals[0], totals[1], totals[2])), reshape(right, (totals[0], totals[2], totals[3]))
    )
    return reshape(product, shape), term


def _matched(x: GpuArray, a: str, y: GpuArray, b: str, shared: Sequence[str]) -> tuple[GpuArray, GpuArray]:
    """Return the operands with shared dimensions of one length: one of length 1 is repeated.

    Raises `ValueError`: the lengths differ.
    """
    first, second = list(x.shape), list(y.shape)
    for letter in shared:
        i, j = a.index(letter), b.index(letter)
        if first[i] != second[j]:
            if 1 not in (first[i], second[j]):
                raise ValueError(f"einsum: dimension {letter!r} has lengths {first[i]} and {second[j]}")
            first[i] = second[j] = max(first[i], second[j])
    return broadcast_to(x, first), broadcast_to(y, second)


@takes_arrays
def pad(x: GpuArray, pad_width: Any, /, mode: str = "constant", *, constant_values: Any = 0) -> GpuArray:
    """Return an array with elements added before and after each dimension, as `numpy.pad` does.

    Parameters
    ----------
    x
        An array.
    pad_width
        Numbers of elements as NumPy takes them: one number, a pair, or a pair for each dimension.
    mode
        ``"constant"``, ``"edge"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``.
    constant_values
        The number that is added in mode ``"constant"``, a pair of them (before, after), or a pair per dimension.
    """
    given = np.asarray(pad_width)
    if given.dtype.kind not in "iu":
        raise TypeError(f"pad: pad_width is of integers, not {pad_width!r}")
    widths = np.broadcast_to(given, (x.ndim, 2)).tolist()
    if given.size and given.min() < 0:
        raise ValueError(f"pad: pad_width must not be negative, it is {pad_width!r}")
    if mode == "constant":
        shape = tuple(n + low + high for n, (low, high) in zip(x.shape, widths, strict=True))
        values = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2)).tolist()
        first = values[0][0] if values else 0
        result = full(shape, first, dtype=x.dtype, device=x.context.name)
        inside = tuple(slice(low, low + n) for n, (low, _) in zip(x.shape, widths, strict=True))
        copy_into(result[inside], x)
        if any(value != first for pair in values for value in pair):
            _pad_sides(result, inside, values)
        return result
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ValueError(f"pad: there is no mode {mode!r}")
    for axis, (low, high) in enumerate(widths):
        if low or high:
            places = np.pad(np.arange(x.shape[axis]), (low, high), mode=mode)  # type: ignore[call-overload]
            x = x[(*(slice(None),) * axis, places)]
    return copied(x)


def _pad_sides(result: GpuArray, inside: tuple[slice, ...], values: list[list[Any]]) -> None:
    """Set what is before and after each dimension; where dimensions meet, the last one counts, as NumPy does."""
    for axis, (part, (before, after)) in enumerate(zip(inside, values, strict=True)):
        place = (slice(None),) * axis
        result[(*place, slice(0, part.start))] = before
        result[(*place, slice(part.stop, None))] = after


@takes_arrays
def atleast_1d(x: GpuArray, /) -> GpuArray:
    """Return a view of one dimension or more."""
    return reshape(x, (1,)) if not x.ndim else x


@takes_arrays
def atleast_2d(x: GpuArray, /) -> GpuArray:
    """Return a view of two dimensions or more; a vector becomes a row."""
    return reshape(x, (1, x.size)) if x.ndim < 2 else x


def column_stack(arrays: Sequence[GpuArray], /) -> GpuArray:
    """Concatenate vectors as the columns of a matrix; matrices as they are."""
    columns = list(arrays)
    check_arrays("column_stack", columns)
    return concat([x[:, None] if x.ndim == 1 else x for x in columns], axis=1)


@takes_arrays
def flipud(x: GpuArray, /) -> GpuArray:
    """Return a view with the first dimension reversed."""
    return flip(x, axis=0)


@takes_arrays
def fliplr(x: GpuArray, /) -> GpuArray:
    """Return a view with the second dimension reversed."""
    return flip(x, axis=1)
