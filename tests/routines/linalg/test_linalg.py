"""Cholesky factors and triangular systems, against SciPy."""

import numpy as np
import pytest
import scipy.linalg

from pytensor_cl.routines.base.routine import SCHEDULES
from pytensor_cl.routines.linalg.cholesky import Cholesky
from pytensor_cl.routines.linalg.lu import Determinant, Inverse, LUFactor, Solve
from pytensor_cl.routines.linalg.powers import Squares
from pytensor_cl.routines.linalg.triangular import TriangularSolve
from pytensor_cl.routines.linalg.tridiagonal import TridiagonalFactor, TridiagonalSolve

schedules = pytest.mark.parametrize("schedule", SCHEDULES)
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
TOLERANCE = {"float32": 2e-4, "float64": 1e-10}
SIZES = (1, 2, 3, 7, 16, 31, 32, 33, 64, 65, 100, 130, 300)


def positive(rng, shape, dtype):
    """Symmetric positive definite matrices whose condition does not grow with their size."""
    x = rng.normal(size=shape)
    return (x @ np.swapaxes(x, -1, -2) / shape[-1] + np.eye(shape[-1])).astype(dtype)


def triangle(rng, shape, dtype, lower):
    """Triangular matrices far from singular, with nonsense in the other triangle."""
    n = shape[-1]
    x = rng.normal(size=shape) / n + (1 + rng.random(shape)) * np.eye(n)
    other = np.triu(np.ones((n, n), bool), 1) if lower else np.tril(np.ones((n, n), bool), -1)
    return np.where(other, 1e9, x).astype(dtype)


def assert_near(got, expected, dtype):
    np.testing.assert_allclose(np.asarray(got), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], strict=True)


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_cholesky(context, rng, schedule, dtype, lower):
    cholesky = Cholesky(context, dtype, lower=lower, schedule=schedule)
    for n in SIZES:
        a = positive(rng, (n, n), dtype)
        # The other triangle is not read.
        given = np.where(
            np.tril(np.ones((n, n), bool)) if lower else np.triu(np.ones((n, n), bool)), a, dtype.count("x")
        )
        (got,) = cholesky(context.from_host(given.astype(dtype)))
        assert_near(got, scipy.linalg.cholesky(a, lower=lower), dtype)


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_cholesky_of_batches(context, rng, schedule, dtype, lower):
    cholesky = Cholesky(context, dtype, lower=lower, schedule=schedule)
    for batch, n in (((3,), 5), ((2, 40), 4), ((37,), 17), ((19,), 70), ((2, 2), 70), ((0,), 3), ((3,), 0)):
        a = positive(rng, (*batch, n, n), dtype)
        (got,) = cholesky(context.from_host(a))
        expected = np.linalg.cholesky(a)
        assert_near(got, expected if lower else np.swapaxes(expected, -1, -2), dtype)


