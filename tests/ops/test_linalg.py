"""Factors of matrices and solutions of linear systems in compiled functions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.linalg.solvers.linear_control import TRSYL
from pytensor.tensor.linalg.solvers.lstsq import lstsq, tensorsolve

import pytensor_cl
from pytensor_cl.ops.join import GpuJoin
from pytensor_cl.ops.linalg import (
    GpuCholesky,
    GpuCholeskySolve,
    GpuDet,
    GpuEig,
    GpuEigh,
    GpuEigvalsh,
    GpuLUFactor,
    GpuLUFactorTridiagonal,
    GpuMatrixInverse,
    GpuPivotToPermutations,
    GpuQR,
    GpuRepeatedSquares,
    GpuSchur,
    GpuSLogDet,
    GpuSolve,
    GpuSolveLUFactorTridiagonal,
    GpuSolveTriangular,
    GpuSVD,
    GpuTRSYL,
)
from tests.helpers import assert_close, assert_on_device, check_against_python, device_ops, host_ops, opencl

dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


def python(inputs, outputs):
    """Return a function of PyTensor's Python Ops, which needs no compiler."""
    with pytensor.config.change_flags(cxx=""):
        return pytensor.function(inputs, outputs, mode="FAST_COMPILE")


def positive(rng, *shape, dtype="float64"):
    x = rng.normal(size=shape)
    return (x @ np.swapaxes(x, -1, -2) / shape[-1] + np.eye(shape[-1])).astype(dtype)


