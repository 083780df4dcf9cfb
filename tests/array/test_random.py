"""Random numbers as NumPy's Generator draws them: equal numbers, distributions of other ones, and mistakes."""

import pickle

import numpy as np
import pytest
from scipy import stats

import pytensor_cl.array as xp
from pytensor_cl.array.random import Generator
from pytensor_cl.runtime.array import GpuArray

LEAST = 1e-4  # of the probability of a deviation as large: the seeds are fixed
EXACT = {
    "random": (),
    "uniform": (1.0, 3.0),
    "standard_normal": (),
    "normal": (1.0, 2.0),
    "exponential": (2.0,),
    "standard_exponential": (),
    "gamma": (2.5, 2.0),
    "standard_gamma": (1.5,),
    "beta": (2.0, 3.0),
    "chisquare": (3,),
    "f": (3, 8.0),
    "standard_t": (4,),
    "standard_cauchy": (),
    "rayleigh": (2.0,),
    "triangular": (1.0, 2.0, 4.0),
    "wald": (1.5, 2.0),
    "poisson": (3.0,),
    "binomial": (10, 0.3),
    "negative_binomial": (3, 0.4),
    "geometric": (0.2,),
    "hypergeometric": (40, 30, 25),
    "integers": (-2, 90),
    "dirichlet": ([2.0, 2.0, 2.0],),
}
CLOSE = {
    "lognormal": (0.5, 0.7),
    "laplace": (1.0, 2.0),
    "logistic": (1.0, 2.0),
    "gumbel": (1.0, 2.0),
    "pareto": (2.0,),
    "power": (3.0,),
    "weibull": (1.5,),
    "vonmises": (0.5, 2.0),
}
"""Parameters of functions whose last digits differ between libraries."""
CLOSED_FORMS = {
    "random": ((), stats.uniform()),
    "normal": ((1.0, 2.0), stats.norm(1, 2)),
    "standard_exponential": ((), stats.expon()),
    "chisquare": ((3.0,), stats.chi2(3)),
    "gamma": ((0.05, 2.0), stats.gamma(0.05, scale=2)),
    "f": ((3.0, 8.0), stats.f(3, 8)),
    "standard_cauchy": ((), stats.cauchy()),
    "gumbel": ((1.0, 2.0), stats.gumbel_r(1, 2)),
    "pareto": ((2.0,), stats.lomax(2)),
    "power": ((3.0,), stats.powerlaw(3)),
    "rayleigh": ((2.0,), stats.rayleigh(scale=2)),
    "triangular": ((1.0, 2.0, 4.0), stats.triang(1 / 3, 1, 3)),
}


def rng_of(context, seed=7, kind="numpy"):
    return xp.random.default_rng(seed, kind=kind, device=context.name)


def same_state(mine, numpys):
    assert str(mine.bit_generator.state) == str(numpys.bit_generator.state)


def agrees(mine, numpys, method, /, *arguments, rtol=0.0, **options):
    """Compare the draws, their dtype and shape, and the states afterwards. A draw on the host would raise."""
    got = getattr(mine, method)(*arguments, **options)
    host = [np.asarray(a) if isinstance(a, GpuArray) else a for a in arguments]
    want = np.asarray(getattr(numpys, method)(*host, **options))
    assert isinstance(got, GpuArray)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), method
    np.testing.assert_allclose(np.asarray(got), want, rtol=rtol, atol=rtol / 100, err_msg=method)
    same_state(mine, numpys)


def test_numbers_are_numpys(context):
    mine, numpys = rng_of(context), np.random.default_rng(7)
    for size in (None, 5, (30, 40)):
        for method, parameters in EXACT.items():
            agrees(mine, numpys, method, *parameters, size=size)
        for method in ("beta", "f"):
            agrees(mine, numpys, method, 3.0, 3.0, size=size)
        for method, parameters in CLOSE.items():
            agrees(mine, numpys, method, *parameters, size=size, rtol=1e-12)


