"""Draws of vectors and of composed distributions."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.stats
from pytensor.compile.ops import DeepCopyOp
from pytensor.tensor.basic import ScalarFromTensor

import pytensor_cl
from pytensor_cl.ops.linalg import GpuCholesky
from pytensor_cl.ops.random import GpuRandomVariable
from pytensor_cl.rewriting.placement.placement import SCALAR
from pytensor_cl.routines.random.draw import Draw
from tests.helpers import assert_on_device, opencl

COVARIANCE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]])
COUNT = 40_000


@pytest.fixture
def on_device():
    with pytensor.config.change_flags(opencl__placement="device"):
        yield


@pytest.fixture
def philox(on_device):
    with pytensor.config.change_flags(opencl__random="philox"):
        yield


def function(make, inputs=(), seed=0):
    """Compile a draw on the device; return the function."""
    generator = pytensor.shared(np.random.default_rng(seed))
    following, drawn = make(generator)
    f = opencl(list(inputs), drawn, updates={generator: following})
    assert_on_device(f, GpuRandomVariable)
    free = DeepCopyOp, ScalarFromTensor
    host = [n for n in pytensor_cl.explain(f).host_nodes if not isinstance(n.op, free) and n.reason != SCALAR]
    assert not host, [(str(n.op), n.reason) for n in host]
    return f


def draw_with(name, *parameters, **options):
    return lambda rng: getattr(pt.random, name)(*parameters, rng=rng, return_next_rng=True, **options)


def assert_moments(sample, mean, variance):
    """Means within five standard errors; variances within a tenth."""
    error = np.sqrt(np.maximum(variance, 1e-12) / len(sample))
    assert (np.abs(sample.mean(0) - mean) <= 5 * error + 1e-9).all()
    np.testing.assert_allclose(sample.var(0), variance, rtol=0.1, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multivariate_normal_is_numpys(context, on_device, rng, dtype):
    """The draws and the state of the generator afterwards are those of PyTensor's Op, sizes and batches included."""
    mean, covariance = pt.dmatrix("mean"), pt.dtensor3("covariance")
    seed = int(rng.integers(1000))
    values = rng.normal(size=(2, 3)), np.stack([COVARIANCE, 2 * COVARIANCE])
    for size in (None, (4, 2)):
        make = draw_with("multivariate_normal", mean, covariance, size=size, dtype=dtype)
        f = function(make, [mean, covariance], seed)
        assert_on_device(f, GpuCholesky)
        generator = pytensor.shared(np.random.default_rng(seed))
        following, drawn = make(generator)
        with pytensor.config.change_flags(cxx=""):
            reference = pytensor.function(
                [mean, covariance], drawn, updates={generator: following}, mode="FAST_COMPILE"
            )
        for _ in range(2):
            got, expected = f(*values), reference(*values)
            assert (got.shape, got.dtype) == (expected.shape, np.dtype(dtype))
            np.testing.assert_allclose(got, expected, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)
        with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
            f(values[0], -values[1])


