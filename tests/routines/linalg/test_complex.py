"""Linear algebra of complex matrices, against NumPy in double precision: residuals where factors are not unique."""

import numpy as np
import pytest
import scipy.linalg

from pytensor_cl.routines.linalg.cholesky import Cholesky, PositiveSolve
from pytensor_cl.routines.linalg.jacobi import SVD, SymmetricEigen
from pytensor_cl.routines.linalg.lu import Determinant, Inverse, LUFactor, Solve
from pytensor_cl.routines.linalg.qr import QR
from pytensor_cl.routines.linalg.triangular import TriangularSolve

kinds = pytest.mark.parametrize(("schedule", "dtype"), [("cpu", "complex128"), ("simt", "complex64")])
SHAPES = ((1, 1), (3, 5, 5), (70, 70), (2, 0, 0), (0, 3, 3))


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def general(rng, shape, dtype):
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def positive(rng, shape, dtype):
    x = general(rng, shape, "complex128")
    return (x @ adjoint(x) / max(1, shape[-1]) + np.eye(shape[-1])).astype(dtype)


def run(context, routine, *arrays):
    """Return the results of complex kernels, as arrays of the host."""
    results = [np.asarray(v) for v in routine(*map(context.from_host, arrays))]
    assert "complex_" in routine.sources()[-1].name
    return results