def test_options_of_numpy(context):
    mine, numpys = rng_of(context), np.random.default_rng(7)
    for size in (3, 500):  # an odd count leaves half of a number for the next draw
        agrees(mine, numpys, "random", size, "float32")
        agrees(mine, numpys, "standard_exponential", size, method="inv", rtol=1e-12)
        for dtype in ("int32", "uint32", "int64", "uint64"):
            agrees(mine, numpys, "integers", 3, 1000, size, dtype)
        agrees(mine, numpys, "integers", 6, size=size, endpoint=True)
        agrees(mine, numpys, "integers", -(2**62), 2**62, size)
        agrees(mine, numpys, "integers", 5, 6, size)
        agrees(mine, numpys, "integers", 1e6, size=size)
        agrees(mine, numpys, "binomial", 7.5, 0.5, size=size)
    out = context.empty((6,), "float64")
    assert mine.random(out=out) is out
    np.testing.assert_array_equal(np.asarray(out), numpys.random(6))


def test_parameters_that_give_constants(context):
    mine, numpys = rng_of(context), np.random.default_rng(7)
    cases = {"normal": (3.0, 0.0), "exponential": (0.0,), "poisson": (0,), "binomial": (4, 0.0), "gamma": (0.0, 2.0)}
    for method, parameters in cases.items():
        agrees(mine, numpys, method, *parameters, size=4)


def test_parameters_may_be_arrays(context):
    loc, scale = np.arange(12.0).reshape(3, 4), np.array([1, 2, 3, 0], "float32")
    mine, numpys = rng_of(context), np.random.default_rng(7)
    agrees(mine, numpys, "normal", loc, scale)
    agrees(mine, numpys, "normal", context.from_host(loc), scale)
    agrees(mine, numpys, "normal", context.from_host(loc).T, context.from_host(np.float32(2)), size=(2, 4, 3))
    agrees(mine, numpys, "uniform", [0, 1], [[3], [4]])
    agrees(mine, numpys, "binomial", np.array([3, 20, 50]), context.from_host(np.array([0.1, 0.7, 0.5])))
    agrees(mine, numpys, "poisson", np.full(5, 3.0))
    agrees(mine, numpys, "normal", loc[:0], 1.0)
    agrees(mine, numpys, "gamma", 2.0, size=(0, 3))
    with pytest.raises(TypeError, match="kind='philox'"):
        mine.poisson(np.array([1.0, 2.0]))
    same_state(mine, numpys)
    of_arrays = np.asarray(rng_of(context, kind="philox").poisson(np.array([1.0, 200.0]), (4000, 2)))
    np.testing.assert_allclose(of_arrays.mean(0), [1, 200], rtol=0.1)
    assert np.asarray(rng_of(context, kind="philox").integers(0, [1, 2, 3], (500, 3))).max(0).tolist() == [0, 1, 2]


def test_seeds(context):
    for seed in (3, [1, 2], np.random.SeedSequence(4), np.random.Philox(2)):
        again = np.random.Philox(2) if isinstance(seed, np.random.Philox) else seed
        agrees(rng_of(context, seed), np.random.default_rng(again), "random", 4)
    numpys, other = np.random.default_rng(1), np.random.default_rng(1)
    mine = rng_of(context, numpys)
    assert xp.random.default_rng(mine) is mine and mine.device == context.name
    agrees(mine, other, "normal", size=5)
    same_state(numpys, other)  # the Generator that was given continues
    for copy in (pickle.loads(pickle.dumps(mine)), mine.spawn(1)[0]):
        assert isinstance(copy, Generator) and (copy.kind, copy.device) == (mine.kind, mine.device)
    agrees(pickle.loads(pickle.dumps(mine)), pickle.loads(pickle.dumps(other)), "random", 3)


