"""Linear algebra of complex device arrays, against NumPy's."""

import numpy as np
import pytest

import pytensor_cl.array as xp
from pytensor_cl.runtime.array import GpuArray


def close(found, expected, what):
    """Equal dtype and shape, and values to a multiple of the rounding error of the largest."""
    assert isinstance(found, GpuArray), what
    assert (found.dtype, found.shape) == (np.asarray(expected).dtype, np.shape(expected)), what
    if found.size and found.dtype.kind == "i":
        assert np.array_equal(np.asarray(found), expected), what
    elif found.size:
        error, largest = np.abs(np.asarray(found) - expected).max(), np.abs(expected).max()
        assert error <= 2000 * np.finfo(found.dtype).eps * max(1, largest), (what, error, largest)


def test_complex_matrices(context, rng):
    """What does not depend on the directions of vectors is NumPy's, with its dtypes; the rest makes up the matrices."""
    dtype = "complex64"
    for shape in ((2, 3, 3), (2, 0, 0)):
        a = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype) + 2 * np.eye(shape[-1], dtype=dtype)
        hermitian = a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(shape[-1], dtype=dtype)
        x, h = (xp.asarray(v, device=context.name) for v in (a, hermitian))
        for function, arguments, options in (
            ("cholesky", (h,), {}),
            ("cholesky", (h,), {"upper": True}),
            ("det", (x,), {}),
            ("inv", (x,), {}),
            ("solve", (x, h), {}),
            ("eigvalsh", (h,), {}),
            ("svdvals", (x,), {}),
            ("matrix_power", (x, -2), {}),
            *([("pinv", (x[..., :2],), {}), ("matrix_rank", (x[..., [0, 0, 1]],), {})] if a.size else ()),
        ):
            found = getattr(xp.linalg, function)(*arguments, **options)
            given = [np.asarray(v) if hasattr(v, "context") else v for v in arguments]
            expected = getattr(np.linalg, function)(*given, **options)
            close(found, expected, function)
        for found, expected in zip(xp.linalg.slogdet(x), np.linalg.slogdet(a), strict=True):
            close(found, expected, "slogdet")
        q, r = xp.linalg.qr(x)
        close(r, np.linalg.qr(a)[1], "qr")
        close(q @ r, a, "qr")
        u, s, vh = xp.linalg.svd(x)
        close((u * s[..., None, :]) @ vh, a, "svd")
        w, v = xp.linalg.eig(x)
        close(x @ v, np.asarray(v * w[..., None, :]), "eig")
        total = np.trace(a, axis1=-2, axis2=-1)
        close(xp.sum(xp.linalg.eigvals(x), axis=-1), total, "eigvals")
        w, v = xp.linalg.eigh(h)
        close((v * w[..., None, :]) @ xp.conj(xp.matrix_transpose(v)), hermitian, "eigh")
        if a.size:
            close(xp.linalg.matrix_norm(x, ord=2), np.linalg.norm(a, ord=2, axis=(-2, -1)), "matrix_norm")
    singular = xp.asarray(np.array([[1, 1j], [1j, -1]], dtype), device=context.name)
    assert np.asarray(xp.linalg.matrix_rank(singular)) == 1
    assert np.isnan(np.asarray(xp.linalg.cholesky(singular))).all()
    inverse = xp.linalg.inv(singular)
    with pytest.raises(np.linalg.LinAlgError, match=r"Singular matrix, in linalg.inv of shape \(2, 2\)"):
        np.asarray(inverse)


def test_matrices_without_elements(context):
    for shape in ((0, 2), (2, 0), (2, 3, 0)):
        a = np.zeros(shape)
        x = context.from_host(a)
        close(xp.linalg.pinv(x), np.linalg.pinv(a), shape)
        close(xp.linalg.matrix_rank(x), np.linalg.matrix_rank(a), shape)
        for ord in (np.inf, 1, 2):
            close(xp.linalg.matrix_norm(x, ord=ord), np.linalg.norm(a, ord=ord, axis=(-2, -1)), (shape, ord))
        close(xp.linalg.vector_norm(x, axis=-1, ord=np.inf), np.zeros(shape[:-1]), shape)
