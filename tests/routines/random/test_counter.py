"""Draws by Philox: their distributions, and that they are the same everywhere."""

import numpy as np
import pytensor.tensor.random.basic as basic
import pytest
from scipy import stats

from pytensor_cl.routines.random.counter import CounterDraw
from pytensor_cl.routines.random.draw import HostDraw
from tests.helpers import sweep

N = 20_000
LEAST = 1e-4  # of the probability of a deviation as large: the seeds are fixed

CONTINUOUS = {
    "BetaRV": [((2.0, 3.0), stats.beta(2, 3)), ((0.5, 0.7), stats.beta(0.5, 0.7))],
    "CauchyRV": [((1.0, 2.0), stats.cauchy(1, 2))],
    "ExponentialRV": [((2.0,), stats.expon(scale=2))],
    "GammaRV": [((2.5, 2.0), stats.gamma(2.5, scale=2)), ((0.4, 1.0), stats.gamma(0.4))],
    "GenGammaRV": [((3.0, 2.0, 1.5), stats.gengamma(1.5, 2.0, scale=1.5))],
    "GumbelRV": [((1.0, 2.0), stats.gumbel_r(1, 2))],
    "HalfCauchyRV": [((1.0, 2.0), stats.halfcauchy(1, 2))],
    "HalfNormalRV": [((1.0, 2.0), stats.halfnorm(1, 2))],
    "InvGammaRV": [((3.0, 2.0), stats.invgamma(3, scale=2))],
    "LaplaceRV": [((1.0, 2.0), stats.laplace(1, 2))],
    "LogNormalRV": [((0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5)))],
    "LogisticRV": [((1.0, 2.0), stats.logistic(1, 2))],
    "NormalRV": [((1.0, 2.0), stats.norm(1, 2))],
    "ParetoRV": [((2.0, 3.0), stats.pareto(2, scale=3))],
    "StudentTRV": [((4.0, 1.0, 2.0), stats.t(4, 1, 2)), ((1.0, 0.0, 1.0), stats.t(1))],
    "TriangularRV": [((1.0, 2.0, 4.0), stats.triang(1 / 3, 1, 3))],
    "TruncExponentialRV": [((2.0, 1.0, 3.0), stats.truncexpon(2, 1, 3))],
    "UniformRV": [((1.0, 3.0), stats.uniform(1, 2))],
    "VonMisesRV": [((0.5, 2.0), stats.vonmises(2, loc=0.5))],
    "WaldRV": [((1.5, 2.0), stats.invgauss(0.75, scale=2))],
    "WeibullRV": [((1.5,), stats.weibull_min(1.5))],
}
DISCRETE = {
    "BernoulliRV": [((0.3,), stats.bernoulli(0.3))],
    "BinomialRV": [((10, 0.3), stats.binom(10, 0.3)), ((500, 0.8), stats.binom(500, 0.8))],
    "GeometricRV": [((0.5,), stats.geom(0.5)), ((0.05,), stats.geom(0.05))],
    "IntegersRV": [((-2, 9), stats.randint(-2, 9))],
    "NegBinomialRV": [((3.0, 0.4), stats.nbinom(3, 0.4))],
    "PoissonRV": [((3.0,), stats.poisson(3)), ((40.0,), stats.poisson(40))],
}
CASES = [(name, k) for table in (CONTINUOUS, DISCRETE) for name, cases in table.items() for k in range(len(cases))]
FEW = [("NormalRV", 0), ("GammaRV", 0), ("BinomialRV", 1)]


def draw(context, name, values, size=(N,), seed=3, schedule=None, dtype=None):
    """Draw, and fail where NumPy does it; return the numbers."""
    op = getattr(basic, name)(dtype=dtype or ("int64" if name in DISCRETE else "float64"))
    routine = CounterDraw(context, name, op.dtype, HostDraw(op.rng_fn, None), schedule)
    generator = np.random.default_rng(seed)
    given = [context.from_host(np.asarray(v)) if np.ndim(v) else v for v in values]
    drawn = routine(generator, size, *given)[1].to_host()
    assert routine.on_host == 0
    assert drawn.dtype == op.dtype
    want = np.random.default_rng(seed)
    want.bit_generator.random_raw(2)
    assert generator.bit_generator.state == want.bit_generator.state
    return drawn


def assert_distributed(name, drawn, distribution):
    """No deviation from the distribution that is nearly impossible."""
    drawn = drawn.ravel()
    if name in CONTINUOUS:
        assert stats.kstest(drawn, distribution.cdf).pvalue > LEAST
        return
    low, high = (int(distribution.ppf(q)) for q in (1e-3, 1 - 1e-3))
    edges = np.arange(low, high + 1)
    seen = np.array([(drawn <= low).sum(), *((drawn == k).sum() for k in edges[1:-1]), (drawn >= high).sum()])
    chances = np.array([distribution.cdf(low), *distribution.pmf(edges[1:-1]), distribution.sf(high - 1)])
    if len(edges) == 2:
        seen, chances = np.array([(drawn <= low).sum(), (drawn > low).sum()]), np.array([distribution.cdf(low)] * 2)
        chances[1] = 1 - chances[0]
    kept = chances * drawn.size > 5
    seen, chances = seen[kept], chances[kept]
    assert stats.chisquare(seen, chances / chances.sum() * seen.sum()).pvalue > LEAST