@schedules
def test_cholesky_of_views_and_other_dtypes(context, rng, schedule):
    for count in (5, 37):
        a = positive(rng, (count, 9, 9), "float64")
        array = context.from_host(np.ascontiguousarray(np.moveaxis(a, 0, -1)))
        (got,) = Cholesky(context, "float64", schedule=schedule)(array.with_layout(array.layout.transpose((2, 0, 1))))
        assert_near(got, np.linalg.cholesky(a), "float64")
    whole = np.array([[4, 2], [2, 10]], "int32")
    (got,) = Cholesky(context, "float64", schedule=schedule)(context.from_host(whole))
    assert_near(got, np.linalg.cholesky(whole), "float64")


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_not_positive_definite(context, rng, schedule, dtype, lower):
    cholesky = Cholesky(context, dtype, lower=lower, schedule=schedule)
    for n, wrong in ((1, 0), (5, 0), (5, 4), (50, 20), (150, 149), (150, 3)):
        a = positive(rng, (19, n, n), dtype)
        a[3, wrong, wrong] = -1
        (got,) = cholesky(context.from_host(a))
        got = np.asarray(got)
        assert np.isnan(got[3]).all()
        expected = np.linalg.cholesky(np.delete(a, 3, 0))
        assert_near(np.delete(got, 3, 0), expected if lower else np.swapaxes(expected, -1, -2), dtype)


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
@pytest.mark.parametrize("unit_diagonal", [False, True], ids=["any", "unit"])
def test_triangular(context, rng, schedule, dtype, lower, unit_diagonal):
    flags = {"lower": lower, "unit_diagonal": unit_diagonal}
    solve = TriangularSolve(context, dtype, schedule=schedule, **flags)
    solve_vector = TriangularSolve(context, dtype, schedule=schedule, is_vector=True, **flags)
    for n in SIZES:
        a = triangle(rng, (n, n), dtype, lower)
        if unit_diagonal:
            a[np.arange(n), np.arange(n)] = 1e9
        for m in (None, 1, 3, 16, 40):
            b = rng.normal(size=(n,) if m is None else (n, m)).astype(dtype)
            (got,) = (solve_vector if m is None else solve)(context.from_host(a), context.from_host(b))
            assert_near(got, scipy.linalg.solve_triangular(a, b, **flags), dtype)


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_triangular_of_batches(context, rng, schedule, dtype, lower):
    cases = (
        ((6,), (6,), 5, 3),
        ((37,), (37,), 11, 1),
        ((37,), (37,), 11, None),
        ((), (50,), 20, None),
        ((), (50,), 90, None),
        ((2, 1), (3,), 40, 5),
        ((3,), (2, 1), 70, 4),
        ((4,), (), 7, 20),
        ((0,), (0,), 3, 2),
        ((2,), (2,), 0, 2),
    )
    for batch_a, batch_b, n, m in cases:
        a = triangle(rng, (*batch_a, n, n), dtype, lower)
        b = rng.normal(size=(*batch_b, n) if m is None else (*batch_b, n, m)).astype(dtype)
        solve = TriangularSolve(context, dtype, lower=lower, is_vector=m is None, schedule=schedule)
        (got,) = solve(context.from_host(a), context.from_host(b))
        dense = (np.tril(a) if lower else np.triu(a)).astype("float64")
        expected = np.linalg.solve(dense, b[..., None] if m is None else b).astype(dtype)
        assert_near(got, expected[..., 0] if m is None else expected, dtype)


@schedules
@dtypes
def test_views_of_triangles(context, rng, schedule, dtype):
    a, b = triangle(rng, (90, 90), dtype, True), rng.normal(size=(90, 6)).astype(dtype)
    matrix, right = context.from_host(np.ascontiguousarray(a.T)), context.from_host(np.ascontiguousarray(b.T))
    (got,) = TriangularSolve(context, dtype, schedule=schedule)(
        matrix.with_layout(matrix.layout.transpose()), right.with_layout(right.layout.transpose())
    )
    assert_near(got, scipy.linalg.solve_triangular(a, b, lower=True), dtype)


@schedules
@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_zero_on_the_diagonal(context, rng, schedule, dtype, lower):
    for n, m in ((4, 1), (4, 30), (100, 1), (100, 20)):
        a = triangle(rng, (21, n, n), dtype, lower)
        a[5, n - 1, n - 1] = 0
        b = rng.normal(size=(21, n, m)).astype(dtype)
        (got,) = TriangularSolve(context, dtype, lower=lower, schedule=schedule)(
            context.from_host(a), context.from_host(b)
        )
        assert np.array_equal(np.isnan(np.asarray(got)).any((1, 2)), np.arange(21) == 5)
        assert np.isnan(np.asarray(got)[5]).all()


def test_shapes_that_do_not_fit(context):
    matrix, wide = context.from_host(np.eye(3)), context.from_host(np.ones((3, 4)))
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        Cholesky(context, "float64")(wide)
    with pytest.raises(ValueError, match="square"):
        TriangularSolve(context, "float64")(wide, wide)
    with pytest.raises(ValueError, match="incompatible"):
        TriangularSolve(context, "float64")(matrix, context.from_host(np.ones((4, 2))))


def general(rng, shape, dtype):
    """Matrices that need pivoting, and are not near to singular."""
    x = rng.normal(size=shape) + 2 * np.eye(shape[-1])[::-1]
    return x.astype(dtype)