def test_philox_has_the_distributions(context):
    rng = rng_of(context, 11, "philox")
    for method, (parameters, law) in CLOSED_FORMS.items():
        drawn = np.asarray(getattr(rng, method)(*parameters, size=40_000))
        assert stats.kstest(drawn, law.cdf).pvalue > LEAST, method
        if method not in ("standard_cauchy", "pareto", "f"):  # these have no fourth moment, or nearly none
            mean, variance, _, kurtosis = law.stats(moments="mvsk")
            assert abs(drawn.mean() - mean) < 4 * np.sqrt(variance / drawn.size), method
            assert abs(drawn.var() / variance - 1) < 4 * np.sqrt((kurtosis + 2) / drawn.size), method
    single = np.asarray(rng.random(40_000, "float32"))
    assert single.dtype == "float32" and stats.kstest(single, stats.uniform.cdf).pvalue > LEAST
    scaled = single.astype("float64") * 2**24  # so 1 is no value, to which numbers near it would be rounded
    assert (scaled == np.floor(scaled)).all() and scaled.max() < 2**24
    counts = np.bincount(np.asarray(rng.integers(0, 7, 42_000, "int8")), minlength=7)
    assert stats.chisquare(counts).pvalue > LEAST


def test_calls_are_independent(context):
    """First draws of calls, and of generators with seeds that follow each other, are uniform and independent."""
    rng = rng_of(context, 5, "philox")
    of_calls = np.array([float(rng.random()) for _ in range(1500)])
    of_seeds = np.array([float(rng_of(context, seed, "philox").random()) for seed in range(800)])
    long = [np.asarray(rng.random(20_000)) for _ in range(2)]
    for drawn in (of_calls, of_seeds):
        assert stats.kstest(drawn, "uniform").pvalue > LEAST
        assert stats.pearsonr(drawn[1:], drawn[:-1]).pvalue > LEAST
        pairs = np.histogram2d(drawn[::2], drawn[1::2], bins=4, range=[[0, 1]] * 2)[0]
        assert stats.chisquare(pairs.ravel()).pvalue > LEAST
    for first, second in (long, (long[0][1:], long[0][:-1])):
        assert stats.pearsonr(first, second).pvalue > LEAST
    again = rng_of(context, 5, "philox")
    np.testing.assert_array_equal([float(again.random()) for _ in range(5)], of_calls[:5])


def test_dirichlet(context):
    rng = rng_of(context, 3, "philox")
    for alpha in ([0.02, 0.03, 0.01], [0.5, 3.0, 20.0]):
        drawn = np.asarray(rng.dirichlet(alpha, 20_000))
        np.testing.assert_allclose(drawn.sum(-1), 1, rtol=1e-12)
        for k, a in enumerate(alpha):
            law = stats.beta(a, sum(alpha) - a)
            low, high = law.cdf([1e-12, 1 - 1e-12])  # numbers beyond are rounded to 1, or were subtracted from it
            inner = drawn[(drawn[:, k] > 1e-12) & (drawn[:, k] < 1 - 1e-12), k]
            assert abs(len(inner) / len(drawn) - (high - low)) < 0.015
            assert abs(drawn[:, k].mean() - law.mean()) < 4 * law.std() / np.sqrt(len(drawn))
            ranks = (law.cdf(inner) - low) / (high - low)
            assert stats.kstest(ranks, "uniform").pvalue > LEAST
    with pytest.raises(TypeError, match="philox"):
        rng_of(context).dirichlet([1.0, 2.0], 3)


def test_choice(context):
    mine, numpys = rng_of(context), np.random.default_rng(7)
    values, p = np.arange(12.0).reshape(3, 4), np.array([0.2, 0.5, 0.3])
    for size in (None, 7, (2, 3)):
        agrees(mine, numpys, "choice", 9, size)
        agrees(mine, numpys, "choice", 3, size, p=p)
        agrees(mine, numpys, "choice", values, size, p=p)
        agrees(mine, numpys, "choice", context.from_host(values), size, axis=1)
    with pytest.raises(TypeError, match="kind='philox'"):
        mine.choice(9, 3, replace=False)
    rng = rng_of(context, 9, "philox")
    assert sorted(np.asarray(rng.choice(50, 50, replace=False)).tolist()) == list(range(50))
    pairs = np.array([np.asarray(rng.choice(4, 2, replace=False, p=[0.0, *p])) for _ in range(1200)]) - 1
    expected = {(i, j): p[i] * p[j] / (1 - p[i]) for i in range(3) for j in range(3) if i != j}
    found = [int((pairs == pair).all(1).sum()) for pair in expected]
    assert stats.chisquare(found, np.array(list(expected.values())) * len(pairs)).pvalue > LEAST


