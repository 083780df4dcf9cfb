"""QR factors, singular values and eigenvalues of symmetric matrices, against NumPy."""

import numpy as np
import pytest

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.linalg.jacobi import SVD, SymmetricEigen
from pytensor_cl.routines.linalg.qr import QR

schedules = pytest.mark.parametrize("schedule", SCHEDULES)
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
SHAPES = (
    *(((), 1, 1), ((), 5, 3), ((), 3, 5), ((), 70, 45), ((), 45, 70), ((7,), 6, 6), ((2, 3), 9, 4), ((), 33, 2)),
    *(((2,), 0, 3), ((2,), 3, 0), ((0,), 3, 3)),
    *(((37,), 6, 4), ((17,), 4, 9), ((20,), 16, 16)),
)


def near(got, expected, scale=1.0):
    """Equal to a multiple of the rounding error, relative to a scale."""
    assert got.shape == expected.shape
    error = np.abs(got - expected).max(initial=0)
    assert error <= 200 * np.finfo(got.dtype).eps * max(1.0, float(scale)), error


def swapped(x):
    return np.swapaxes(x, -1, -2)


def assert_orthonormal(columns):
    near(
        swapped(columns) @ columns,
        np.broadcast_to(np.eye(columns.shape[-1]), (*columns.shape[:-2], *[columns.shape[-1]] * 2)),
    )


@schedules
@dtypes
@pytest.mark.parametrize("mode", ["full", "economic", "r"])
def test_qr(context, rng, schedule, dtype, mode):
    qr = QR(context, dtype, mode, schedule=schedule)
    for batch, m, n in SHAPES:
        a = rng.normal(size=(*batch, m, n)).astype(dtype)
        *first, r = map(np.asarray, qr(context.from_host(a)))
        expected = np.linalg.qr(a, "reduced" if mode == "economic" else "complete")[1]
        near(r, expected, 10)
        for q in first:
            assert_orthonormal(q)
            near(q @ r, a, 10)


@schedules
def test_qr_of_columns_that_are_done(context, schedule):
    """A column that is zero below the diagonal is not reflected, as in LAPACK; zeros and large numbers do no harm."""
    qr = QR(context, "float64", schedule=schedule)
    for a in (np.diag([1.0, -2, 3]), np.zeros((3, 2)), np.full((4, 3), 1e200) + np.eye(4, 3) * 1e200):
        q, r = map(np.asarray, qr(context.from_host(a)))
        expected = np.linalg.qr(a, "complete")[1]
        near(r / np.abs(a).max(initial=1), expected / np.abs(a).max(initial=1))
        assert_orthonormal(q)


@dtypes
def test_matrices_in_the_lanes_of_vectors(context, rng, dtype):
    """Lanes do not depend on each other: zero, diagonal, huge, and undefined matrices among others; any strides."""
    qr, svd = QR(context, dtype, schedule="cpu"), SVD(context, dtype, schedule="cpu")
    eigen = SymmetricEigen(context, dtype, schedule="cpu")
    a = rng.normal(size=(37, 5, 5))
    a += swapped(a)
    a[2], a[3], a[5], a[11] = 0, np.diag([1.0, -2, 3, 0, 5]), a[5] * 1e30, np.nan
    a = a.astype(dtype)
    good = np.delete(np.arange(37), 11)
    array = context.from_host(np.ascontiguousarray(np.moveaxis(a, 0, -1)))
    for given in (context.from_host(a), array.with_layout(array.layout.transpose((2, 0, 1)))):
        q, r = (np.asarray(v) for v in qr(given))
        u, s, vt = (np.asarray(v) for v in svd(given))
        w, v = (np.asarray(x) for x in eigen(given))
        assert all(np.isnan(x[11]).any() for x in (r, s, w))
        assert all("lanes" in routine._kernels for routine in (qr, svd, eigen, svd._householder))
        for k in good:
            scale = max(np.abs(a[k]).max(), 1e-30)
            near(r[k] / scale, np.linalg.qr(a[k])[1] / scale, 10)
            near(s[k] / scale, np.linalg.svd(a[k])[1] / scale, 10)
            near(w[k] / scale, np.linalg.eigvalsh(a[k]) / scale, 10)
            for product in (q[k] @ r[k], (u[k] * s[k]) @ vt[k], (v[k] * w[k]) @ v[k].T):
                near(product / scale, a[k] / scale, 10)
            for columns in (q[k], u[k], vt[k].T, v[k]):
                assert_orthonormal(columns)