@sweep(("name", "number"), CASES, FEW)
def test_numbers_are_distributed_as_they_should_be(context, name, number):
    values, distribution = {**CONTINUOUS, **DISCRETE}[name][number]
    assert_distributed(name, draw(context, name, values), distribution)


def test_both_schedules_draw_the_same(context):
    together = [("UniformRV", 0), ("ExponentialRV", 0), ("TruncExponentialRV", 0), ("BernoulliRV", 0)]
    for name, number in FEW + together:
        values, _ = {**CONTINUOUS, **DISCRETE}[name][number]
        cpu, simt = (draw(context, name, values, (3001,), schedule=schedule) for schedule in ("cpu", "simt"))
        np.testing.assert_allclose(cpu, simt, rtol=1e-13)
    scales = np.linspace(0.5, 2, 1003)
    cpu, simt = (draw(context, "NormalRV", (1.0, scales), (1003,), schedule=schedule) for schedule in ("cpu", "simt"))
    np.testing.assert_array_equal(cpu, simt)
    scales[-1] = -1
    with pytest.raises(ValueError, match="scale"):
        draw(context, "NormalRV", (1.0, scales), (1003,), schedule="cpu")


@pytest.mark.parametrize("schedule", ["cpu", "simt"])
def test_a_few_numbers_are_the_first_of_many(context, schedule):
    for name in ("UniformRV", "NormalRV", "IntegersRV"):
        values, _ = {**CONTINUOUS, **DISCRETE}[name][0]
        many, few = (draw(context, name, values, size, schedule=schedule) for size in ((300,), (5,)))
        np.testing.assert_array_equal(few, many[:5])


def test_arrays_of_any_parameter(context):
    shapes, rates = np.array([[0.5], [1.0], [4.0]]), np.array([3.0, 40.0])
    drawn = draw(context, "GammaRV", (shapes, 2.0), (3, N))
    for row, shape in zip(drawn, shapes[:, 0], strict=True):
        assert stats.kstest(row, stats.gamma(shape, scale=2).cdf).pvalue > LEAST
    drawn = draw(context, "PoissonRV", (rates,), (N, 2))
    for k, rate in enumerate(rates):
        assert_distributed("PoissonRV", drawn[:, k], stats.poisson(rate))
    assert draw(context, "NormalRV", (0.0, 1.0), (50,), dtype="float32").dtype == "float32"


def test_calls_and_elements_are_independent(context):
    a, b = draw(context, "NormalRV", (0.0, 1.0), seed=1), draw(context, "NormalRV", (0.0, 1.0), seed=2)
    assert abs(stats.pearsonr(a, b).statistic) < 5 / N**0.5
    assert abs(stats.pearsonr(a[1:], a[:-1]).statistic) < 5 / N**0.5
    np.testing.assert_array_equal(a[:100], draw(context, "NormalRV", (0.0, 1.0), (100,), seed=1))


def philox(key, counter):
    """Philox4x32-10, as its authors describe it."""
    (k0, k1), x = key, list(counter)
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [second >> 32 ^ x[1] ^ k0, second & 0xFFFFFFFF, first >> 32 ^ x[3] ^ k1, first & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x


def test_the_generator_is_philox(context):
    assert philox((0, 0), (0, 0, 0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # the authors' answer
    key = np.random.default_rng(3).bit_generator.random_raw(2) & 0xFFFFFFFF
    words = [philox(tuple(map(int, key)), (0, 0, element, 0)) for element in range(5)]
    want = [((w[1] << 32 | w[0]) >> 11) / 2**53 for w in words]
    np.testing.assert_array_equal(draw(context, "UniformRV", (0.0, 1.0), (5,)), want)


@pytest.mark.parametrize("values", [(0.0, -1.0), (0.0, np.array([1.0, -1.0]))])
def test_wrong_parameters_raise_what_numpy_raises(context, values):
    op = basic.NormalRV(dtype="float64")
    routine = CounterDraw(context, "NormalRV", "float64", HostDraw(op.rng_fn, None))
    generator, other = np.random.default_rng(1), np.random.default_rng(1)
    given = [context.from_host(v) if np.ndim(v) else v for v in values]
    with pytest.raises(ValueError, match="scale < 0"):
        routine(generator, (2,), *given)
    assert generator.bit_generator.state == other.bit_generator.state
