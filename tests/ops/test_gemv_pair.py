"""Linear models and their gradients, in compiled functions."""

from dataclasses import replace

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.ifelse import ifelse
from pytensor.raise_op import Assert

from pytensor_cl.errors import BroadcastError
from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.gemv_pair import GpuGemvPair
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedSubtensor
from pytensor_cl.runtime import registry
from tests.helpers import check_against_python, device_ops, on_one_driver, opencl

N, K = 150, 19


@pytest.fixture(autouse=True)
def wherever_there_is_a_kernel():
    with pytensor.config.change_flags(opencl__placement="device", floatX="float64", on_opt_error="raise"):
        yield


def check(inputs, outputs, *arguments, products=0, pairs=1):
    """Compare with the host, and count the products that are left."""
    f = check_against_python(inputs, outputs, (GpuGemvPair,) if pairs else (GpuGemv,), *arguments)
    kinds = [type(op) for op in device_ops(f)]
    assert (kinds.count(GpuGemv), kinds.count(GpuGemvPair)) == (products, pairs)
    return f


def bernoulli(z, y):
    return pt.sum(y * z - pt.softplus(z))


def data(rng, n=N, k=K, dtype="float64"):
    return rng.normal(size=(n, k)).astype(dtype), rng.integers(0, 2, n).astype(dtype), rng.normal(size=k).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logistic_regression(context, rng, dtype):
    x, y, b = pt.matrix("x", dtype=dtype), pt.vector("y", dtype=dtype), pt.vector("b", dtype=dtype)
    cost = bernoulli(x @ b, y) - 0.5 * pt.sum(b**2)
    fortran, y1, b1 = data(rng, dtype=dtype)
    arguments = [data(rng, n, k, dtype) for n, k in ((N, K), (1, 1), (40, 4), (3, 5))]
    # no rows, or no columns, and columns that are contiguous
    arguments += [data(rng, 5, 0, dtype), data(rng, 0, 4, dtype), (np.asfortranarray(fortran), y1, b1)]
    check([x, y, b], [cost, pytensor.grad(cost, b)], *arguments)


@pytest.fixture
def simt(context, monkeypatch):
    """The default context with the kernels of GPUs."""
    if context.info.schedule == "cpu":
        features = replace(context.info.features, private_as_global=False)
        monkeypatch.setitem(registry._registry.overrides, "features", features)
        registry.define_contexts({f"{context.name}-simt": context.entry.stable_spec}, f"{context.name}-simt")
    assert registry.get_context().info.schedule == "simt"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_gpus(simt, rng, dtype):
    x, y, b, s = pt.matrix("x", dtype=dtype), pt.vector("y", dtype=dtype), pt.vector("b", dtype=dtype), pt.dscalar("s")
    cost = bernoulli(x @ b, y) - 0.5 * pt.sum(b**2)
    shapes = (N, K), (1, 1), (40, 4), (3, 5), (5, 0), (0, 4), (3000, 32), (700, 128), (70, 300), (400, 300)
    arguments = [data(rng, n, k, dtype) for n, k in shapes]
    matrix, *vectors = data(rng, dtype=dtype)
    arguments += [(np.asfortranarray(matrix), *vectors), (matrix[::-2], vectors[0][::2], vectors[1])]
    check([x, y, b], [cost, pytensor.grad(cost, b)], *arguments)
    z = s + x @ b
    cost = pt.sum(-0.5 * ((y - z) / s) ** 2 - pt.log(s))
    outputs = [cost, pt.max(pt.abs(y - z)), z, *pytensor.grad(cost, [b, s])]
    check([x, y, b, s], outputs, *((*data(rng, n, k, dtype), 1.7) for n, k in ((N, K), (3000, 32), (60, 300))))


def test_long_rows_with_kernels_of_gpus(simt, rng):
    """A matrix that is known to be too large for a pair stays with two products."""
    for k, is_pair in ((128, True), (129, False)):
        x, y, b = pt.tensor("x", shape=(200, k)), pt.dvector("y"), pt.dvector("b")
        cost = bernoulli(x @ b, y)
        counts = {"products": 0, "pairs": 1} if is_pair else {"products": 2, "pairs": 0}
        check([x, y, b], [cost, pytensor.grad(cost, b)], data(rng, 200, k), **counts)