@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_cholesky_and_its_gradient(context, rng, dtype, lower):
    a = pt.matrix("a", dtype=dtype)
    factor = pt.linalg.cholesky(a, lower=lower)
    cost = (factor * pt.arange(factor.size, dtype=dtype).reshape(factor.shape)).sum()
    values = [(positive(rng, n, n, dtype=dtype),) for n in (1, 5, 40)]
    f = check_against_python([a], [factor], (GpuCholesky,), *values)
    assert not any(type(n.op).__name__ == "Cholesky" for n in f.maker.fgraph.apply_nodes)
    gradient = opencl([a], pytensor.grad(cost, a))
    assert_on_device(gradient, GpuCholesky, GpuSolveTriangular)
    reference = python([a], pytensor.grad(cost, a))
    for (value,) in values:
        expected = reference(value)
        tolerance = 1e-4 if dtype == "float32" else 1e-10
        np.testing.assert_allclose(gradient(value), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@dtypes
@pytest.mark.parametrize("ndim", [1, 2])
def test_solvers_and_their_gradients(context, rng, dtype, ndim):
    a, b = pt.matrix("a", dtype=dtype), pt.tensor("b", dtype=dtype, shape=(None,) * ndim)
    factor = pt.linalg.cholesky(a)
    solutions = [
        pt.linalg.solve_triangular(factor, b, lower=True, b_ndim=ndim),
        pt.linalg.solve_triangular(factor, b, lower=True, trans="T", b_ndim=ndim),
        pt.linalg.solve_triangular(factor, b, lower=True, unit_diagonal=True, b_ndim=ndim),
        pt.linalg.cho_solve((factor, True), b, b_ndim=ndim),
    ]
    cost = sum(pt.sqr(s).sum() for s in solutions)
    outputs = [*solutions, *pytensor.grad(cost, [a, b])]
    f = opencl([a, b], outputs)
    assert_on_device(f, GpuCholesky, GpuSolveTriangular)
    reference = python([a, b], outputs)
    for n, m in ((1, 1), (6, 3), (70, 5)):
        values = positive(rng, n, n, dtype=dtype), rng.normal(size=(n, m)[:ndim]).astype(dtype)
        for _ in range(4):  # the last ones replay
            for got, expected in zip(f(*values), reference(*values), strict=True):
                tolerance = 1e-3 if dtype == "float32" else 1e-9
                np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_upper_cholesky_solve(context, rng):
    c, b = pt.dmatrix("c"), pt.dvector("b")
    upper = np.ascontiguousarray(np.linalg.cholesky(positive(rng, 9, 9)).T)
    outputs = [pt.linalg.cho_solve((c, False), b, b_ndim=1)]
    check_against_python([c, b], outputs, (GpuCholeskySolve,), (upper, rng.normal(size=9)))


def test_multivariate_normal_of_many_chains(context, rng):
    """The log density of every chain, by `vectorize_graph`; a chain whose matrix is not positive definite gets NaN."""
    x, mean, covariance = pt.dvector("x"), pt.dvector("mean"), pt.dmatrix("covariance")
    factor = pt.linalg.cholesky(covariance)
    z = pt.linalg.solve_triangular(factor, x - mean, lower=True, b_ndim=1)
    density = -0.5 * pt.sqr(z).sum() - pt.log(pt.diagonal(factor)).sum()
    means, covariances = pt.dmatrix("means"), pt.dtensor3("covariances")
    batched = vectorize_graph([density], {mean: means, covariance: covariances})
    outputs = [*batched, *pytensor.grad(batched[0].sum(), [means, covariances])]
    f = opencl([x, means, covariances], outputs)
    assert_on_device(f, GpuCholesky, GpuSolveTriangular)
    values = rng.normal(size=5), rng.normal(size=(60, 5)), positive(rng, 60, 5, 5)
    reference = python([x, means, covariances], outputs)
    for got, expected in zip(f(*values), reference(*values), strict=True):
        assert_close(got, expected, rtol=1e-9)
    values[2][7] = -np.eye(5)
    assert np.array_equal(np.isnan(f(*values)[0]), np.arange(60) == 7)


def test_batches_are_not_broadcast_at_run_time(context, rng):
    a, b = pt.dtensor3("a"), pt.dtensor3("b")
    f = opencl([a, b], pt.linalg.solve_triangular(a, b, lower=True))
    matrices = np.linalg.cholesky(positive(rng, 3, 4, 4))
    assert f(matrices, rng.normal(size=(3, 4, 2))).shape == (3, 4, 2)
    with pytest.raises(ValueError, match="no run-time broadcasting"):
        f(matrices, rng.normal(size=(1, 4, 2)))
    fixed = pt.tensor("fixed", shape=(1, None, None), dtype="float64")
    g = opencl([a, fixed], pt.linalg.solve_triangular(a, fixed, lower=True))
    right = rng.normal(size=(1, 4, 2))
    assert_close(g(matrices, right), np.linalg.solve(matrices, right), rtol=1e-10)


def test_wrong_shapes_and_integers(context, rng):
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    with pytest.raises(ValueError, match="square"):
        opencl([a], pt.linalg.cholesky(a))(np.ones((3, 4)))
    with pytest.raises(ValueError, match="incompatible"):
        opencl([a, b], pt.linalg.solve_triangular(a, b))(np.eye(3), np.ones((4, 2)))
    i = pt.lmatrix("i")
    check_against_python([i], [pt.linalg.cholesky(i)], (GpuCholesky,), (np.array([[4, 2], [2, 10]]),))


@dtypes
@pytest.mark.parametrize("structure", ["gen", "pos"])
def test_solve(context, rng, dtype, structure):
    a, b = pt.matrix("a", dtype=dtype), pt.matrix("b", dtype=dtype)
    solution = pt.linalg.solve(a, b, assume_a=structure, b_ndim=2)
    f = opencl([a, b], solution)
    assert_on_device(f, *((GpuSolve,) if structure == "gen" else (GpuCholesky, GpuCholeskySolve)))
    outputs = pytensor.grad(pt.sqr(solution).sum(), [a, b])
    gradient, reference = opencl([a, b], outputs), python([a, b], outputs)
    for n, m in ((1, 1), (7, 3), (80, 2)):
        values = positive(rng, n, n, dtype=dtype), rng.normal(size=(n, m)).astype(dtype)
        assert_close(f(*values), np.linalg.solve(*values), rtol=1e-3 if dtype == "float32" else 1e-9)
        for got, expected in zip(gradient(*values), reference(*values), strict=True):
            tolerance = 1e-3 if dtype == "float32" else 1e-9
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@dtypes
def test_determinants_inverses_and_factors(context, rng, dtype):
    a = pt.tensor3("a", dtype=dtype)
    value = (rng.normal(size=(6, 5, 5)) + 2 * np.eye(5)[::-1]).astype(dtype)
    # Each in a function of its own: of two in one graph PyTensor computes one from the other.
    cases = {
        GpuDet: [pt.linalg.det(a)],
        GpuSLogDet: [*pt.linalg.slogdet(a)],
        GpuMatrixInverse: [pt.linalg.inv(a)],
        GpuLUFactor: [*pt.linalg.lu_factor(a)],
    }
    for kind, outputs in cases.items():
        f = opencl([a], outputs)
        assert_on_device(f, kind)
        for got, expected in zip(f(value), python([a], outputs)(value), strict=True):
            tolerance = 2e-4 if dtype == "float32" else 1e-10
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_permutations_of_pivots(context, rng):
    p = pt.ivector("p")
    outputs = [pt.linalg.decomposition.lu.pivot_to_permutation(p, inverse=flag) for flag in (False, True)]
    pivots = np.array([3, 1, 4, 3, 4], "int32")
    f = check_against_python([p], outputs, (GpuPivotToPermutations,), (pivots,))
    with pytest.raises(IndexError, match="out of bounds"):
        f(np.array([3, 1, 9, 3, 4], "int32"))


def test_a_singular_matrix_has_no_inverse(context):
    a = pt.dmatrix("a")
    f = opencl([a], pt.linalg.inv(a))
    assert_on_device(f, GpuMatrixInverse)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        f(np.ones((3, 3)) * 0)
    assert_close(f(np.eye(3) * 2), np.eye(3) / 2)


def agrees(inputs, outputs, kinds, *arguments, dtype="float64"):
    """Compile for the device, which must have these Ops; compare each call with PyTensor's Python Ops."""
    f, reference = opencl(inputs, outputs), python(inputs, outputs)
    assert_on_device(f, *kinds)
    tolerance = 1e-3 if dtype == "float32" else 1e-9
    for values in arguments:
        for got, expected, output in zip(f(*values), reference(*values), outputs, strict=True):
            assert (got.shape, got.dtype) == (expected.shape, output.type.dtype)  # some Ops return another dtype
            scale = np.abs(expected).max(initial=1e-30)
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)
    return f