def test_dirichlet(context, philox):
    shapes = np.array([0.5, 2.0, 0.01, 1.0])
    expected = scipy.stats.dirichlet(shapes)
    sample = function(draw_with("dirichlet", shapes, size=(COUNT,)))()
    np.testing.assert_allclose(sample.sum(-1), 1)
    assert_moments(sample, expected.mean(), expected.var())
    a = pt.dmatrix("a")
    f = function(draw_with("dirichlet", a), [a])
    tiny = f(np.full((50, 3), 1e-4))  # gamma numbers of such shapes are zero
    np.testing.assert_allclose(tiny.sum(-1), 1)
    with pytest.raises(ValueError, match="alpha"):
        f(-np.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dirichlet_of_equal_shapes_is_numpys(context, on_device, rng, dtype):
    seed = int(rng.integers(1000))
    for shapes, size in ((np.full(5, 2.0), (2000, 2)), (np.ones((3, 4)), None)):
        f = function(draw_with("dirichlet", shapes, size=size, dtype=dtype), seed=seed)
        own = np.random.default_rng(seed)
        for _ in range(2):
            np.testing.assert_array_equal(
                f(), own.dirichlet(shapes.ravel()[: shapes.shape[-1]], size or 3).astype(dtype)
            )
        generator = next(v for v in f.get_shared() if isinstance(v.get_value(borrow=True), np.random.Generator))
        assert generator.get_value().bit_generator.state == own.bit_generator.state


def test_parameters_that_repeat_one_number(context, on_device, rng):
    """One number for all draws is known when the function is compiled; its value is not."""
    seed = int(rng.integers(1000))
    a, k = pt.dscalar("a"), pt.lscalar("k")
    shapes = pt.full((k,), a)
    for make, own in (
        (draw_with("dirichlet", shapes, size=(3000,)), lambda g, a, k: g.dirichlet(np.full(k, a), 3000)),
        (draw_with("gamma", shapes, scale=1.0), lambda g, a, k: g.gamma(a, 1.0, k)),
    ):
        generator = pytensor.shared(np.random.default_rng(seed))
        following, drawn = make(generator)
        f = opencl([a, k], drawn, updates={generator: following})
        assert_on_device(f, GpuRandomVariable)
        other = np.random.default_rng(seed)
        for values in ((1.5, 5), (3.0, 7000), (0.05, 3), (2.0, 1)):
            np.testing.assert_allclose(f(*values), own(other, *values), rtol=1e-12 if values[0] < 1 else 0)
            assert generator.get_value().bit_generator.state == other.bit_generator.state


def test_the_reason_why_a_dirichlet_draw_is_numpys(context, on_device):
    for shapes, reason in (([1.0, 2.0], "arrays"), ([0.05, 0.05], "beta")):
        f = opencl([], pt.random.dirichlet(np.array(shapes), rng=pytensor.shared(np.random.default_rng(1))))
        assert any(reason in n.reason for n in pytensor_cl.explain(f).host_nodes)


@pytest.fixture
def by_the_device(on_device, monkeypatch):
    """Fail where NumPy draws."""
    monkeypatch.setattr(Draw, "_by_host", lambda *_: pytest.fail("NumPy has drawn"))


def assert_numpys(make, own, inputs=(), values=(), seed=0):
    """Compare draws, and the states of the generators after them, with those of a function of NumPy's Generator."""
    f = function(make, inputs, seed)
    other = np.random.default_rng(seed)
    for _ in range(2):
        np.testing.assert_array_equal(f(*values), own(other))
    generator = next(v for v in f.get_shared() if isinstance(v.get_value(borrow=True), np.random.Generator))
    assert generator.get_value().bit_generator.state == other.bit_generator.state


def test_binomial_numbers_of_arrays_are_numpys(context, by_the_device, rng):
    p = pt.dvector("p")
    chances = rng.uniform(0.001, 1.0, 600)
    chances[:3] = 1.0, 0.5, 1e-12
    trials = rng.integers(1, 61, 600)
    for n, size in ((60, (20, 600)), (1, None), (trials, (3, 600)), (trials, None)):
        make, seed = draw_with("binomial", n, p, size=size), int(rng.integers(1000))
        assert_numpys(make, lambda g, n=n, size=size: g.binomial(n, chances, size), [p], [chances], seed)
    half = np.full(600, 0.5)
    assert_numpys(draw_with("binomial", trials, 0.5), lambda g: g.binomial(trials, half))


def test_binomial_numbers_that_numpy_draws(context, on_device):
    """More trials than a constant says; a probability of zero, for which NumPy takes no number."""
    n, p = pt.lscalar("n"), pt.dvector("p")
    for trials in (n, 61, 0):
        f = opencl(
            [n, p],
            pt.random.binomial(trials, p, rng=pytensor.shared(np.random.default_rng(1))),
            on_unused_input="ignore",
        )
        assert any("number of trials" in node.reason for node in pytensor_cl.explain(f).host_nodes)
    chances = np.array([0.3, 0.0, 0.7, 0.5])
    assert_numpys(draw_with("binomial", 9, p), lambda g: g.binomial(9, chances), [p], [chances])
    f = function(draw_with("binomial", 9, p), [p])
    with pytest.raises(ValueError, match="p > 1"):
        f(np.array([0.5, 1.5]))


def test_beta_binomial_numbers_are_numpys(context, by_the_device, rng):
    a = pt.dscalar("a")
    for n, size in ((10, (4000,)), (np.array([5, 60]), (700, 2))):
        for value in (2.0, 0.4):
            make, seed = draw_with("betabinom", n, a, 3.0, size=size), int(rng.integers(1000))

            def own(generator, n=n, size=size, value=value):
                return scipy.stats.betabinom.rvs(n, value, 3.0, size=size, random_state=generator)

            assert_numpys(make, own, [a], [value], seed)


def test_hypergeometric_numbers_are_numpys(context, by_the_device, rng):
    for numbers in ((30, 20, 15), (40, 50, 80), (20_000, 40_000, 900)):
        seed = int(rng.integers(1000))
        make = draw_with("hypergeometric", *numbers, size=(50, 40))
        assert_numpys(make, lambda g, numbers=numbers: g.hypergeometric(*numbers, (50, 40)), seed=seed)


def test_the_reason_why_a_hypergeometric_draw_is_numpys(context, on_device):
    generator = pytensor.shared(np.random.default_rng(1))
    f = opencl([], pt.random.hypergeometric(30, 20, 9, size=(5,), rng=generator))
    assert any("fewer than 10 items" in node.reason for node in pytensor_cl.explain(f).host_nodes)


def test_multinomial(context, philox):
    chances = np.array([0.2, 0.5, 0.0, 0.3])
    sample = function(draw_with("multinomial", 10, chances, size=(COUNT,)))()
    assert (sample.sum(-1) == 10).all() and (sample >= 0).all()
    assert_moments(sample, 10 * chances, 10 * chances * (1 - chances))
    n, p = pt.lvector("n"), pt.tensor("p", shape=(None, 4))
    f = function(draw_with("multinomial", n, p), [n, p])
    assert (f(np.array([5, 0, 1000]), np.tile(chances, (3, 1))).sum(-1) == [5, 0, 1000]).all()
    with pytest.raises(ValueError, match="pvals"):
        f(np.array([5]), np.array([[0.9, 0.9, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="n < 0"):
        f(np.array([-5]), chances[None])


def test_a_multinomial_draw_of_many_categories(context, philox, rng):
    chances = rng.dirichlet(np.full(100, 10.0))  # none is so rare that its variance is unsure
    chances[[3, 64, 99]] = 0
    chances /= chances.sum()
    n, p = 1000, pt.tensor("p", shape=(None, 100))
    f = function(draw_with("multinomial", n, p), [p])
    assert sum(isinstance(node.op, GpuRandomVariable) for node in f.maker.fgraph.toposort()) == 7  # bits of 100
    sample = f(np.tile(chances, (COUNT // 10, 1)))
    assert (sample.sum(-1) == n).all() and (sample >= 0).all() and not sample[:, [3, 64]].any()
    assert_moments(sample[:, :99], n * chances[:99], n * (chances * (1 - chances))[:99])
    # Counts of one draw are correlated: the covariance of categories i and j is -n p_i p_j.
    halves = sample[:, :50].sum(-1)
    share = chances[:50].sum()
    assert_moments(halves, n * share, n * share * (1 - share))
    np.testing.assert_array_equal(f(np.eye(100)[[99, 0, 37]]), n * np.eye(100, dtype="int64")[[99, 0, 37]])


@pytest.mark.parametrize("categories", [1, 2, 3])
def test_a_multinomial_draw_of_few_categories(context, philox, categories):
    generator = pytensor.shared(np.random.default_rng(0))
    p = pt.tensor("p", shape=(categories,))
    f = opencl([p], pt.random.multinomial(pt.constant([5, 0, 9]), p, size=(2, 3), rng=generator))
    sample = f(np.full(categories, 1 / categories))
    assert sample.shape == (2, 3, categories)
    np.testing.assert_array_equal(sample.sum(-1), [[5, 0, 9]] * 2)
    # The last category takes what is left, whatever its probability says.
    np.testing.assert_array_equal(f(np.zeros(categories))[..., -1], [[5, 0, 9]] * 2)


def test_beta_binomial_and_hypergeometric(context, philox):
    expected = scipy.stats.betabinom(10, 2, 3)
    sample = function(draw_with("betabinom", 10, 2.0, 3.0, size=(COUNT,)))()
    assert_moments(sample, expected.mean(), expected.var())
    for good, bad, taken in ((10, 20, 5), (10, 20, 25), (3, 0, 2)):
        expected = scipy.stats.hypergeom(good + bad, good, taken)
        sample = function(draw_with("hypergeometric", good, bad, taken, size=(COUNT,)))()
        assert_moments(sample, expected.mean(), expected.var())


def test_permutations(context, philox):
    f = function(draw_with("permutation", 6))
    sample = np.array([f() for _ in range(600)])
    assert (np.sort(sample, -1) == np.arange(6)).all()
    assert_moments(sample, np.full(6, 2.5), np.full(6, 35 / 12))
    x = pt.dmatrix("x")
    rows = np.arange(8.0).reshape(4, 2)
    got = function(draw_with("permutation", x), [x])(rows)
    assert (got[np.argsort(got[:, 0])] == rows).all()


def test_choice_without_replacement(context, philox):
    got = function(draw_with("choice", np.arange(10.0), size=(2, 3), replace=False))()
    assert got.shape == (2, 3) and len(np.unique(got)) == 6
    p = pt.dvector("p")
    f = function(draw_with("choice", 4, size=2, p=p, replace=False), [p])
    chances = np.array([0.1, 0.2, 0.7, 0.0])
    sample = np.array([np.bincount(f(chances), minlength=4) for _ in range(1000)])
    second = np.array([sum(chances[j] / (1 - chances[j]) * chances[k] for j in range(3) if j != k) for k in range(4)])
    expected = chances + second
    np.testing.assert_allclose(sample.mean(0), expected, atol=5 * np.sqrt(0.25 / len(sample)))
    with pytest.raises(ValueError, match="non-zero"):
        f(np.array([1.0, 0, 0, 0]))
    n = pt.lscalar("n")
    with pytest.raises(ValueError, match="larger sample"):
        function(draw_with("choice", np.arange(3), size=(n,), replace=False), [n])(5)