@schedules
@dtypes
@pytest.mark.parametrize("full", [True, False], ids=["full", "thin"])
@pytest.mark.parametrize("kind", ["any", "rank one", "zero"])
def test_svd(context, rng, schedule, dtype, full, kind):
    svd = SVD(context, dtype, full_matrices=full, schedule=schedule)
    values_only = SVD(context, dtype, compute_uv=False, schedule=schedule)
    for batch, m, n in SHAPES:
        a = rng.normal(size=(*batch, m, n))
        if kind == "rank one":
            a = rng.normal(size=(*batch, m, 1)) @ rng.normal(size=(*batch, 1, n))
        a = (a * (kind != "zero")).astype(dtype)
        u, s, vt = map(np.asarray, svd(context.from_host(a)))
        expected = np.linalg.svd(a, full_matrices=full)
        assert [x.shape for x in (u, s, vt)] == [x.shape for x in expected]
        largest = expected[1].max(initial=0)
        near(s, expected[1], largest)
        near(np.asarray(values_only(context.from_host(a))[0]), expected[1], largest)
        assert_orthonormal(u)
        assert_orthonormal(swapped(vt))
        k = min(m, n)
        near((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], a, largest)


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_symmetric_eigenvalues(context, rng, schedule, dtype, lower):
    """The other triangle is not read; eigenvalues may be equal, negative and zero."""
    eigen = SymmetricEigen(context, dtype, lower=lower, schedule=schedule)
    values_only = SymmetricEigen(context, dtype, lower=lower, has_vectors=False, schedule=schedule)
    for batch, n in (((), 1), ((), 2), ((), 60), ((40,), 5), ((2, 3), 9), ((0,), 3), ((2,), 0)):
        x = rng.normal(size=(*batch, n, n))
        column = rng.normal(size=(*batch, n, 1))
        for a in (x + swapped(x), column @ swapped(column), np.broadcast_to(-3 * np.eye(n), x.shape)):
            a = a.astype(dtype)
            array = context.from_host(np.tril(a) if lower else np.triu(a))
            w, v = map(np.asarray, eigen(array))
            expected = np.linalg.eigvalsh(a)
            scale = np.abs(expected).max(initial=1)
            near(w, expected, scale)
            near(np.asarray(values_only(array)[0]), expected, scale)
            near(a @ v, v * w[..., None, :], scale)
            assert_orthonormal(v)
    with pytest.raises(ValueError, match="square"):
        eigen(context.from_host(np.ones((2, 3), dtype)))


@schedules
@dtypes
def test_eigenvalues_that_are_nearly_zero_differ(context, schedule, dtype):
    """Gradients divide by their differences; a covariance of a smooth process has many of them."""
    x = np.linspace(0, 1, 12)
    a = np.exp(-((x[:, None] - x) ** 2) / 2).astype(dtype)
    for batch in ((), (9,)):
        w, _ = SymmetricEigen(context, dtype, schedule=schedule)(
            context.from_host(np.broadcast_to(a, (*batch, 12, 12)))
        )
        assert (np.diff(np.asarray(w)) > 0).all()
        near(np.asarray(w), np.broadcast_to(np.linalg.eigvalsh(a.astype("float64")), (*batch, 12)), 12)