def test_permutations(context):
    rng = rng_of(context, 9, "philox")
    values = np.arange(24).reshape(4, 6)
    for axis in (0, 1, -1):
        got = np.asarray(rng.permutation(context.from_host(values), axis))
        np.testing.assert_array_equal(np.sort(got, axis), values)
        np.testing.assert_array_equal(
            got - got.take([0], axis), (got - got.take([0], axis)).take([0], 1 - axis % 2) + 0 * got
        )
    x = context.from_host(values)
    assert rng.shuffle(x[:, 1:4]) is None  # a view is shuffled in place
    got = np.asarray(x)
    np.testing.assert_array_equal(got[:, [0, 4, 5]], values[:, [0, 4, 5]])
    np.testing.assert_array_equal(np.sort(got[:, 1:4], 0), values[:, 1:4])
    orders = np.asarray(rng.permuted(np.tile(np.arange(3), (6000, 1)), axis=1)) @ [9, 3, 1]
    _, counts = np.unique(orders, return_counts=True)
    assert len(counts) == 6 and stats.chisquare(counts).pvalue > LEAST
    first = [int(rng.permutation(5)[0]) for _ in range(400)]
    assert stats.chisquare(np.bincount(first, minlength=5)).pvalue > LEAST
    for method in ("permutation", "permuted"):
        with pytest.raises(TypeError, match="philox"):
            getattr(rng_of(context), method)(x)


def test_mistakes(context):
    mine, numpys = rng_of(context), np.random.default_rng(7)
    mistakes = {
        "normal": (0.0, -1.0), "poisson": (-1.0,), "binomial": (np.array([2.5]), 0.5), "gamma": (np.array([1.0, -1.0]),),
        "integers": (5, 5), "choice": (3, 2, True, [0.5, 0.1, 0.1]), "triangular": (3.0, 2.0, 1.0), "dirichlet": ([-1.0],),
        "uniform": ("a",), "random": ((-1,),), "standard_exponential": (2, "int32"), "hypergeometric": (3, 3, 20),
    }  # fmt: skip
    for kind in ("numpy", "philox"):
        mine = rng_of(context, kind=kind)
        for method, arguments in mistakes.items():
            with pytest.raises((ValueError, TypeError)) as theirs:
                getattr(numpys, method)(*arguments)
            with pytest.raises((ValueError, TypeError)) as ours:
                getattr(mine, method)(*arguments)
            assert ours.type is theirs.type or method == "uniform", method
        with pytest.raises(ValueError, match="scale < 0"):
            mine.normal(0.0, context.from_host(np.array([1.0, -1.0])))
        with pytest.raises(ValueError, match="not compatible"):
            mine.normal(np.zeros(3), 1.0, size=(2,))
        same_state(mine, np.random.default_rng(7))  # a mistake takes no numbers
        for method in ("bytes", "multivariate_normal", "zipf"):
            with pytest.raises(TypeError, match=rf"np\.random\.default_rng\(seed\)\.{method}"):
                getattr(mine, method)(3)
    with pytest.raises(TypeError, match="philox"):
        rng_of(context).standard_normal(3, "float32")
    with pytest.raises(TypeError, match="MT19937"):
        rng_of(context, np.random.MT19937(1)).random(3)
    with pytest.raises(TypeError, match=r"default_rng\(seed\) draws on the device"):
        rng_of(context, kind="philox").integers(0, 2**60, 3)
    with pytest.raises(ValueError, match="kind must be"):
        xp.random.default_rng(1, kind="mt")
    with pytest.raises(TypeError, match="permutation"):
        rng_of(context).shuffle(np.arange(3))