def test_families_of_models(context, rng):
    x, y, b, a, s = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b"), pt.dscalar("a"), pt.dscalar("s")
    z = a + x @ b
    costs = {
        "normal": pt.sum(-0.5 * ((y - z) / s) ** 2 - pt.log(s)),
        "poisson": pt.sum(y * z - pt.exp(z) - pt.gammaln(y + 1)),
        "worst": pt.max(pt.abs(y - z)),
    }
    cost = costs["normal"] + costs["poisson"]
    matrix, target, weights = data(rng)
    check([x, y, b, a, s], [*costs.values(), *pytensor.grad(cost, [b, a, s])], (matrix, target, weights, 0.3, 1.7))


def test_groups(context, rng):
    x, y, b, a = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b"), pt.dvector("a")
    group = pytensor.shared(rng.integers(0, 9, N), "group")
    cost = bernoulli(a[group] + x @ b, y)
    f = check([x, y, b, a], [cost, *pytensor.grad(cost, [a, b])], (*data(rng), rng.normal(size=9)))
    with pytest.raises(IndexError):
        f(*data(rng), rng.normal(size=3))


@on_one_driver
def test_gradient_alone_and_normal_equations(context, rng):
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    values = data(rng)
    check([x, y, b], [pytensor.grad(bernoulli(x @ b, y), b)], values)
    check([x, y, b], [x.T @ (x @ b) + 0 * y.sum()], values)
    check([x, y, b], [2 * (x.T @ (y - 3 * (x @ b)))], values)


@on_one_driver
def test_one_after_the_other(context, rng):
    """Each step of a power iteration, or of conjugate gradients, is a pair."""
    x, b = pt.dmatrix("x"), pt.dvector("b")
    v = b
    for _ in range(3):
        v = x.T @ (x @ v) + 0.1 * b
    wide, _, weights = data(rng, 7, 30)
    check([x, b], [v], data(rng)[::2], (wide, weights), pairs=3)


@on_one_driver
def test_what_others_need_is_kept(context, rng):
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    z = x @ b
    p = pt.sigmoid(z)
    cost = bernoulli(z, y)
    check([x, y, b], [z, p, cost, pytensor.grad(cost, b), (p - y)[::-1]], data(rng))


@on_one_driver
def test_a_constant_matrix_and_its_folded_transpose(context, rng):
    matrix, target, weights = data(rng)
    b = pt.dvector("b")
    cost = bernoulli(pt.as_tensor(matrix) @ b, pt.as_tensor(target))
    check([b], [cost, pytensor.grad(cost, b)], (weights,))


@on_one_driver
def test_transposed_first(context, rng):
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    cost = bernoulli(x.T @ b, y)
    matrix, target, weights = data(rng)
    check([x, y, b], [cost, pytensor.grad(cost, b)], (np.ascontiguousarray(matrix.T), target, weights))


@on_one_driver
def test_reductions_between_the_products_are_waited_for(context, rng):
    x, b = pt.dmatrix("x"), pt.dvector("b")
    cost = pt.logsumexp(x @ b)
    matrix, _, weights = data(rng)
    check([x, b], [cost, pytensor.grad(cost, b)], (matrix, weights), products=2, pairs=0)


@on_one_driver
def test_later_walks_are_kernels_of_their_own(context, rng):
    """What waits for reductions does not keep the products apart that wait for none."""
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    z = x @ b
    p = pt.sigmoid(z)
    cost = bernoulli(z, y)
    check([x, y, b], [cost, pytensor.grad(cost, b), p / pt.sum(p)], data(rng))
    squares = pt.sum((z - y) ** 2)
    check([x, y, b], [pytensor.grad(squares, b), 1 - squares / pt.sum((y - pt.mean(y)) ** 2)], data(rng))


@on_one_driver
def test_a_table_beside_products(context, rng):
    """Groups are looked up beforehand where that makes a pair, else by the kernel that reads them, whoever needs z."""
    x, y, b, a = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b"), pt.dvector("a")
    group = pytensor.shared(rng.integers(0, 9, N), "group")
    z = x @ b
    scaled = a[group] * z
    values = (*data(rng), rng.normal(size=9))
    cost = bernoulli(scaled, y)
    check([x, y, b, a], [cost, pytensor.grad(cost, b), z], values)
    mean = pt.mean((scaled - y) ** 2)
    check([x, y, b, a], [mean, pytensor.grad(mean, b), x.T @ z], values, products=1)
    cost = pt.logsumexp(scaled - y)
    f = check([x, y, b, a], [cost, pytensor.grad(cost, b), z], values, products=2, pairs=0)
    assert not any(isinstance(op, GpuAdvancedSubtensor) for op in device_ops(f))