def near(dtype, got, expected, scale=1.0):
    """Equal to a multiple of the rounding error of a dtype, relative to a scale."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    error = np.abs(got - expected).max(initial=0)
    limit = 50 * max((10, *got.shape)) * np.finfo(dtype).eps * max(1.0, np.abs(expected).max(initial=0), scale)
    assert error <= limit, (error, limit)


def assert_unitary(q):
    near(q.dtype, adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], *[q.shape[-1]] * 2)))


@kinds
def test_hermitian_and_triangular_systems(context, rng, schedule, dtype):
    for lower in (True, False):
        factor = Cholesky(context, dtype, lower=lower, schedule=schedule)
        solve = PositiveSolve(context, dtype, lower=lower, schedule=schedule)
        triangles = [
            TriangularSolve(context, dtype, lower=lower, unit_diagonal=unit, conjugated=not unit, schedule=schedule)
            for unit in (False, True)
        ]
        for shape in SHAPES:
            a, n = positive(rng, shape, dtype), shape[-1]
            b = general(rng, (*shape[:-1], 19), dtype)
            # Neither the other triangle nor imaginary parts of the diagonal are read.
            given = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a + 7j * np.eye(n), np.nan)
            expected = np.linalg.cholesky(a.astype("complex128"))
            near(dtype, *run(context, factor, given.astype(dtype)), expected if lower else adjoint(expected))
            near(dtype, a @ run(context, solve, given.astype(dtype), b)[0], b)
            t = 2 * np.eye(n) + (np.tril(a) if lower else np.triu(a)) / 8 + 1j * np.eye(n)
            for triangle, unit in zip(triangles, (False, True), strict=True):
                dense = t - np.eye(n) * t + np.eye(n) if unit else np.conj(t)
                near(dtype, dense @ run(context, triangle, t.astype(dtype), b)[0], b)
        wrong = positive(rng, (3, 40, 40), dtype)
        wrong[1, 37, 37] = -1
        (got,) = run(context, factor, wrong)
        assert np.array_equal(np.isnan(got).all((1, 2)), [False, True, False])


@kinds
def test_general_systems(context, rng, schedule, dtype):
    inverse = Inverse(context, dtype, schedule=schedule)
    vector, matrix = (Solve(context, dtype, is_vector=v, schedule=schedule) for v in (True, False))
    parts, lu = Determinant(context, dtype, in_parts=True, schedule=schedule), LUFactor(context, dtype, schedule)
    for shape in SHAPES:
        a, b = general(rng, shape, dtype), general(rng, (*shape[:-1], 3), dtype)
        wide = a.astype("complex128")
        x, y, inverted = *run(context, matrix, a, b), *run(context, vector, a, b[..., 0]), *run(context, inverse, a)
        near(dtype, wide @ x, b, 10 * np.abs(x).max(initial=0))
        near(dtype, (wide @ y[..., None])[..., 0], b[..., 0], 10 * np.abs(y).max(initial=0))
        inverse.check()
        near(dtype, wide @ inverted, np.broadcast_to(np.eye(shape[-1]), shape), 10 * np.abs(inverted).max(initial=0))
        sign, logarithm = run(context, parts, a)
        assert sign.dtype == dtype and logarithm.dtype == sign.real.dtype
        expected = np.linalg.slogdet(wide)
        scale = np.linalg.cond(wide).max() if a.size else 1
        near(dtype, sign, expected[0], scale)
        near(dtype, logarithm, expected[1], scale)
        (got,) = run(context, Determinant(context, dtype, schedule=schedule), a / 4)
        near(dtype, got, np.linalg.det(wide / 4), scale)
    factors, pivots = run(context, lu, a := general(rng, (45, 45), dtype))
    expected, wanted = scipy.linalg.lu_factor(a)
    assert np.array_equal(pivots, wanted)
    near(dtype, factors, expected)


@kinds
def test_singular_and_extreme_matrices(context, rng, schedule, dtype):
    """The same errors as of real matrices; powers of two change no digit."""
    a = general(rng, (3, 35, 35), dtype)
    a[1, 7] = 0
    inverse, solve = Inverse(context, dtype, schedule=schedule), Solve(context, dtype, schedule=schedule)
    run(context, inverse, a)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        inverse.check()
    assert np.array_equal(np.isnan(run(context, solve, a, a)[0]).all((1, 2)), [False, True, False])
    parts = Determinant(context, dtype, in_parts=True, schedule=schedule)
    sign, logarithm = run(context, parts, a)
    assert sign[1] == 0 and logarithm[1] == -np.inf and np.isfinite(logarithm[[0, 2]]).all()
    assert np.isnan(run(context, parts, np.full((2, 2), np.nan, dtype))[1])
    small = general(rng, (6, 6), dtype)
    routines = [kind(context, dtype, schedule=schedule) for kind in (QR, SVD, SymmetricEigen)]
    power = 2.0 ** (100 if dtype == "complex64" else 1000)
    for scale in (power, 1 / power):
        scaled = (small * scale).astype(dtype)
        near(dtype, run(context, solve, scaled, scaled)[0], np.eye(6), 10 * np.linalg.cond(small))
        got = np.asarray(run(context, parts, scaled)[1], "float64")
        near(dtype, got - 6 * np.log(scale), np.linalg.slogdet(small)[1], 6 * abs(np.log(scale)))
        (q, r), (u, s, vh), (w, _) = (run(context, routine, scaled) for routine in routines)
        for factor in (q, u, vh):
            assert_unitary(factor)
        near(dtype, r / scale, np.linalg.qr(small)[1])
        near(dtype, s / scale, np.linalg.svd(small)[1])
        near(dtype, w / scale, np.linalg.eigvalsh(small))
    # Badly conditioned columns do not spoil the residual.
    graded = general(rng, (24, 24), dtype) * np.logspace(0, -5, 24).astype(s.dtype)
    (x,) = run(context, solve, graded, b := general(rng, (24, 1), dtype))
    near(dtype, graded.astype("complex128") @ x, b, np.abs(graded * x[:, 0]).max())


@kinds
def test_orthogonal_factors(context, rng, schedule, dtype):
    qr = {mode: QR(context, dtype, mode, schedule=schedule) for mode in ("full", "economic", "r")}
    svd = [SVD(context, dtype, full_matrices=full, schedule=schedule) for full in (True, False)]
    values_alone = SVD(context, dtype, compute_uv=False, schedule=schedule)
    low_rank = general(rng, (9, 2), dtype) @ general(rng, (2, 6), dtype)
    shapes = ((1, 1), (3, 5, 5), (45, 20), (4, 7), (2, 0, 3), (2, 3, 0), (0, 3, 3))
    for a in (*(general(rng, shape, dtype) for shape in shapes), low_rank, np.zeros((4, 3), dtype)):
        wide = a.astype("complex128")
        for mode, routine in qr.items():
            *first, r = run(context, routine, a)
            if not np.linalg.matrix_rank(a).min(initial=9) < min(a.shape[-2:]):
                near(dtype, r, np.linalg.qr(wide, "reduced" if mode == "economic" else "complete")[1])
            for q in first:
                assert_unitary(q)
                near(dtype, q @ r, a)
        expected = np.linalg.svd(wide, compute_uv=False)
        near(dtype, *run(context, values_alone, a), expected)
        for routine in svd:
            u, s, vh = run(context, routine, a)
            k = s.shape[-1]
            near(dtype, s, expected)
            near(dtype, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
            assert_unitary(u)
            assert_unitary(adjoint(vh))


@kinds
def test_eigenvalues(context, rng, schedule, dtype):
    """Also of one value that is repeated, and of matrices of low rank."""
    unitary = np.linalg.qr(general(rng, (20, 20), dtype))[0]
    repeated = (unitary * np.repeat([-1.0, 3.0], 10)) @ adjoint(unitary)
    vector = general(rng, (9, 1), dtype)
    whole = [general(rng, shape, dtype) for shape in ((1, 1), (3, 6, 6), (37, 37), (0, 2, 2), (2, 0, 0))]
    for a in (*(x + adjoint(x) for x in whole), repeated.astype(dtype), vector @ adjoint(vector)):
        for lower in (True, False):
            given = np.tril(a) if lower else np.triu(a)
            w, v = run(context, SymmetricEigen(context, dtype, lower=lower, schedule=schedule), given)
            near(dtype, w, np.linalg.eigvalsh(a.astype("complex128")))
            near(dtype, a @ v, v * w[..., None, :], np.abs(w).max(initial=1))
            assert_unitary(v)