@schedules
@dtypes
def test_lu_factors(context, rng, schedule, dtype):
    factor = LUFactor(context, dtype, schedule)
    for m, n in (*((n, n) for n in (1, 2, 5, 33, 64, 65, 100, 170)), (5, 8), (8, 5), (100, 70), (20, 130), (130, 20)):
        a = general(rng, (max(m, n),) * 2, dtype)[:m, :n].copy()
        lu, pivots = map(np.asarray, factor(context.from_host(a)))
        steps = min(m, n)
        assert pivots.shape == (steps,)
        lower, upper = np.tril(lu, -1)[:, :steps] + np.eye(m, steps), np.triu(lu)[:steps]
        assert pivots.dtype == np.int32 and np.abs(lower).max() <= 1 + 1e-5
        order = np.arange(m)
        for k, p in enumerate(pivots):
            order[[k, p]] = order[[p, k]]
        np.testing.assert_allclose(lower @ upper, a[order], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * n)


@schedules
def test_lu_factors_of_rectangles_in_batches(context, rng, schedule):
    """A zero pivot gives NaN in its matrix only; there may be a pivot for each row."""
    factor, whole = (
        LUFactor(context, "float64", schedule, marks_singular=is_marked, pivots_of_rows=not is_marked)
        for is_marked in (True, False)
    )
    for shape in ((2, 9, 4, 7), (19, 7, 4), (3, 5, 0), (3, 0, 5), (0, 3, 4)):
        a = rng.normal(size=shape)
        if a.size:
            a[-1, ..., 1] = 0
            a[-1, ..., 1, :] = 0
        lu, pivots = map(np.asarray, factor(context.from_host(a)))
        every, all_pivots = map(np.asarray, whole(context.from_host(a)))
        m, n = shape[-2:]
        assert (pivots.shape, all_pivots.shape) == ((*shape[:-2], min(m, n)), shape[:-1])
        if a.size:
            assert np.isnan(lu[-1]).all()
        for index in np.ndindex(shape[:-2]):
            np.testing.assert_array_equal(all_pivots[index][n:], np.arange(m)[n:])
            if not a.size or (a.ndim, index[0]) != (a.ndim, shape[0] - 1):
                np.testing.assert_allclose(lu[index], every[index])
                expected = scipy.linalg.lu(a[index], p_indices=True)
                for got, part in zip((np.tril(every[index], -1), np.triu(every[index])), expected[1:], strict=True):
                    rows, columns = part.shape
                    np.testing.assert_allclose(got[:rows, :columns], part - np.eye(*part.shape) * (part is expected[1]))


@dtypes
def test_lu_factors_in_lanes(context, rng, dtype):
    """Each lane has pivots of its own; one of the matrices is zero, one has a pivot whose inverse would overflow."""
    factor = LUFactor(context, dtype, "cpu", marks_singular=False)
    for count, n in ((37, 17), (40, 4), (16, 64)):
        a = general(rng, (count, n, n), dtype)
        a[1] = 0
        a[2] *= np.finfo(dtype).tiny
        array = context.from_host(a)
        for view, host in ((array, a), (array.with_layout(array.layout.transpose((0, 2, 1))), a.swapaxes(1, 2))):
            lu, pivots = map(np.asarray, factor(view))
            rows = np.arange(count)
            order = np.tile(np.arange(n), (count, 1))
            for k in range(n):
                order[rows, k], order[rows, pivots[:, k]] = order[rows, pivots[:, k]], order[rows, k].copy()
            lower, upper = np.tril(lu, -1) + np.eye(n), np.triu(lu)
            assert np.abs(lower).max() <= 1.01
            permuted = host[rows[:, None], order]
            scale = np.maximum(np.abs(host).max((1, 2), keepdims=True), np.finfo(dtype).tiny)
            np.testing.assert_allclose(lower @ upper / scale, permuted / scale, atol=10 * TOLERANCE[dtype])


