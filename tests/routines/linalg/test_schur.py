"""Schur forms, eigenvectors and Sylvester's equation: residuals, and eigenvalues against LAPACK."""

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import linear_sum_assignment

from pytensor_cl.routines.linalg.schur import Eigen, Schur
from pytensor_cl.routines.linalg.sylvester import TriangularSylvester
from tests.helpers import sweep

KINDS = (("cpu", "float64"), ("simt", "float32"), ("cpu", "complex128"), ("simt", "complex64"))
kinds = sweep(("schedule", "dtype"), KINDS, KINDS[1:3])


def general(rng, shape, dtype):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def run(context, routine, *arrays):
    """Return the results, as arrays of the host, from the kernel of the dtype."""
    results = [np.asarray(v) for v in routine(*map(context.from_host, arrays))]
    (source,) = routine.sources()
    assert source.name.startswith("linalg_complex_" if routine.is_complex else "linalg_s")
    return results


def assert_small(dtype, residual, scale, n):
    """A residual is a small multiple of ``n * eps * |A|``."""
    error, limit = np.abs(residual).max(initial=0), 10 * max(n, 2) * np.finfo(dtype).eps * max(scale, 1e-300)
    assert error <= limit, (error, limit)


def hard_matrices(rng, dtype):
    """Matrices whose eigenvalues are repeated, defective, graded, symmetric, or of extreme size."""
    block = general(rng, (10, 10), dtype)
    block[6:, :6] = 0
    power = 1e30 if dtype in ("float32", "complex64") else 1e280
    huge, tiny = general(rng, (6, 6), dtype) * power, general(rng, (6, 6), dtype) / power
    graded = general(rng, (8, 8), dtype) * np.logspace(0, -9, 8)[:, None]
    skew, sparse = general(rng, (999, 3, 3), dtype), rng.random((99, 18, 18)) < 0.15
    special = [
        *(np.zeros((4, 4)), np.eye(5), np.eye(6, k=1), np.eye(6, k=-1), np.ones((5, 5)), np.diag([3.0, 1, 2])),
        *(2 * np.eye(8) + np.eye(8, k=1), np.roll(np.eye(8), 1, 0), np.array([[0, 1], [-1, 0]])),
        *(scipy.linalg.companion(np.poly(np.arange(1, 7))), np.array([[1, -1], [1, 1 + 1e-12]])),
        *(
            block,
            np.triu(general(rng, (7, 7), dtype)),
            np.tril(general(rng, (7, 7), dtype)),
            graded,
            huge,
            tiny,
            skew - adjoint(skew),
            sparse,
        ),
    ]
    return [m.astype(dtype) for m in special]


def size_of(a):
    """The largest element, or one: residuals are divided by it, so that they neither overflow nor vanish."""
    return np.abs(a).max(initial=0) or 1.0


def assert_schur_form(dtype, a, t, z):
    n = a.shape[-1]
    scale = np.linalg.norm(a / size_of(a), axis=(-2, -1)).max(initial=0)
    size = size_of(a)
    assert_small(dtype, z @ (t / size) @ adjoint(z) - a / size, scale, n)
    assert_small(dtype, adjoint(z) @ z - np.eye(n), 1, n)
    below, above = (np.diagonal(t, k, -2, -1) for k in (-1, 1))
    if np.dtype(dtype).kind == "c":
        assert not np.tril(t, -1).any()
        return
    assert not np.tril(t, -2).any()
    assert not ((below[..., 1:] != 0) & (below[..., :-1] != 0)).any()
    diagonal, is_pair = np.diagonal(t, 0, -2, -1), below != 0
    assert np.array_equal(diagonal[..., 1:][is_pair], diagonal[..., :-1][is_pair])
    assert np.array_equal(np.sign(below[is_pair]), -np.sign(above[is_pair]))


def assert_eigenvectors(dtype, a, w, v):
    n, size = a.shape[-1], size_of(a)
    scale = np.linalg.norm(a / size, axis=(-2, -1)).max(initial=0)
    assert w.dtype == v.dtype == np.result_type(dtype, "complex64")
    assert_small(dtype, (a / size) @ v - v * (w / size)[..., None, :], scale, n)
    assert_small(dtype, np.linalg.norm(v, axis=-2) - 1, 1, n)
    if np.dtype(dtype).kind == "f":  # real values and vectors, and conjugate pairs, without a rounding error
        is_real = w.imag == 0
        assert not np.moveaxis(v, -2, -1)[is_real].imag.any()
        pairs = w[~is_real].reshape(-1, 2)
        assert np.array_equal(pairs[:, 0], np.conj(pairs[:, 1])) and (pairs[:, 0].imag > 0).all()
    lengths = np.abs(v)
    is_large = lengths > 0.99 * lengths.max(-2, initial=0, keepdims=True)
    assert not np.where(is_large, np.abs(v.imag), 1).min(-2, initial=1).any()


