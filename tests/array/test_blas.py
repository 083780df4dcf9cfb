"""The BLAS functions with pygpu's arguments, against NumPy."""

import numpy as np
import pytest

from pytensor_cl.array import blas
from pytensor_cl.errors import UnsupportedDtype


@pytest.fixture
def launched(monkeypatch):
    """The names of the routines that a test launches."""
    names = []
    for kind in (blas.Gemm, blas.Gemv, blas.Ger):

        def launch(routine, outputs, inputs, whole=kind.launch):
            names.append(type(routine).__name__)
            whole(routine, outputs, inputs)

        monkeypatch.setattr(kind, "launch", launch)
    return names


def test_products_add_to_arrays_and_overwrite_them(context, rng, launched):
    a, b, c, x, y = (rng.standard_normal(shape).astype("float32") for shape in ((5, 4), (4, 3), (5, 3), (4,), (5,)))
    da, db, dc, dx, dy = map(context.from_host, (a, b, c, x, y))
    close = {"rtol": 1e-5, "atol": 1e-5}
    for is_transposed in (False, True):
        left, right = (da.T, db.T) if is_transposed else (da, db)
        flags = {"trans_a": is_transposed, "trans_b": is_transposed}
        found = blas.gemm(2, left, right, -0.5, dc, **flags)
        np.testing.assert_allclose(np.asarray(found), 2 * a @ b - 0.5 * c, **close)
        np.testing.assert_allclose(np.asarray(blas.gemm(2, left, right, **flags)), 2 * a @ b, **close)
    np.testing.assert_allclose(np.asarray(blas.gemv(0.5, da, dx, 2, dy)), 0.5 * a @ x + 2 * y, **close)
    np.testing.assert_allclose(np.asarray(blas.gemv(1, da, dy, trans_a=True)), a.T @ y, **close)
    np.testing.assert_allclose(np.asarray(blas.ger(3, dy, dx, da)), a + 3 * np.outer(y, x), **close)
    np.testing.assert_allclose(np.asarray(blas.ger(3, dy, dx)), 3 * np.outer(y, x), **close)
    np.testing.assert_allclose(np.asarray(blas.dot(dx, dx)), x @ x, **close)
    np.testing.assert_array_equal(np.asarray(dc), c)  # nothing was overwritten
    factor = context.from_host(np.full((), 2, "float32"))
    assert blas.gemm(factor, da, db, 1, dc, overwrite_c=True) is dc
    np.testing.assert_allclose(np.asarray(dc), 2 * a @ b + c, **close)
    assert blas.gemv(1, da, dx, 1, dy, overwrite_y=True) is dy
    np.testing.assert_allclose(np.asarray(dy), a @ x + y, **close)
    total = context.from_host(np.zeros((), "float32"))
    assert blas.dot(dx, dx, total, overwrite_z=True) is total
    np.testing.assert_allclose(np.asarray(total), x @ x, **close)
    assert set(launched) == {"Gemm", "Gemv", "Ger", "Dot"}


def test_operands_in_the_memory_that_is_overwritten(context, rng):
    a = rng.standard_normal((4, 4)).astype("float32")
    square = context.from_host(a)
    blas.gemm(1, square, square.T, 0, square, overwrite_c=True)
    product = a @ a.T
    np.testing.assert_allclose(np.asarray(square), product, rtol=1e-5, atol=1e-5)
    blas.ger(1, square[0], square[:, 1], square, overwrite_a=True)
    expected = product + np.outer(product[0], product[:, 1])
    np.testing.assert_allclose(np.asarray(square), expected, rtol=1e-4, atol=1e-4)
    blas.gemv(1, square, square[1], 0, square[2], overwrite_y=True)
    np.testing.assert_allclose(np.asarray(square)[2], expected @ expected[1], rtol=1e-4, atol=1e-4)


def test_batches_and_integers(context, rng, launched):
    a, b, c = (rng.integers(-9, 9, shape).astype("int32") for shape in ((3, 4, 2), (3, 4, 5), (3, 2, 5)))
    da, db, dc = map(context.from_host, (a, b, c))
    found = blas.gemmBatch_3d(2, da, db, 3, dc, trans_a=True)
    np.testing.assert_array_equal(np.asarray(found), 2 * a.transpose(0, 2, 1) @ b + 3 * c)
    assert launched == ["BatchedGemm"]


def test_operands_that_do_not_fit(context):
    x, a = context.empty((3,), "float32"), context.empty((2, 3), "float32")
    readonly = a.with_layout(a.layout)
    readonly.readonly = True
    ints = context.empty((2, 2), "int32")
    for call, error, message in (
        (lambda: blas.gemm(1, a, a), ValueError, "Shape mismatch: A has shape"),
        (lambda: blas.gemm(1, a, x), ValueError, "blas.gemm: B must have 2 dimensions, not 1"),
        (lambda: blas.gemm(1, a, np.ones((3, 2))), TypeError, "B must be a GpuArray, not ndarray"),
        (lambda: blas.gemm(1, a, a.T, 1), TypeError, "there is no array to add to"),
        (lambda: blas.gemm(1, a, a.T, 1, a), ValueError, "Shape mismatch"),
        (lambda: blas.gemm(1, a, a.T, 1, a[:1, :1]), ValueError, r"to add to has shape \(1, 1\), the product \(2, 2\)"),
        (lambda: blas.gemv(1, a, ints[0]), TypeError, "operands have one dtype, not float32, int32"),
        (lambda: blas.ger(1, x[:2], x, readonly, overwrite_a=True), ValueError, "read-only"),
        (lambda: blas.ger("2", x, x), TypeError, "alpha and beta are real numbers, not '2'"),
        (lambda: blas.gemm(0.5, ints, ints), TypeError, "integers for operands of int32, not 0.5"),
        (lambda: blas.gemm(x[0].with_layout(x[:1].layout), a, a.T), TypeError, "a scalar is a number or a 0-d array"),
        (lambda: blas.dot(x, x, overwrite_z=True), TypeError, "there is none"),
        (lambda: blas.dot(*[context.empty((3,), "complex64")] * 2), UnsupportedDtype, "no kernel for complex64"),
    ):
        with pytest.raises(error, match=message):
            call()