@dtypes
@pytest.mark.parametrize("form", ["matrix", "indices", "permuted"])
def test_lu(context, rng, dtype, form):
    options = {"matrix": {}, "indices": {"p_indices": True}, "permuted": {"permute_l": True}}[form]
    a, batch = pt.matrix("a", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    values = [(rng.normal(size=(n, n)).astype(dtype),) for n in (1, 6, 70)]
    singular = (np.tile(np.arange(4), (4, 1)).astype(dtype),)
    f = agrees([a], list(pt.linalg.lu(a, **options)), (GpuLUFactor,), *values, singular, dtype=dtype)
    agrees(
        [batch],
        list(pt.linalg.lu(batch, **options)),
        (GpuLUFactor,),
        (rng.normal(size=(3, 4, 4)).astype(dtype),),
        dtype=dtype,
    )
    with pytest.raises(ValueError, match="infs or NaNs"):
        f(np.full((2, 2), np.nan, dtype))
    rectangles = [(rng.normal(size=shape).astype(dtype),) for shape in ((3, 5), (5, 3), (90, 70), (0, 3))]
    agrees([a], list(pt.linalg.lu(a, **options)), (GpuLUFactor,), *rectangles, dtype=dtype)
    lower, upper = pt.linalg.lu(a, **options)[-2:]
    gradient = pytensor.grad((pt.sqr(lower) * upper.T).sum(), a)
    agrees([a], [gradient], (GpuLUFactor, GpuSolveTriangular), *values[1:2], dtype=dtype)


@pytest.mark.parametrize("form", [{}, {"p_indices": True}, {"permute_l": True}], ids=str)
def test_lu_of_whole_numbers(context, rng, form):
    a = pt.matrix("a", dtype="int32")
    values = [(rng.integers(-9, 9, shape).astype("int32"),) for shape in ((6, 6), (3, 5), (5, 3))]
    agrees([a], list(pt.linalg.lu(a, **form)), (GpuLUFactor,), *values, dtype="float64")


def test_lu_of_matrices_of_known_shape(context, rng):
    """PyTensor takes factors for square: what it knows not to be stays on the host, and the report says why."""
    for shape, is_square in (((4, 4), True), ((30, 50), False), ((50, 30), False)):
        a = pt.matrix("a", shape=shape, dtype="float64")
        value = rng.normal(size=shape)
        lower, upper = pt.linalg.lu(a, permute_l=True)
        f = opencl([a], [lower, upper])
        assert any(isinstance(op, GpuLUFactor) for op in device_ops(f)) is is_square
        reasons = " ".join(node.reason for node in pytensor_cl.explain(f).host_nodes)
        assert ("wrong shapes" in reasons) is not is_square
        got = f(value)
        np.testing.assert_allclose(got[0] @ got[1], value, atol=1e-12)
        g = opencl([a], pt.linalg.lu_factor(a))
        assert_on_device(g, GpuLUFactor)
        assert g(value)[1].shape == (min(shape),)


@dtypes
def test_exponentials(context, rng, dtype):
    a, batch = pt.matrix("a", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    matrix = rng.normal(size=(5, 5))
    values = [((matrix * scale).astype(dtype),) for scale in (0.01, 1, 6)]
    values += [(np.zeros((0, 0), dtype),), (np.ones((1, 1), dtype),), (rng.normal(size=(40, 40)).astype(dtype),)]
    kinds = GpuSolve, GpuRepeatedSquares
    f = agrees([a], [pt.linalg.expm(a)], kinds, *values, dtype=dtype)
    with pytest.raises(ValueError, match="square"):
        f(np.ones((2, 3), dtype))
    many = (rng.normal(size=(4, 3, 3)) * np.array([1e-3, 0, 1, 20])[:, None, None]).astype(dtype)
    agrees([batch], [pt.linalg.expm(batch)], kinds, (many,), dtype=dtype)
    agrees([a], [pytensor.grad(pt.sqr(pt.linalg.expm(a)).sum(), a)], kinds, values[1], dtype=dtype)


@dtypes
def test_block_diagonals(context, rng, dtype):
    a, batch = pt.matrix("a", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    values = rng.normal(size=(3, 2)).astype(dtype), rng.normal(size=(4, 2, 5)).astype(dtype)
    one = pt.linalg.block_diag(a, a.T, batch[0])
    many = pt.linalg.block_diag(batch, a[None], batch[:, :1])
    costs = [pt.sqr(y * pt.arange(y.size).reshape(y.shape)).sum() for y in (one, many)]
    gradients = [g for cost in costs for g in pytensor.grad(cost, [a, batch])]
    agrees([a, batch], [one, many, *gradients], (GpuJoin,), values, dtype=dtype)


@dtypes
def test_tensors_as_matrices(context, rng, dtype):
    a, b = pt.tensor4("a", dtype=dtype), pt.matrix("b", dtype=dtype)
    values = rng.normal(size=(2, 3, 3, 2)).astype(dtype), rng.normal(size=(2, 3)).astype(dtype)
    inverse, solution = pt.linalg.tensorinv(a, ind=2), pt.linalg.tensorsolve(a, b)
    f = agrees([a, b], [inverse, solution], (GpuMatrixInverse, GpuSolve), values, dtype=dtype)
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((2, 3, 3, 2), dtype), values[1])
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((2, 3, 2, 2), dtype), values[1])
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        opencl([a, b], solution)(np.zeros((2, 3, 3, 2), dtype), values[1])


@dtypes
def test_tridiagonal_systems(context, rng, dtype):
    a, b, batch = pt.matrix("a", dtype=dtype), pt.matrix("b", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    kinds = GpuLUFactorTridiagonal, GpuSolveLUFactorTridiagonal
    x = pt.linalg.solve(a, b, assume_a="tridiagonal")
    outputs = [x, *pytensor.grad(pt.sqr(x).sum(), [a, b])]
    values = [(positive(rng, n, n, dtype=dtype), rng.normal(size=(n, 3)).astype(dtype)) for n in (3, 30, 1)]
    empty = np.zeros((0, 0), dtype), np.zeros((0, 3), dtype)
    assert opencl([a, b], x)(*empty).shape == (0, 3)
    agrees([a, b], outputs, kinds, *values, dtype=dtype)
    y = pt.linalg.solve(batch, b, assume_a="tridiagonal")
    bands = np.triu(np.tril(positive(rng, 4, 3, 3, dtype=dtype), 1), -1)
    f = agrees([batch, b], [y], kinds, (bands, values[0][1]), dtype=dtype)
    with pytest.raises(ValueError, match="does not fit"):
        f(positive(rng, 4, 5, 5, dtype=dtype), values[0][1])


@dtypes
@pytest.mark.parametrize("lower", [True, False], ids=["lower", "upper"])
def test_symmetric_and_banded_systems(context, rng, dtype, lower):
    """Of a symmetric matrix one triangle is read."""
    a, b, batch = pt.matrix("a", dtype=dtype), pt.vector("b", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    x = pt.linalg.solve(a, b, assume_a="sym", lower=lower, b_ndim=1)
    y = pt.linalg.solve(batch, b, assume_a="sym", lower=lower, b_ndim=1)
    z = pt.linalg.solve(a, b, assume_a="banded", b_ndim=1)
    values = [rng.normal(size=shape).astype(dtype) + 4 * np.eye(5, dtype=dtype) for shape in ((5, 5), (3, 5, 5))]
    right = rng.normal(size=5).astype(dtype)
    agrees([a, b, batch], [x, y, z], (GpuSolve,), (values[0], right, values[1]), dtype=dtype)


@dtypes
@pytest.mark.parametrize("mode", ["full", "economic", "r"])
def test_qr(context, rng, dtype, mode):
    a, batch = pt.matrix("a", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    values = rng.normal(size=(7, 4)).astype(dtype), rng.normal(size=(3, 4, 6)).astype(dtype)
    outputs = [x for v in (a, batch) for x in np.atleast_1d(np.array(pt.linalg.qr(v, mode=mode), object))]
    agrees([a, batch], outputs, (GpuQR,), values, dtype=dtype)


@dtypes
def test_singular_values_and_what_is_made_of_them(context, rng, dtype):
    a, batch = pt.matrix("a", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    values = rng.normal(size=(7, 4)).astype(dtype), rng.normal(size=(3, 4, 6)).astype(dtype)
    parts = [abs(x) for v in (a, batch) for x in pt.linalg.svd(v, full_matrices=False)]  # signs are free
    costs = pt.linalg.svd(a, compute_uv=False), pt.linalg.pinv(a), pt.linalg.pinv(batch)
    gradients = [pytensor.grad(pt.exp(costs[0]).sum(), a), pytensor.grad(pt.sqr(costs[1]).sum(), a)]
    f = agrees([a, batch], [*parts, *costs, *gradients], (GpuSVD,), values, dtype=dtype)
    with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
        f(np.full((2, 2), np.nan, dtype), values[1])
    u, s, vt = opencl([a], pt.linalg.svd(a))(values[0])
    assert_close(u[:, :4] * s @ vt, values[0], rtol=1e-3 if dtype == "float32" else 1e-9)


@dtypes
def test_eigenvalues(context, rng, dtype):
    a, b, batch = pt.matrix("a", dtype=dtype), pt.matrix("b", dtype=dtype), pt.tensor3("batch", dtype=dtype)
    values = [x.astype(dtype) for x in (np.diag(np.arange(6.0)), np.eye(6), np.zeros((3, 6, 6)))]
    values = [x + positive(rng, *x.shape, dtype=dtype) for x in values]
    (w, v), (many, vectors) = pt.linalg.eigh(a), pt.linalg.eigh(batch, lower=False)
    cost = pt.exp(w / 5).sum() + pt.sqr(v[0] * pt.arange(6)).sum()
    outputs = [w, abs(v), many, abs(vectors), pt.linalg.eigvalsh(a, None), pytensor.grad(cost, a)]
    f = agrees([a, batch], outputs, (GpuEigh,), values[::2], dtype=dtype)
    for bad in (np.full((6, 6), np.nan, dtype), np.ones((6, 5), dtype)):
        with pytest.raises(ValueError, match=r"infs or NaNs|square|incompatible|mismatch"):
            f(bad, values[2])
    general = pt.linalg.eigvalsh(a, b)
    g = agrees([a, b], [general], (GpuCholesky, GpuEigvalsh), values[:2], dtype=dtype)
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        g(values[0], -values[1])


def test_large_matrices_are_for_lapack(context):
    a = pt.matrix("a", shape=(300, 300))
    with pytensor.config.change_flags(opencl__placement="auto"):
        f = opencl([a], pt.linalg.eigh(pt.exp(a))[0])
    assert any("LAPACK is faster" in node.reason for node in pytensor_cl.explain(f).host_nodes)


def test_least_squares(context, rng):
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    deficient = rng.normal(size=(7, 2)) @ rng.normal(size=(2, 4))
    arguments = [
        (x, rng.normal(size=(len(x), 2))) for x in (rng.normal(size=(7, 4)), rng.normal(size=(4, 7)), deficient)
    ]
    agrees([a, b], list(lstsq(a, b, 1e-10)), (GpuSVD,), *arguments)


def test_least_squares_with_a_cutoff_outside_of_its_range(context, rng):
    """LAPACK takes a cutoff that is not between 0 and 1 for the smallest one."""
    a, b, cutoff = pt.dmatrix("a"), pt.dmatrix("b"), pt.dscalar("cutoff")
    values = rng.normal(size=(7, 4)), rng.normal(size=(7, 2))
    cutoffs = ((*values, v) for v in (-1.0, 0.0, 1.0, 3.0))
    agrees([a, b, cutoff], list(lstsq(a, b, cutoff)), (GpuSVD,), *cutoffs)


def test_small_matrices_of_known_shape_are_no_settings(context, rng):
    """A matrix of nine elements from the host is factored on the device if that is asked for; its size is not."""
    a = pt.tensor("a", shape=(3, 3), dtype="float64")
    value = positive(rng, 3, 3)
    for kind, output in ((GpuCholesky, pt.linalg.cholesky(a)), (GpuDet, pt.linalg.det(a)), (GpuQR, pt.linalg.qr(a)[1])):
        f = check_against_python([a], [output], (kind,), (value,))
        assert all(type(n.op).__name__ != kind.__name__.removeprefix("Gpu") for n in f.maker.fgraph.apply_nodes)
    with pytensor.config.change_flags(opencl__placement="auto", opencl__select_backend=False):
        f = opencl([a], pt.linalg.cholesky(a))
    assert not any(isinstance(n.op, GpuCholesky) for n in f.maker.fgraph.apply_nodes)


def test_complex_matrices(context, rng):
    """Factors that are unique, and what does not depend on the phases of others; batches by Blockwise."""
    a, b = pt.ztensor3("a"), pt.zmatrix("b")
    hermitian = a @ pt.conj(a.mT) + np.eye(5)
    u, s, vh = pt.linalg.svd(a, full_matrices=False)
    permutation, lower, upper = pt.linalg.lu(a)
    factor = pt.linalg.cholesky(hermitian)
    outputs = [
        factor,
        pt.linalg.cho_solve((factor, True), b),
        pt.linalg.solve_triangular(factor, b, lower=True, trans="C"),
        pt.linalg.solve(a, b),
        pt.linalg.solve(a, b, assume_a="her"),
        pt.linalg.solve(a, b, assume_a="sym"),
        pt.linalg.inv(a),
        *pt.linalg.qr(a),
        s,
        (u * s[:, None, :]) @ vh,
        pt.linalg.eigvalsh(hermitian),
        pt.linalg.eigh(hermitian)[0],
        pt.linalg.pinv(a[..., :2]),
        permutation,
        permutation @ (lower @ upper),
        pt.linalg.expm(a),
        tensorsolve(a[0].reshape((5, 1, 1, 5)), b[:, :1]),
    ]
    kinds = (GpuRepeatedSquares, GpuCholesky, GpuCholeskySolve, GpuSolveTriangular, GpuSolve, GpuMatrixInverse, GpuQR)
    values = [rng.normal(size=(*shape, 2)).view("complex128")[..., 0] for shape in ((2, 5, 5), (5, 3))]
    f = check_against_python([a, b], outputs, (*kinds, GpuEigvalsh, GpuSVD, GpuLUFactor), values)
    cores = {type(getattr(n.op, "core_op", n.op)) for n in f.maker.fgraph.apply_nodes}
    on_host = [core.__name__ for core in cores if core.__module__.startswith("pytensor.tensor.linalg")]
    assert on_host == ["Eigh"]  # PyTensor's type of its eigenvectors is real


def test_determinants_and_systems_of_mixed_dtypes(context, rng):
    a, b, c = pt.fmatrix("a"), pt.tensor("b", dtype="complex64", shape=(None,)), pt.cmatrix("c")
    values = [rng.normal(size=shape).astype("float32") for shape in ((6, 6), (6, 2), (5, 5, 2))]
    values[1:] = (v.view("complex64")[..., 0] for v in values[1:])
    outputs = [pt.linalg.solve(a, b, b_ndim=1), pt.linalg.det(c), *pt.linalg.slogdet(c + 1)]
    check_against_python([a, b, c], outputs, (GpuSolve, GpuDet, GpuSLogDet), values)


def test_eigenvalues_and_schur_forms(context, rng):
    """What does not depend on the directions of vectors: sorted values, and the products of the factors."""
    for a in (pt.dtensor3("a"), pt.zmatrix("a")):
        w, v = pt.linalg.eig(a)
        forms = [pt.linalg.schur(a, output=kind) for kind in ("real", "complex")]
        products = [z @ t @ pt.conj(z.mT) if t.type.dtype[0] == "c" else z @ t @ z.mT for t, z in forms]
        outputs = [pt.sort(abs(w), axis=-1), pt.linalg.solve(v.mT, (v * w[..., None, :]).mT).mT, *products]
        value = rng.integers(-9, 9, (3, 5, 5)[-a.type.ndim :]).astype(a.type.dtype)
        f = agrees([a], outputs, (GpuEig, GpuSchur), (value,))
        with pytest.raises(ValueError, match="square"):
            f(value[..., 1:])
        value[..., 0, 0] = np.nan
        with pytest.raises(np.linalg.LinAlgError, match="must not contain infs or NaNs"):
            f(value)
    sorted_form = opencl([a], pt.linalg.schur(a, sort="lhp"))
    [node] = [node for node in pytensor_cl.explain(sorted_form).host_nodes if "Schur" in str(node.op)]
    assert node.reason == "no OpenCL kernel for Schur with sort='lhp' yet"


def test_sylvester_and_lyapunov_equations_and_their_gradients(context, rng):
    a, q = pt.dmatrices("a", "q")
    batch = pt.dtensor3("batch")
    solutions = [
        pt.linalg.solve_sylvester(a, q, a + q),
        pt.linalg.solve_continuous_lyapunov(a, q),
        pt.linalg.solve_discrete_lyapunov(a, q, method="bilinear"),
        pt.linalg.solve_sylvester(batch, q, batch),
    ]
    cost = sum(pt.sqr(x).sum() for x in solutions[1:3])
    outputs = [*solutions, *pytensor.grad(cost, [a, q])]
    values = rng.normal(size=(6, 6)) / 5, positive(rng, 6, 6), rng.normal(size=(3, 6, 6)) / 5
    f = agrees([a, q, batch], outputs, (GpuSchur, GpuTRSYL), values)
    on_host = {type(getattr(op, "core_op", op)).__name__ for op in host_ops(f)}
    assert not on_host & {"Schur", "TRSYL", "SolveSylvester", "SolveBilinearDiscreteLyapunov"}, on_host
    z = pt.zmatrix("z")
    mixed = opencl([a, z], TRSYL()(a, z, z))
    assert not any(isinstance(op, GpuTRSYL) for op in device_ops(mixed))  # LAPACK reads no elements below a diagonal
    with pytest.raises(ValueError, match="incompatible"):
        opencl([a, q], TRSYL()(a, q, a))(np.eye(3), np.eye(2))
