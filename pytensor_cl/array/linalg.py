"""Linear algebra of real and complex matrices, after the Python array API standard.

Matrices are in the last two dimensions; leading ones are a batch. Integers are computed in floatX, float16 in float32.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pytensor_cl.array import elementwise, reductions
from pytensor_cl.array.arguments import takes_arrays
from pytensor_cl.array.creation import eye
from pytensor_cl.array.dispatch import common_context
from pytensor_cl.array.dtypes import DTypeLike, default_float
from pytensor_cl.array.launches import cast_to, copied, copy_into
from pytensor_cl.array.manipulation import broadcast_arrays, broadcast_to, matrix_transpose, moveaxis
from pytensor_cl.array.manipulation import diagonal as _diagonal
from pytensor_cl.array.numpy_names import raise_missing
from pytensor_cl.array.products import matmul, outer, tensordot, vecdot
from pytensor_cl.array.rows import cached
from pytensor_cl.routines.linalg.cholesky import Cholesky
from pytensor_cl.routines.linalg.jacobi import SVD, SymmetricEigen
from pytensor_cl.routines.linalg.lu import Determinant, Inverse, Solve
from pytensor_cl.routines.linalg.qr import QR
from pytensor_cl.routines.linalg.schur import Eigen
from pytensor_cl.runtime.array import GpuArray

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EigResult(NamedTuple):
    """The result of `eig`."""

    eigenvalues: GpuArray
    eigenvectors: GpuArray


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: GpuArray
    eigenvectors: GpuArray


class QRResult(NamedTuple):
    """The result of `qr`."""

    Q: GpuArray
    R: GpuArray


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: GpuArray
    logabsdet: GpuArray


class SVDResult(NamedTuple):
    """The result of `svd`."""

    U: GpuArray
    S: GpuArray
    Vh: GpuArray


def _floating(x: GpuArray) -> GpuArray:
    """Return the array in the dtype that it is computed in."""
    if x.dtype.kind not in "fc":
        return cast_to(x, default_float(x.context))
    return cast_to(x, np.dtype("float32")) if x.dtype == np.dtype("float16") else x


def _matrices(name: str, x: GpuArray, square: bool = False) -> GpuArray:
    """Return matrices in the dtype that they are computed in.

    Raises `LinAlgError`: there are fewer than two dimensions, or the matrices are not square.
    """
    if x.ndim < 2:
        raise np.linalg.LinAlgError(f"linalg.{name} takes matrices, not an array of shape {x.shape}")
    if square and x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError(f"linalg.{name} takes square matrices, not an array of shape {x.shape}")
    return _floating(x)


def _adjoint(x: GpuArray) -> GpuArray:
    """Return the conjugate transposes of matrices."""
    x = matrix_transpose(x)
    return elementwise.conj(x) if x.dtype.kind == "c" else x


def _routine(x: GpuArray, kind: Any, **options: Any) -> Any:
    return cached((x.context, kind, x.dtype, *options.items()), lambda: kind(x.context, str(x.dtype), **options))


@takes_arrays
def cholesky(x: GpuArray, /, *, upper: bool = False) -> GpuArray:
    """Return the Cholesky factors L of ``x = L @ L.T``, or U of ``x = U.T @ U``.

    Transposes of complex factors are conjugated.

    Parameters
    ----------
    x
        Symmetric or Hermitian positive definite matrices (..., n, n), of which one triangle is read. Imaginary parts
        of the diagonal are not read.
    upper
        Whether U is returned, from the upper triangle.

    Returns
    -------
    GpuArray
        (..., n, n). The factor of a matrix that is not positive definite is NaN.
    """
    a = _matrices("cholesky", x, square=True)
    factor: GpuArray = _routine(a, Cholesky, lower=not upper)(a)[0]
    return factor


@takes_arrays
def cross(x1: GpuArray, x2: GpuArray, /, *, axis: int = -1) -> GpuArray:
    """Return cross products of vectors with three elements.

    Parameters
    ----------
    x1, x2
        Arrays with length 3 along `axis`; other dimensions broadcast.
    axis
        The dimension.

    Raises
    ------
    ValueError
        The dimension has another length; `numpy.cross` allowed 2 as well.
    """
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross: axis {axis} must have length 3, the shapes are {x1.shape} and {x2.shape}")
    a, b = (moveaxis(x, axis, -1) for x in broadcast_arrays(x1, x2))
    result = a.context.empty(a.shape, np.result_type(x1.dtype, x2.dtype))
    for k in range(3):
        i, j = (k + 1) % 3, (k + 2) % 3
        first = elementwise.multiply(a[..., i], b[..., j])
        copy_into(result[..., k], elementwise.subtract(first, elementwise.multiply(a[..., j], b[..., i]), out=first))
    return moveaxis(result, -1, axis)


@takes_arrays
def det(x: GpuArray, /) -> GpuArray:
    """Return the determinants (...) of matrices (..., n, n); those of integers are floatX, those of float16 float32."""
    a = _matrices("det", x, square=True)
    result: GpuArray = _routine(a, Determinant)(a)[0]
    return result


@takes_arrays
def slogdet(x: GpuArray, /) -> SlogdetResult:
    """Return the signs, and the logarithms of the absolute values, of the determinants of matrices (..., n, n).

    The sign of a complex determinant is a number of length one; the logarithms are real.
    """
    a = _matrices("slogdet", x, square=True)
    return SlogdetResult(*_routine(a, Determinant, in_parts=True)(a))


@takes_arrays
def diagonal(x: GpuArray, /, *, offset: int = 0) -> GpuArray:
    """Return a view of the diagonals (..., k) of matrices (..., m, n), `offset` places above the main one."""
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


@takes_arrays
def trace(x: GpuArray, /, *, offset: int = 0, dtype: DTypeLike = None) -> GpuArray:
    """Return the sums of diagonals (...) of matrices (..., m, n), `offset` places above the main one; `dtype` is as in
    `sum`.
    """
    return reductions.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@takes_arrays
def eig(x: GpuArray, /) -> EigResult:
    """Return the eigenvalues (..., n) and the eigenvectors (..., n, n) of square matrices.

    Both are complex, also where all eigenvalues are real: NumPy's dtype depends on the data. The eigenvalues are in no
    order, but those of a conjugate pair of a real matrix follow one another. The vectors are columns of length one.

    Raises `LinAlgError`, at the next wait: an element is not finite, or the iteration does not converge.

    >>> import numpy as np
    >>> import pytensor_cl.array as xp
    >>> w, v = xp.linalg.eig(xp.asarray([[0.0, 1.0], [-1.0, 0.0]]))
    >>> np.allclose(np.asarray(w), [1j, -1j])
    True
    """
    return EigResult(*_eigen("eig", x, has_vectors=True))


@takes_arrays
def eigvals(x: GpuArray, /) -> GpuArray:
    """Return the eigenvalues (..., n) of square matrices (..., n, n), complex and in no order, as in `eig`."""
    values: GpuArray = _eigen("eigvals", x, has_vectors=False)[0]
    return values


def _eigen(name: str, x: GpuArray, has_vectors: bool) -> Any:
    a = _matrices(name, x, square=True)
    routine = _routine(a, Eigen, has_vectors=has_vectors)
    return a.context.deferred_errors.enqueue(routine, f"linalg.{name} of shape {x.shape}", lambda: routine(a))


@takes_arrays
def eigh(x: GpuArray, /) -> EighResult:
    """Return the eigenvalues and the eigenvectors of symmetric or Hermitian matrices.

    Parameters
    ----------
    x
        Matrices (..., n, n), of which the lower triangle is read.

    Returns
    -------
    EighResult
        `eigenvalues` (..., n), real and in ascending order, and `eigenvectors` (..., n, n), which are columns. Their
        signs, or directions in the complex plane, may differ from NumPy's.

    Raises
    ------
    LinAlgError
        The matrices are not square.
    """
    a = _matrices("eigh", x, square=True)
    return EighResult(*_routine(a, SymmetricEigen)(a))


@takes_arrays
def eigvalsh(x: GpuArray, /) -> GpuArray:
    """Return the eigenvalues (..., n), real and in ascending order, of symmetric or Hermitian matrices (..., n, n)."""
    a = _matrices("eigvalsh", x, square=True)
    values: GpuArray = _routine(a, SymmetricEigen, has_vectors=False)(a)[0]
    return values


@takes_arrays
def inv(x: GpuArray, /) -> GpuArray:
    """Return the inverses of matrices (..., n, n).

    Raises `LinAlgError`, at the next wait: a matrix is singular.
    """
    a = _matrices("inv", x, square=True)
    routine = _routine(a, Inverse)
    description = f"linalg.inv of shape {x.shape}"
    result: GpuArray = a.context.deferred_errors.enqueue(routine, description, lambda: routine(a))[0]
    return result


@takes_arrays
def matrix_power(x: GpuArray, n: int, /) -> GpuArray:
    """Return powers of square matrices (..., n, n), by repeated squaring; negative ones are powers of the inverses."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError(f"linalg.matrix_power takes square matrices, not an array of shape {x.shape}")
    if n == 0:
        ones = eye(x.shape[-1], dtype=x.dtype, device=x.context.name)
        return copied(broadcast_to(ones, x.shape))
    base, result, count = inv(x) if n < 0 else x, None, abs(n)
    while count:
        if count & 1:
            result = base if result is None else matmul(result, base)
        count >>= 1
        if count:
            base = matmul(base, base)
    assert result is not None
    return copied(result) if result is x else result