@schedules
@dtypes
def test_solutions(context, rng, schedule, dtype):
    for batch_a, batch_b, n, m in (((), (), 1, 1), ((), (), 5, None), ((7,), (7,), 6, 2), ((2, 1), (3,), 70, 4)):
        a = general(rng, (*batch_a, n, n), dtype)
        b = rng.normal(size=(*batch_b, n) if m is None else (*batch_b, n, m)).astype(dtype)
        (got,) = Solve(context, dtype, is_vector=m is None, schedule=schedule)(
            context.from_host(a), context.from_host(b)
        )
        right = b[..., None] if m is None else b
        expected = np.linalg.solve(a.astype("float64"), right).astype(dtype)
        got = np.asarray(got).reshape(expected.shape)
        np.testing.assert_allclose(got, expected, rtol=50 * TOLERANCE[dtype], atol=50 * TOLERANCE[dtype])


@schedules
def test_singular_matrices(context, rng, schedule):
    a = general(rng, (20, 6, 6), "float64")
    a[4] = 0
    (got,) = Solve(context, "float64", schedule=schedule)(context.from_host(a), context.from_host(np.ones((20, 6, 2))))
    assert np.array_equal(np.isnan(np.asarray(got)).all((1, 2)), np.arange(20) == 4)
    for n, m in ((3, 1), (40, 40), (70, 2)):
        single = general(rng, (n, n), "float64")
        single[:, n // 2] = 0
        (got,) = Solve(context, "float64", schedule=schedule)(*map(context.from_host, (single, np.ones((n, m)))))
        assert np.isnan(np.asarray(got)).all()
    lu, _ = LUFactor(context, "float64", schedule)(context.from_host(a))
    assert np.array_equal(np.isnan(np.asarray(lu)).all((1, 2)), np.arange(20) == 4)
    inverse = Inverse(context, "float64", schedule)
    inverse(context.from_host(a))
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        inverse.check()


@schedules
@dtypes
def test_determinants_and_inverses(context, rng, schedule, dtype):
    for shape in ((1, 1), (6, 6), (9, 5, 5), (2, 3, 70, 70), (4, 0, 0)):
        a = general(rng, shape, dtype) / 8
        wide = a.astype("float64")
        (got,) = Determinant(context, dtype, schedule=schedule)(context.from_host(a))
        expected = np.linalg.det(wide)
        np.testing.assert_allclose(np.asarray(got), expected.astype(dtype), rtol=100 * TOLERANCE[dtype])
        parts = Determinant(context, dtype, in_parts=True, schedule=schedule)(context.from_host(a))
        for part, wanted in zip(parts, np.linalg.slogdet(wide), strict=True):
            np.testing.assert_allclose(np.asarray(part), wanted, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
        inverse = Inverse(context, dtype, schedule)
        (got,) = inverse(context.from_host(a))
        inverse.check()
        expected = np.linalg.inv(wide)
        scale = np.abs(expected).max(initial=1)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1, atol=100 * TOLERANCE[dtype] * scale)


@schedules
@dtypes
@pytest.mark.parametrize("transposed", [False, True])
def test_tridiagonal_systems(context, rng, schedule, dtype, transposed):
    """Small pivots, so that rows are interchanged; against dense systems, and the factors against LAPACK's."""
    factor = TridiagonalFactor(context, dtype, schedule=schedule)
    gttrf = scipy.linalg.get_lapack_funcs("gttrf", dtype=np.dtype(dtype))
    for batch, n, m in (((), 1, 2), ((), 2, 1), ((), 40, 3), ((5,), 3, 2), ((2, 30), 9, 4), ((0,), 3, 1)):
        low, up = (rng.uniform(1, 2, (*batch, n - 1)).astype(dtype) for _ in range(2))
        middle = rng.uniform(-1, 1, (*batch, n)).astype(dtype)
        b = rng.normal(size=(*batch, n, m)).astype(dtype)
        parts = factor(*map(context.from_host, (low, middle, up)))
        dense = np.zeros((*batch, n, n), dtype)
        i = np.arange(n)
        dense[..., i, i], dense[..., i[1:], i[:-1]], dense[..., i[:-1], i[1:]] = middle, low, up
        if not batch and n > 2:
            for got, expected in zip(parts, gttrf(low, middle, up), strict=False):
                np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-4)
        solve = TridiagonalSolve(context, dtype, transposed=transposed, schedule=schedule)
        (x,) = solve(*parts, context.from_host(b))
        matrix = np.swapaxes(dense, -1, -2) if transposed else dense
        np.testing.assert_allclose(
            matrix @ np.asarray(x), b, rtol=0, atol=np.abs(np.asarray(x)).max(initial=1) * TOLERANCE[dtype]
        )
    with pytest.raises(ValueError, match="lengths"):
        factor(*(context.from_host(np.ones(3, dtype)) for _ in range(3)))