@on_one_driver
def test_other_ways_from_one_product_to_the_other(context, rng):
    """Something else that leads from the first product to the last: one node cannot do both."""
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    r = pt.sigmoid(x @ b) - y
    check([x, y, b], [x.T @ r + pt.cumsum(r)[:K]], data(rng), products=2, pairs=0)
    check([x, y, b], [x.T @ r * pt.sum(r)], data(rng))


def test_nan_and_infinity(context, rng):
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    matrix, target, weights = data(rng)
    matrix[3, 2], matrix[N - 1, K - 1], matrix[N - 17, 0] = np.nan, np.inf, -np.inf
    cost = pt.sum((x @ b - y) ** 2)
    check([x, y, b], [cost, pytensor.grad(cost, b)], (matrix, target, weights))
    weights[5], target[7] = np.inf, np.nan
    check([x, y, b], [pytensor.grad(cost, b)], (matrix, target, weights))


@on_one_driver
def test_equal_rows_have_equal_products(context, rng):
    """Wherever they are: the gradient of a maximum belongs to all that share it."""
    x, b = pt.dmatrix("x"), pt.dvector("b")
    f = opencl([x, b], [x @ b, x.T @ pt.exp(x @ b)])
    assert any(isinstance(op, GpuGemvPair) for op in device_ops(f))
    for n, k in ((300, 21), (64, 7)):
        z, _ = f(np.repeat(rng.normal(size=(1, k)), n, axis=0), rng.normal(size=k))
        assert len(set(z)) == 1


def test_shapes_that_do_not_fit(context, rng):
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    cost = bernoulli(x @ b, y)
    f = opencl([x, y, b], [cost, pytensor.grad(cost, b)])
    matrix, target, weights = data(rng)
    for bad in ((matrix, target[1:], weights), (matrix, target, weights[1:]), (matrix[:, 1:], target, weights)):
        with pytest.raises(ValueError, match=r"(?i)mismatch") as caught:
            f(*bad)
        assert any("GpuGemvPair" in note for note in caught.value.__notes__)


@on_one_driver
def test_a_shape_that_is_computed_first(context, rng):
    """The length by which a mean divides is known only if the shapes fit: its error is what the subtraction's would be."""
    x, y, b = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b")
    cost = pt.mean((x @ b - y) ** 2)
    f = opencl([x, y, b], [cost, pytensor.grad(cost, b)])
    assert any(isinstance(op, GpuGemvPair) for op in device_ops(f))
    matrix, target, weights = data(rng)
    with pytest.raises(ValueError, match="broadcast") as caught:
        f(matrix, target[1:], weights)
    assert isinstance(caught.value, BroadcastError)
    assert isinstance(caught.value, AssertionError)


@on_one_driver
def test_a_shape_that_a_branch_computes(context, rng):
    """The error names the node in the branch, and the conditional."""
    x, y, b, c = pt.dmatrix("x"), pt.dvector("y"), pt.dvector("b"), pt.dscalar("c")
    count = Assert("Could not broadcast dimensions")(b.shape[0], pt.eq(b.shape[0], y.shape[0]))
    f = opencl([x, y, b, c], ifelse(pt.gt(c, 0), pt.sum(x @ pt.exp(b)) / count, c))
    with pytest.raises(BroadcastError) as caught:
        f(*data(rng), 1.0)
    notes = [note for note in caught.value.__notes__ if "Raised by node" in note]
    assert [name in note for name, note in zip(("Assert", "GpuLazyIfElse"), notes, strict=True)] == [True, True]


def test_training_without_new_memory(context, rng):
    """A step of gradient descent, called more often than it takes to be recorded."""
    matrix, target, weights = data(rng, 400, 7)
    x, y = pytensor.shared(matrix), pytensor.shared(target)
    b = pytensor.shared(weights)
    cost = bernoulli(x @ b, y)
    f = opencl([], [cost], updates=[(b, b + 0.001 * pytensor.grad(cost, b))])
    expected = weights.copy()
    for _ in range(6):
        z = matrix @ expected
        np.testing.assert_allclose(f()[0], np.sum(target * z - np.logaddexp(0, z)), rtol=1e-12)
        expected += 0.001 * matrix.T @ (target - 1 / (1 + np.exp(-z)))
    np.testing.assert_allclose(b.get_value(), expected, rtol=1e-12)
    assert any(isinstance(op, GpuGemvPair) for op in device_ops(f))