@takes_arrays
def qr(x: GpuArray, /, mode: str = "reduced") -> QRResult:
    """Return the factors of ``x = Q @ R`` of matrices.

    Parameters
    ----------
    x
        Matrices (..., m, n); k is the smaller side.
    mode
        ``"reduced"`` for Q (..., m, k) and R (..., k, n); ``"complete"`` for Q (..., m, m) and R (..., m, n).

    Returns
    -------
    QRResult
        `Q` and `R`. The diagonal of R is real.

    Raises
    ------
    ValueError
        There is no such mode.
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"linalg.qr: mode must be 'reduced' or 'complete', not {mode!r}")
    a = _matrices("qr", x)
    return QRResult(*_routine(a, QR, mode={"reduced": "economic", "complete": "full"}[mode])(a))


@takes_arrays
def solve(x1: GpuArray, x2: GpuArray, /) -> GpuArray:
    """Return the solutions of the linear systems ``x1 @ x = x2``.

    Parameters
    ----------
    x1
        Matrices (..., n, n).
    x2
        A vector (n,), or matrices (..., n, m); leading dimensions broadcast.

    Returns
    -------
    GpuArray
        The solutions, in the shape of `x2` with all leading dimensions; NaN where a matrix is singular.
    """
    context = common_context("linalg.solve", [x1, x2])
    a, b = _matrices("solve", x1, square=True), _floating(x2)
    dtype = np.result_type(a.dtype, b.dtype)
    a, b = (v if v.dtype == dtype else cast_to(v, dtype) for v in (a, b))
    is_vector = b.ndim == 1
    if a.shape[-1] != b.shape[-1 if is_vector else -2]:
        raise ValueError(f"linalg.solve: shapes {x1.shape} and {x2.shape} do not fit")
    if is_vector:
        b = broadcast_to(b, (*a.shape[:-2], b.shape[0]))
    routine = cached((context, Solve, dtype, is_vector), lambda: Solve(context, str(dtype), is_vector=is_vector))
    result: GpuArray = routine(a, b)[0]
    return result


@takes_arrays
def svd(x: GpuArray, /, full_matrices: bool = True) -> SVDResult:
    """Return the factors of ``x = U @ diag(S) @ Vh``.

    Parameters
    ----------
    x
        Matrices (..., m, n); k is the smaller side.
    full_matrices
        Whether U (..., m, m) and Vh (..., n, n) are square; else they are (..., m, k) and (..., k, n).

    Returns
    -------
    SVDResult
        `U`, `S` (..., k), the singular values, real and in descending order, and `Vh`. Signs of vectors, or their
        directions in the complex plane, may differ from NumPy's.
    """
    a = _matrices("svd", x)
    return SVDResult(*_routine(a, SVD, full_matrices=full_matrices)(a))


@takes_arrays
def svdvals(x: GpuArray, /) -> GpuArray:
    """Return the singular values (..., k), in descending order, of matrices (..., m, n); k = min(m, n)."""
    a = _matrices("svdvals", x)
    values: GpuArray = _routine(a, SVD, full_matrices=False, compute_uv=False)(a)[0]
    return values


def _cutoff(x: GpuArray, values: GpuArray, rtol: Any) -> GpuArray:
    """Return the limit below which singular values count as zero, with a dimension of length 1, or 0 without values."""
    if not values.shape[-1]:
        return values
    if rtol is None:
        rtol = float(np.finfo(values.dtype).eps) * max(x.shape[-2:])
    greatest = reductions.max(values, axis=-1, keepdims=True)
    if isinstance(rtol, GpuArray) and rtol.ndim:
        rtol = rtol[..., None]
    return elementwise.multiply(greatest, rtol)


@takes_arrays
def matrix_rank(x: GpuArray, /, rtol: Any = None) -> GpuArray:
    """Return the ranks (...), int64, of matrices (..., m, n): how many singular values are above a limit.

    Parameters
    ----------
    x
        Matrices.
    rtol
        The limit divided by the greatest singular value: a number, or an array (...); None is the larger side times the
        precision of the dtype.
    """
    values = svdvals(x)
    return reductions.count_nonzero(elementwise.greater(values, _cutoff(x, values, rtol)), axis=-1)


@takes_arrays
def pinv(x: GpuArray, /, rtol: Any = None) -> GpuArray:
    """Return the pseudo-inverses (..., n, m) of matrices (..., m, n); `rtol` is as in `matrix_rank`."""
    u, s, vh = svd(x, full_matrices=False)
    if rtol is None:
        rtol = float(np.finfo(s.dtype).eps) * max(x.shape[-2:])
    is_used = elementwise.greater(s, _cutoff(x, s, rtol))
    inverse = elementwise.where(is_used, elementwise.divide(1.0, s), 0.0)
    return matmul(elementwise.multiply(_adjoint(vh), inverse[..., None, :]), _adjoint(u))


@takes_arrays
def vector_norm(x: GpuArray, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> GpuArray:
    """Return norms of vectors.

    Parameters
    ----------
    x
        An array.
    axis
        The dimensions of a vector, or None for all.
    keepdims
        Whether these dimensions stay, with length 1.
    ord
        A number, ``inf`` or ``-inf``; 0 counts elements that are not zero.
    """
    size = elementwise.abs(_real_or_complex(x))
    options = {"axis": axis, "keepdims": keepdims}
    if ord == inf:
        return _greatest(size)(size, **options)
    if ord == -inf:
        return reductions.min(size, **options)
    if ord == 0:
        return cast_to(reductions.count_nonzero(size, **options), size.dtype)
    if ord == 1:
        return reductions.sum(size, **options)
    if ord == 2:
        return elementwise.sqrt(reductions.sum(elementwise.square(size), **options))
    total = reductions.sum(elementwise.pow(size, float(ord)), **options)
    return elementwise.pow(total, 1.0 / ord)


@takes_arrays
def norm(x: GpuArray, /, ord: Any = None, axis: Any = None, keepdims: bool = False) -> GpuArray:
    """Return norms of vectors or of matrices, as `numpy.linalg.norm` does.

    Parameters
    ----------
    x
        An array.
    ord
        The kind of norm, that of `vector_norm` or `matrix_norm`. None is the root of the sum of squares.
    axis
        One dimension for norms of vectors, two for those of matrices. None is all: with `ord`, those of a matrix if `x`
        is one.
    keepdims
        Whether the dimensions stay, with length 1.
    """
    if axis is None and ord is not None and x.ndim not in (1, 2):
        raise ValueError(f"norm: an array of shape {x.shape} is neither a vector nor a matrix: pass axis")
    is_matrix = (axis is None and x.ndim == 2 and ord is not None) or (isinstance(axis, tuple) and len(axis) == 2)
    if not is_matrix:
        return vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)
    places = (x.ndim - 2, x.ndim - 1) if axis is None else normalize_axis_tuple(axis, x.ndim, "axis")
    result = matrix_norm(moveaxis(x, places, (-2, -1)), keepdims=keepdims, ord="fro" if ord is None else ord)
    return moveaxis(result, (-2, -1), places) if keepdims else result


@takes_arrays
def matrix_norm(x: GpuArray, /, *, keepdims: bool = False, ord: Any = "fro") -> GpuArray:
    """Return norms (...) of matrices (..., m, n).

    Parameters
    ----------
    x
        Matrices; integers are computed as floatX.
    keepdims
        Whether the last two dimensions stay, with length 1.
    ord
        ``"fro"``, the root of the sum of squares; ``"nuc"``, the sum of the singular values; 2 and -2, the greatest and
        the least of them; 1 and -1, the greatest and the least sum of a column; ``inf`` and ``-inf``, of a row.

    Raises
    ------
    ValueError
        There is no such norm.
    """
    if x.ndim < 2:
        raise np.linalg.LinAlgError(f"linalg.matrix_norm takes matrices, not an array of shape {x.shape}")
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, inf, -inf):
        rows = reductions.sum(elementwise.abs(_real_or_complex(x)), axis=-2 if abs(ord) == 1 else -1, keepdims=True)
        reduce = _greatest(rows) if ord > 0 else reductions.min
        result = reduce(rows, axis=(-2, -1), keepdims=True)
    elif ord in (2, -2, "nuc"):
        values = svdvals(x)
        totals: dict[Any, Any] = {2: _greatest(values), -2: reductions.min, "nuc": reductions.sum}
        total = totals[ord](values, axis=-1)
        result = total[..., None, None]
    else:
        raise ValueError(f"linalg.matrix_norm: there is no norm {ord!r}")
    return result if keepdims else result[..., 0, 0]


def _greatest(sizes: GpuArray) -> Callable[..., GpuArray]:
    """Return the reduction to the greatest of sizes: if there are none it is 0, as their sum."""
    return reductions.max if sizes.size else reductions.sum


def _real_or_complex(x: GpuArray) -> GpuArray:
    return x if x.dtype.kind in "fc" else cast_to(x, default_float(x.context))


if not TYPE_CHECKING:  # with it, type checkers would take every name for one of this module

    def __getattr__(name: str) -> NoReturn:
        raise_missing(__name__, name)