def extreme_matrices(rng, shape, dtype):
    """Matrices whose columns become tiny, or are from the start, and others whose squares cannot be represented."""
    m, n = shape
    kind = np.finfo(dtype)
    least, most = float(kind.smallest_subnormal), float(kind.max) / 16 / max(m, n)
    decades = {"float32": 37, "float64": 300}[dtype]
    a = rng.uniform(-1, 1, (m, n))
    yield "zeros", np.zeros((m, n))
    yield "ones", np.ones((m, n))
    yield "rank one", np.outer(rng.normal(size=m), rng.normal(size=n))
    yield "rank two", rng.normal(size=(m, 2)) @ rng.normal(size=(2, n))
    yield "columns that grow", a * np.logspace(-decades, decades - 1, n)
    yield "columns that shrink", a * np.logspace(decades - 1, -decades, n)
    yield "rows that shrink", a * np.logspace(decades - 1, -decades, m)[:, None]
    yield "subnormal", np.round(3 * a) * least
    yield "half subnormal", a * float(kind.smallest_normal)
    yield "huge", a * most
    yield "huge ones", np.ones((m, n)) * most


def assert_factors(factors, a, orthonormal, name):
    """Columns are orthonormal, and the product of the factors is the matrix, to rounding relative to its size."""
    size = sum(a.shape[-2:])
    eps = np.finfo(a.dtype).eps
    for columns in orthonormal:
        columns = columns.astype("float64")
        error = np.abs(swapped(columns) @ columns - np.eye(columns.shape[-1])).max(initial=0)
        assert error <= 4 * size * eps, (name, "orthogonality", error / eps)
    # Dividing by the largest element keeps products in the range of float64.
    least = float(np.finfo(a.dtype).smallest_subnormal)
    scale = max(np.abs(a).max(initial=0).astype("float64"), least)
    left, middle, right = (f.astype("float64") for f in factors)
    error = np.abs(left @ (middle / scale) @ right - a.astype("float64") / scale).max(initial=0)
    assert error <= 4 * size * (eps + least / scale), (name, "product", error / eps)


PATHS = (
    ((), (30, 30)),
    ((), (6, 4)),
    ((), (45, 70)),
    ((), (70, 45)),
    ((19,), (5, 5)),
    ((9,), (24, 17)),
    ((9,), (5, 12)),
)
"""Batches and shapes: one panel and several, blocks and lanes, wide and tall."""


@schedules
@dtypes
def test_extreme_matrices(context, rng, schedule, dtype):
    qr, svd = QR(context, dtype, schedule=schedule), SVD(context, dtype, schedule=schedule)
    eigen = SymmetricEigen(context, dtype, schedule=schedule)
    for batch, shape in PATHS:
        for name, matrix in extreme_matrices(rng, shape, dtype):
            a = np.broadcast_to(matrix, (*batch, *shape)).astype(dtype)
            array = context.from_host(np.ascontiguousarray(a))
            q, r = map(np.asarray, qr(array))
            identity = np.eye(shape[1])
            assert_factors((q, r, identity), a, (q,), (name, batch, shape, "QR"))
            u, s, vt = map(np.asarray, svd(array))
            k = min(shape)
            middle = s[..., None] * np.eye(k, dtype=dtype)
            assert_factors((u[..., :k], middle, vt[..., :k, :]), a, (u, swapped(vt)), (name, batch, shape, "SVD"))
            if shape[0] == shape[1]:
                symmetric = np.triu(a) + swapped(np.triu(a, 1))
                w, v = map(np.asarray, eigen(context.from_host(np.ascontiguousarray(symmetric))))
                middle = w[..., None] * np.eye(shape[0], dtype=dtype)
                assert_factors((v, middle, swapped(v)), symmetric, (v,), (name, batch, shape, "Eigen"))
    paths = {"cpu": {"rotate", "lanes", "panel"}, "simt": {"rotate", "panel"}}[schedule]
    assert paths <= {*svd._kernels, *svd._householder._kernels}