@schedules
@dtypes
def test_repeated_squares(context, rng, schedule, dtype):
    squares = Squares(context, dtype, schedule=schedule)
    for batch, n in (((), 4), ((3,), 1), ((2, 3), 9), ((0,), 2)):
        x = (rng.normal(size=(*batch, n, n)) / n).astype(dtype)
        counts = rng.integers(0, 5, batch).astype("int32")
        expected = np.empty_like(x)
        for k in np.ndindex(*batch):
            expected[k] = np.linalg.matrix_power(x[k], 2 ** int(counts[k]))
        (got,) = squares(context.from_host(x), context.from_host(counts))
        assert_near(got, expected, dtype)


@schedules
@dtypes
def test_determinants_that_overflow_or_vanish(context, rng, schedule, dtype):
    """The logarithm is exact where the determinant is infinite or zero; a zero pivot has sign zero."""
    limits = np.finfo(dtype)
    a = general(rng, (6, 5, 5), dtype)
    a *= np.array([limits.max / 1e3, limits.tiny * 1e3, 0, 1, -1, 1e-3], dtype)[:, None, None]
    a[3, :, 1] = 0
    sign, log = Determinant(context, dtype, in_parts=True, schedule=schedule)(context.from_host(a))
    (got,) = Determinant(context, dtype, schedule=schedule)(context.from_host(a))
    with np.errstate(all="ignore"):
        signs, logs = np.linalg.slogdet(a)
        expected = np.linalg.det(a)
    np.testing.assert_array_equal(np.asarray(sign), signs)
    np.testing.assert_allclose(np.asarray(log), logs, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-3)


@schedules
@dtypes
@pytest.mark.parametrize("scale", ["tiny", "huge"])
def test_systems_of_tiny_and_huge_matrices(context, rng, schedule, dtype, scale):
    """Elements of a diagonal whose inverse is no normal number; the residuals are rounding errors."""
    kind = np.finfo(dtype)
    routines = [make(context, dtype, schedule=schedule) for make in (TriangularSolve, Solve)]
    for batch, n, m in (((), 5, 1), ((), 20, 40), ((19,), 6, 3), ((), 90, 2)):
        size = {"tiny": float(kind.smallest_normal) / 16, "huge": float(kind.max) / 8 / n}[scale]
        lower = np.tril(rng.normal(size=(*batch, n, n)), -1) / n + rng.uniform(0.5, 1, (*batch, n, 1)) * np.eye(n)
        whole = rng.normal(size=(*batch, n, n)) / 4 / np.sqrt(n) + np.eye(n)
        x = rng.uniform(-1, 1, (*batch, n, m))
        for routine, matrix in zip(routines, (lower, whole), strict=True):
            a, b = (matrix * size).astype(dtype), (matrix @ x * size).astype(dtype)
            (got,) = (np.asarray(v, "float64") for v in routine(*map(context.from_host, (a, b))))
            residual = (a / np.float64(size)) @ got - b / np.float64(size)
            error = np.finfo(dtype).eps + float(kind.smallest_subnormal) / size
            assert np.abs(residual).max() <= 8 * n * error * max(1, np.abs(got).max())
        factor = Cholesky(context, dtype, schedule=schedule)
        symmetric = positive(rng, (*batch, n, n), "float64")
        a = (symmetric * (size / 4)).astype(dtype)
        (got,) = (np.asarray(v, "float64") / np.sqrt(size) for v in factor(context.from_host(a)))
        assert np.abs(got @ np.swapaxes(got, -1, -2) - a / np.float64(size)).max() <= 8 * n * error
