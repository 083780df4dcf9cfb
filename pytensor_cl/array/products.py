"""Products of vectors, matrices and tensors."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.array import elementwise, reductions
from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.dispatch import assign_result, common_context
from pytensor_cl.array.launches import cast_to
from pytensor_cl.array.manipulation import broadcast_to, permute_dims, reshape
from pytensor_cl.array.rows import cached
from pytensor_cl.codegen.dtypes import computed, is_complex
from pytensor_cl.routines.gemm.complex import ComplexGemm
from pytensor_cl.routines.gemm.routine import BatchedGemm, Gemm
from pytensor_cl.routines.gemv.routine import Dot, Gemv
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context


def _routine(context: Context, kind: Any, dtype: str) -> Any:
    if is_complex(dtype):
        product = BatchedGemm if kind is BatchedGemm else Gemm
        return cached((context, ComplexGemm, product, dtype), lambda: ComplexGemm(context, product, dtype))
    return cached((context, kind, dtype), lambda: kind(context, dtype))


def _compute_dtype(dtype: np.dtype) -> str:
    """Return the dtype in which products are computed; those of bools are "or" of "and"."""
    return "float32" if dtype.kind == "b" else computed(str(dtype))


def matmul(x1: GpuArray, x2: GpuArray, /, *, out: GpuArray | None = None) -> GpuArray:
    """Return products of matrices.

    Parameters
    ----------
    x1, x2
        Arrays (..., m, k) and (..., k, n), whose leading dimensions broadcast; vectors (k,) stand for a row on the
        left, and for a column on the right. Numbers and 0-d arrays are no matrices.
    out
        An array that the result is written into.

    Returns
    -------
    GpuArray
        (..., m, n), without the dimensions that vectors do not have. Integers wrap. float16 is computed in float32.

    Raises
    ------
    ValueError
        The shapes do not fit.
    """
    for x in (x1, x2):
        if not isinstance(x, GpuArray):
            raise TypeError(f"matmul takes device arrays, not {type(x).__name__}: upload it, asarray(x)")
        if not x.ndim:
            raise ValueError("matmul takes arrays of one dimension or more: multiply by a number with *")
    context = common_context("matmul", [x1, x2])
    inner = x1.shape[-1], x2.shape[-2 if x2.ndim > 1 else 0]
    if inner[0] != inner[1]:
        raise ValueError(f"matmul: shapes {x1.shape} and {x2.shape} do not fit: {inner[0]} is not {inner[1]}")
    dtype = np.result_type(x1.dtype, x2.dtype)
    context.check_dtype(dtype)
    wide = _compute_dtype(dtype)
    a, b = (x if str(x.dtype) == wide else cast_to(x, np.dtype(wide)) for x in (x1, x2))
    result = _product(context, a, b, wide)
    if str(dtype) != wide:
        result = cast_to(result, dtype)
    return result if out is None else assign_result("matmul", out, result)


def _product(context: Context, a: GpuArray, b: GpuArray, dtype: str) -> GpuArray:
    """Return the product of arrays of the dtype it is computed in."""
    if a.ndim == 1 and b.ndim == 1 and not is_complex(dtype):
        return reshape(_routine(context, Dot, dtype)(a, b)[0], ())
    if a.ndim == 2 and b.ndim == 1 and not is_complex(dtype):
        return _routine(context, Gemv, dtype)(a, b)[0]
    if a.ndim == 1 and b.ndim == 2 and not is_complex(dtype):
        return _routine(context, Gemv, dtype)(b.T, a)[0]
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    matrix = _matrices(context, left, right, dtype)
    shape = list(matrix.shape)
    if b.ndim == 1:
        del shape[-1]
    if a.ndim == 1:
        del shape[-1 if b.ndim == 1 else -2]
    return reshape(matrix, shape)


def _matrices(context: Context, a: GpuArray, b: GpuArray, dtype: str) -> GpuArray:
    if a.ndim == b.ndim == 2:
        return _routine(context, Gemm, dtype)(a, b)[0]
    if b.ndim == 2 and a.layout.is_contiguous:  # one product of all rows
        flat = _routine(context, Gemm, dtype)(reshape(a, (prod(a.shape[:-1]), a.shape[-1])), b)[0]
        return reshape(flat, (*a.shape[:-1], b.shape[-1]))
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: leading dimensions of shapes {a.shape} and {b.shape} do not broadcast") from None
    left, right = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    return _routine(context, BatchedGemm, dtype)(left, right)[0]


@takes_arrays
def vecdot(x1: GpuArray, x2: GpuArray, /, *, axis: int = -1) -> GpuArray:
    """Return inner products of vectors along a dimension.

    Parameters
    ----------
    x1, x2
        Arrays with the same length along `axis`; other dimensions broadcast. `x1` is conjugated where it is complex.
    axis
        The dimension.

    Returns
    -------
    GpuArray
        The common shape without `axis`, and the dtype to which those of the arrays promote: integers wrap.

    Raises
    ------
    ValueError
        The lengths differ, or the shapes do not broadcast.
    """
    if not -min(x1.ndim, x2.ndim) <= axis < min(x1.ndim, x2.ndim):
        raise np.exceptions.AxisError(f"vecdot: axis {axis} is out of bounds for shapes {x1.shape} and {x2.shape}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: shapes {x1.shape} and {x2.shape} differ along axis {axis}")
    left = elementwise.conj(x1) if x1.dtype.kind == "c" else x1
    dtype = np.result_type(x1.dtype, x2.dtype)
    return reductions.sum(elementwise.multiply(left, x2), axis=axis, dtype=dtype)


@takes_arrays
def tensordot(x1: GpuArray, x2: GpuArray, /, axes: int | Sequence[Sequence[int]] = 2) -> GpuArray:
    """Return the sums of products over dimensions of two arrays.

    Parameters
    ----------
    x1, x2
        Arrays.
    axes
        The number of last dimensions of `x1`, and of first ones of `x2`, that are summed over; or a pair of
        sequences: the dimensions of `x1`, and of `x2`.

    Returns
    -------
    GpuArray
        The other dimensions of `x1`, then those of `x2`.

    Raises
    ------
    ValueError
        The lengths of the dimensions differ.
    """
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot: {axes} axes of shapes {x1.shape} and {x2.shape}")
        first, second = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        first, second = (
            np.lib.array_utils.normalize_axis_tuple(a, x.ndim, "axes") for a, x in zip(axes, (x1, x2), strict=True)
        )
    if [x1.shape[a] for a in first] != [x2.shape[a] for a in second]:
        raise ValueError(f"tensordot: shapes {x1.shape} and {x2.shape} do not fit along axes {first} and {second}")
    rows = [a for a in range(x1.ndim) if a not in first]
    columns = [a for a in range(x2.ndim) if a not in second]
    inner = prod(x1.shape[a] for a in first)
    left = reshape(permute_dims(x1, (*rows, *first)), (prod(x1.shape[a] for a in rows), inner))
    right = reshape(permute_dims(x2, (*second, *columns)), (inner, prod(x2.shape[a] for a in columns)))
    return reshape(matmul(left, right), (*(x1.shape[a] for a in rows), *(x2.shape[a] for a in columns)))


@takes_arrays
def dot(x1: GpuArray, x2: GpuArray, /) -> GpuArray:
    """Return the product of two arrays, as `numpy.dot` does.

    Parameters
    ----------
    x1, x2
        Numbers (0-d arrays) are multiplied; vectors and matrices are as for `matmul`; arrays (..., k) and (..., k, n)
        of more dimensions are summed over k.

    Returns
    -------
    GpuArray
        The leading dimensions of `x1`, then those of `x2`: they do not broadcast, as those of `matmul` do.
    """
    if not x1.ndim or not x2.ndim:
        return elementwise.multiply(x1, x2)
    if x1.ndim <= 2 and x2.ndim <= 2:
        return matmul(x1, x2)
    return tensordot(x1, x2, axes=((x1.ndim - 1,), (max(0, x2.ndim - 2),)))


@takes_arrays
def outer(x1: GpuArray, x2: GpuArray, /) -> GpuArray:
    """Return the matrix of the products ``x1[i] * x2[j]`` of two vectors.

    Raises `ValueError`: an array is no vector.
    """
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer takes vectors, not shapes {x1.shape} and {x2.shape}")
    return elementwise.multiply(x1[:, None], x2[None, :])
