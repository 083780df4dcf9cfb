"""The BLAS functions of libgpuarray on device arrays, with pygpu's names and order of arguments, for who ports.

New code has ``A @ B`` and `pytensor_cl.array.vecdot`; these functions scale, add and write in place in one kernel.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pytensor_cl.array.dispatch import check_writable, common_context
from pytensor_cl.array.launches import copied, thread_cache, unaliased
from pytensor_cl.errors import UnsupportedDtype
from pytensor_cl.routines.base.blas import BlasRoutine
from pytensor_cl.routines.base.routine import layout_of
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemv.routine import Dot, Gemv, Ger
from pytensor_cl.runtime.array import GpuArray, share_memory

__all__ = ["dot", "gemm", "gemmBatch_3d", "gemv", "ger"]


def _checked(name: str, ndims: dict[str, int], *arrays: GpuArray | None) -> np.dtype:
    """Return the dtype of the operands.

    `ndims`: the operands' names, and their numbers of dimensions. Raises `TypeError` or `ValueError`: the operands are
    no arrays of one dtype, of one context and of these numbers of dimensions.
    """
    there = []
    for (operand, ndim), array in zip(ndims.items(), arrays, strict=True):
        if array is None:
            continue
        if not isinstance(array, GpuArray):
            raise TypeError(f"blas.{name}: {operand} must be a GpuArray, not {type(array).__name__}")
        if array.ndim != ndim:
            raise ValueError(f"blas.{name}: {operand} must have {ndim} dimensions, not {array.ndim}")
        there.append(array)
    common_context(f"blas.{name}", there)
    found = {array.dtype for array in there}
    if len(found) != 1:
        names = ", ".join(sorted(map(str, found)))
        raise TypeError(f"blas.{name}: operands have one dtype, not {names}: cast them with astype")
    dtype = found.pop()
    if dtype.kind not in "iuf" or dtype == np.float16:
        raise UnsupportedDtype(
            f"blas.{name} has no kernel for {dtype}: it takes float32, float64 and integers; A @ B takes more"
        )
    return dtype


def _routine(kind: Callable[..., Any], array: GpuArray, **options: bool) -> Any:
    """Return the thread's own routine: kernels hold their arguments between two calls of the driver."""
    cache, key = thread_cache(), ("blas", kind, array.context, array.dtype, *options.items())
    found: BlasRoutine | None = cache.get(key)
    if found is None:
        found = cache[key] = kind(array.context, array.dtype, **options)
    return found


def _number(name: str, value: Any, operand: GpuArray) -> Any:
    """Return a scalar that multiplies: a number as a NumPy scalar of the operands' dtype, or a 0-d array."""
    dtype = operand.dtype
    if isinstance(value, GpuArray):
        common_context(f"blas.{name}", (operand, value))
        if value.ndim or value.dtype != dtype:
            raise TypeError(f"blas.{name}: a scalar is a number or a 0-d array of {dtype}, not {value!r}")
        return value
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise TypeError(f"blas.{name}: alpha and beta are real numbers, not {value!r}")
    if dtype.kind in "iu" and value != int(value):
        raise TypeError(f"blas.{name}: alpha and beta are integers for operands of {dtype}, not {value!r}")
    return dtype.type(int(value) if dtype.kind in "iu" else value)


def _with_addend(
    name: str,
    kind: Callable[..., Any],
    flag: str,
    addend: GpuArray | None,
    alpha: Any,
    a: GpuArray,
    b: GpuArray,
    beta: Any,
    overwrite: bool,
) -> GpuArray:
    """Return ``alpha * (a times b) + beta * addend``, in the memory of the addend if that shall be overwritten."""
    dtype = a.dtype
    first = _number(name, alpha, a)
    if addend is None:
        if overwrite or isinstance(beta, GpuArray) or beta:
            raise TypeError(f"blas.{name}: there is no array to add to, but beta is not 0, or it shall be overwritten")
        return _routine(kind, a, has_alpha=True)(first, a, b)[0]
    routine, second = _routine(kind, a, **{flag: True}), _number(name, beta, a)
    inputs = (addend, first, a, b, second)
    (layout,) = routine.layout(*map(layout_of, inputs))
    if layout.shape != addend.shape:
        raise ValueError(f"blas.{name}: the array to add to has shape {addend.shape}, the product {layout.shape}")
    out = addend
    if overwrite:
        check_writable(addend)
        inputs = (addend, first, unaliased(a, out), unaliased(b, out), second)
    else:
        out = a.context.empty(addend.shape, dtype)
    if out.size:
        routine.launch((out,), inputs)
    return out