def assert_same_values(dtype, a, found, scale):
    for one, given in zip(found.reshape(-1, a.shape[-1]), a.reshape(-1, *a.shape[-2:]), strict=True):
        distance = np.abs(one[:, None] - np.linalg.eigvals(given.astype("complex128"))[None, :])
        assert_small(dtype, distance[linear_sum_assignment(distance)], scale, a.shape[-1])


@kinds
def test_schur_forms_and_eigenvectors(context, rng, schedule, dtype):
    if not context.info.has_fp64 and dtype in ("float64", "complex128"):
        pytest.skip("no double precision")
    schur, eigen = Schur(context, dtype, schedule), Eigen(context, dtype, schedule=schedule)
    values = Eigen(context, dtype, has_vectors=False, schedule=schedule)
    shapes = ((1, 1), (2, 2), (40, 3, 3), (2, 3, 9, 9), (45, 45), (2, 0, 0), (0, 3, 3))
    usual = [general(rng, shape, dtype) for shape in shapes]
    for number, a in enumerate((*usual, *hard_matrices(rng, dtype))):
        assert_schur_form(dtype, a, *run(context, schur, a))
        w, v = run(context, eigen, a)
        eigen.check()
        assert_eigenvectors(dtype, a, w, v)
        (alone,) = run(context, values, a)
        if number < len(usual) and a.size:  # others are ill-conditioned
            for found in (w, alone):
                assert_same_values(dtype, a, found, 100 * np.linalg.norm(a, axis=(-2, -1)).max())
    transposed = context.from_host(np.ascontiguousarray(np.swapaxes(usual[2], -1, -2)))
    view = transposed.with_layout(transposed.layout.transpose((0, 2, 1)))
    assert_schur_form(dtype, usual[2], *map(np.asarray, schur(view)))


@kinds
def test_what_cannot_be_decomposed(context, rng, schedule, dtype):
    """Elements that are not finite: NaN in Schur forms, an error of eigenvalues; other matrices are not touched."""
    if not context.info.has_fp64 and dtype in ("float64", "complex128"):
        pytest.skip("no double precision")
    a = general(rng, (5, 4, 4), dtype)
    a[1, 2, 0], a[3, 0, 1] = np.nan, np.inf
    t, z = run(context, Schur(context, dtype, schedule), a)
    for factor in (t, z):
        assert np.array_equal(np.isnan(factor).all((1, 2)), [False, True, False, True, False])
    assert_schur_form(dtype, a[::2], t[::2], z[::2])
    eigen = Eigen(context, dtype, schedule=schedule)
    w, v = run(context, eigen, a)
    with pytest.raises(np.linalg.LinAlgError, match="must not contain infs or NaNs"):
        eigen.check()
    assert np.isnan(w[1]).all() and np.isnan(v[3]).all()
    assert_eigenvectors(dtype, a[::2], w[::2], v[::2])
    for routine, error in ((eigen, np.linalg.LinAlgError), (Schur(context, dtype, schedule), ValueError)):
        with pytest.raises(error, match="square"):
            routine(context.from_host(a[..., 1:]))


@kinds
def test_triangular_sylvester_equations(context, rng, schedule, dtype):
    if not context.info.has_fp64 and dtype in ("float64", "complex128"):
        pytest.skip("no double precision")
    solve = TriangularSylvester(context, dtype, schedule)

    def triangle(count, n):
        forms = [scipy.linalg.schur(general(rng, (n, n), dtype) + 3 * np.eye(n))[0] for _ in range(count)]
        return np.array(forms, dtype).reshape(count, n, n)

    for count, m, n in ((1, 1, 1), (20, 3, 2), (3, 9, 14), (1, 40, 33), (2, 3, 0), (0, 2, 2)):
        a, b, c = triangle(count, m), triangle(1, n), general(rng, (count, m, n), dtype)
        (x,) = run(context, solve, a, b, c)
        scale = np.linalg.norm(x) * (np.linalg.norm(a) + np.linalg.norm(b)) + np.linalg.norm(c)
        assert_small(dtype, a @ x + x @ b - c, scale, max(m, n))
    single = np.eye(2, dtype=dtype)
    (x,) = run(context, solve, single, -single, single)  # the same eigenvalues: large, as of LAPACK
    (trsyl,) = scipy.linalg.get_lapack_funcs(("trsyl",), (single,))
    np.testing.assert_allclose(x, trsyl(single, -single, single)[0], rtol=1e-5)
    for shapes in (((2, 3), (2, 2), (2, 2)), ((2, 2), (3, 3), (2, 2))):
        with pytest.raises(ValueError, match="square|incompatible"):
            solve(*(context.from_host(np.ones(shape, dtype)) for shape in shapes))