def gemm(
    alpha: Any,
    A: GpuArray,
    B: GpuArray,
    beta: Any = 0.0,
    C: GpuArray | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    overwrite_c: bool = False,
) -> GpuArray:
    """Return ``alpha * A @ B + beta * C``.

    Parameters
    ----------
    alpha, beta
        Numbers, or 0-d arrays of the dtype of the matrices. Where ``beta`` is 0, C is not read.
    A, B
        Matrices of one dtype, float32, float64 or integers, with any strides.
    C
        The matrix that is added, of the shape of the product; None adds nothing.
    trans_a, trans_b
        Take the transpose of A, of B.
    overwrite_c
        Write the result into C and return it.

    Raises
    ------
    TypeError
        An operand is no array, or dtypes differ.
    ValueError
        Shapes do not fit, or C is read-only and shall be overwritten.

    Examples
    --------
    >>> blas.gemm(2.0, A, B, 1.0, C, overwrite_c=True)
    """
    _checked("gemm", {"A": 2, "B": 2, "C": 2}, A, B, C)
    a, b = A.T if trans_a else A, B.T if trans_b else B
    return _with_addend("gemm", Gemm, "has_c", C, alpha, a, b, beta, overwrite_c)


def gemmBatch_3d(
    alpha: Any,
    A: GpuArray,
    B: GpuArray,
    beta: Any = 0.0,
    C: GpuArray | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    overwrite_c: bool = False,
) -> GpuArray:
    """Return ``alpha * A @ B + beta * C`` of three-dimensional arrays, matrix by matrix.

    Parameters and errors are those of `gemm`; a leading dimension of length one is repeated.
    """
    _checked("gemmBatch_3d", {"A": 3, "B": 3, "C": 3}, A, B, C)
    a = A.with_layout(A.layout.transpose((0, 2, 1))) if trans_a else A
    b = B.with_layout(B.layout.transpose((0, 2, 1))) if trans_b else B
    return _with_addend("gemmBatch_3d", BatchedGemm, "has_c", C, alpha, a, b, beta, overwrite_c)


def gemv(
    alpha: Any,
    A: GpuArray,
    X: GpuArray,
    beta: Any = 0.0,
    Y: GpuArray | None = None,
    trans_a: bool = False,
    overwrite_y: bool = False,
) -> GpuArray:
    """Return ``alpha * A @ X + beta * Y`` for a matrix and vectors.

    Parameters
    ----------
    alpha, beta
        Numbers, or 0-d arrays of the dtype of the operands.
    A, X
        A matrix and a vector of one dtype.
    Y
        The vector that is added; None adds nothing.
    trans_a
        Take the transpose of A.
    overwrite_y
        Write the result into Y and return it.

    Raises
    ------
    TypeError
        An operand is no array, or dtypes differ.
    ValueError
        Shapes do not fit, or Y is read-only and shall be overwritten.
    """
    _checked("gemv", {"A": 2, "X": 1, "Y": 1}, A, X, Y)
    return _with_addend("gemv", Gemv, "has_y", Y, alpha, A.T if trans_a else A, X, beta, overwrite_y)


def ger(alpha: Any, X: GpuArray, Y: GpuArray, A: GpuArray | None = None, overwrite_a: bool = False) -> GpuArray:
    """Return ``A + alpha * outer(X, Y)``.

    Parameters
    ----------
    alpha
        A number, or a 0-d array of the dtype of the operands.
    X, Y
        Vectors of one dtype.
    A
        The matrix that is added, of shape ``(len(X), len(Y))``; None adds nothing.
    overwrite_a
        Write the result into A and return it.

    Raises
    ------
    TypeError
        An operand is no array, or dtypes differ.
    ValueError
        Shapes do not fit, or A is read-only and shall be overwritten.
    """
    dtype = _checked("ger", {"X": 1, "Y": 1, "A": 2}, X, Y, A)
    factor = _number("ger", alpha, X)
    if A is None:
        if overwrite_a:
            raise TypeError("blas.ger: an array shall be overwritten, and there is none")
        column = X.with_layout(X.layout.dimshuffle((0, "x")))
        row = Y.with_layout(Y.layout.dimshuffle(("x", 0)))
        return _routine(Gemm, X, has_alpha=True)(factor, column, row)[0]
    out = A
    if overwrite_a:
        check_writable(A)
    else:
        out = A.context.empty(A.shape, dtype)
    x, y = (unaliased(v, out) for v in (X, Y))
    routine = _routine(Ger, A)
    routine.layout(*map(layout_of, (A, factor, x, y)))
    if out.size:
        routine.launch((out,), (A, factor, x, y))
    return out


def dot(X: GpuArray, Y: GpuArray, Z: GpuArray | None = None, overwrite_z: bool = False) -> GpuArray:
    """Return the sum of the products of two vectors' elements, a 0-d array.

    Parameters
    ----------
    X, Y
        Vectors of one dtype and length.
    Z
        A 0-d array for the result; without `overwrite_z` it is not used.
    overwrite_z
        Write the result into Z and return it.

    Raises
    ------
    TypeError
        An operand is no array, or dtypes differ.
    ValueError
        Lengths differ, or Z is read-only and shall be overwritten.
    """
    dtype = _checked("dot", {"X": 1, "Y": 1, "Z": 0}, X, Y, Z)
    routine = _routine(Dot, X)
    routine.layout(X.layout, Y.layout)
    if not overwrite_z:
        return routine(X, Y)[0]
    if Z is None:
        raise TypeError("blas.dot: an array shall be overwritten, and there is none")
    check_writable(Z)
    x, y = (copied(v) if share_memory(v, Z) else v for v in (X, Y))
    assert Z.dtype == dtype
    routine.launch((Z,), (x, y))
    return Z
