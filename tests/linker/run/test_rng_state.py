"""Random draws that NUMBA makes: the numbers, the states and the errors of NumPy."""

import warnings

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random import basic as rvs

from pytensor_cl import explain
from pytensor_cl.linker.run import rng_state
from pytensor_cl.linker.run.rng_state import restore_saved_state, rng_state_saver
from pytensor_cl.linker.selection.backends import NUMBA
from pytensor_cl.nn.dropout import MaskRV
from pytensor_cl.rewriting.host_graph.graph import host_graph_of
from pytensor_cl.rewriting.host_graph.guards import _PARAMETERS
from tests.conftest import DRIVERS, context_of
from tests.helpers import ALL, opencl

a, b, p, w = (pt.vector(name, dtype="float64") for name in "abpw")

DRAWS = {
    "beta": (rvs.beta, a, b),
    "mask of dropout": (MaskRV(), p),
    "binomial": (rvs.binomial, 7, p),
    "binomial of many": (rvs.binomial, 10_000, p),
    "categorical": (rvs.categorical, w),
    "exponential": (rvs.exponential, a),
    "gamma": (rvs.gamma, a, b),
    "geometric": (rvs.geometric, p),
    "halfnormal": (rvs.halfnormal, a, b),
    "invgamma": (rvs.invgamma, a, b),
    "laplace": (rvs.laplace, a, b),
    "logistic": (rvs.logistic, a, b),
    "lognormal": (rvs.lognormal, a, b),
    "normal": (rvs.normal, a, b),
    "poisson": (rvs.poisson, a),
    "poisson of large rates": (rvs.poisson, a * 100),
    "t": (rvs.t, a, b, a),
    "uniform": (rvs.uniform, -a, b),
    "weibull": (rvs.weibull, a),
}


UNCHECKED = {"categorical", "geometric", "invgamma", "t"}
"""Distributions of which no other test has numbers; NUMBA compiles each for a second."""


@pytest.fixture
def context():
    """Nothing here is the driver's: one is enough."""
    return context_of(DRIVERS[0])


@pytest.fixture(autouse=True)
def _adapt():
    with pytensor.config.change_flags(opencl__select_backend=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the state that a draw leaves, not asked for here
        yield


@pytest.fixture
def values(rng):
    """Parameters of all orders of magnitude, and a few that are special."""
    many = np.concatenate([np.exp(rng.normal(size=200) * 2), [1, 2, 1e-3, 0.5]])
    chances = np.concatenate([rng.random(202), [1, 0.5]])
    weights = rng.random(5)
    return many, many[::-1].copy(), chances, weights / weights.sum()


def drawing(names, compiler, seed=5):
    """Compile a function of the parameters that draws from several distributions, and its generators."""
    outputs, updates = [], {}
    for name in names:
        rv, *parameters = DRAWS[name]
        generator = pytensor.shared(np.random.default_rng(seed))
        size = (50,) if name == "categorical" else (3, parameters[-1].shape[0])
        following, drawn = rv(*parameters, size=size, rng=generator, return_next_rng=True)
        outputs.append(drawn)
        updates[generator] = following
    f = compiler([a, b, p, w], outputs, updates=updates, on_unused_input="ignore")
    return f, list(updates)


def test_every_distribution_is_tried():
    assert set(_PARAMETERS) == {type(rv(*parameters).owner.op) for rv, *parameters in DRAWS.values()}


def test_numbers_and_states_are_numpy_s(context, values):
    names = [name for name in DRAWS if ALL or name in UNCHECKED]
    f, mine = drawing(names, opencl)
    g, others = drawing(names, lambda *args, **more: pytensor.function(*args, mode="FAST_COMPILE", **more))
    for _ in range(3):
        for name, got, want in zip(names, f(*values), g(*values), strict=True):
            np.testing.assert_array_equal(got, want, strict=True, err_msg=name)
    for name, generator, other in zip(names, mine, others, strict=True):
        assert generator.get_value().bit_generator.state == other.get_value().bit_generator.state, name
    assert explain(f).choices[0].backend == NUMBA
    assert NUMBA not in f.vm.signatures[0].excluded


BAD = {
    "scale": (rvs.normal, (0.0, a), (-1.0, -0.0), "scale < 0"),
    "rate": (rvs.poisson, (a,), (-1.0, np.nan), "lam"),
    "chance": (rvs.binomial, (5, a), (1.5,), "p < 0, p > 1"),
    "interval": (rvs.uniform, (0.0, a), (-1.0,), "high - low < 0"),
    "shape": (rvs.gamma, (a, 1.0), (-1.0,), "shape < 0"),
    "beta": (rvs.beta, (a, 1.0), (0.0,), "a <= 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_parameters_are_checked(context, name):
    rv, parameters, several, text = BAD[name]
    generator = pytensor.shared(np.random.default_rng(1))
    following, drawn = rv(*parameters, rng=generator, return_next_rng=True)
    f = opencl([a], drawn, updates={generator: following})
    good = np.array([0.5, 0.25])
    f(good)
    before = generator.get_value().bit_generator.state
    for bad in several:
        with pytest.raises(ValueError, match=text):
            f(np.array([0.5, bad]))
        assert generator.get_value().bit_generator.state == before
    fresh = np.random.default_rng()
    fresh.bit_generator.state = before
    want = pytensor.function([a], rv(*parameters, rng=pytensor.shared(fresh)), mode="FAST_COMPILE")(good)
    np.testing.assert_array_equal(f(good), want)


def test_zero_where_numpy_takes_it(context):
    generator = pytensor.shared(np.random.default_rng(1))
    f = opencl([a], rvs.normal(1.0, a, rng=generator))
    np.testing.assert_array_equal(f(np.zeros(3)), np.ones(3))


@pytest.mark.parametrize("size", [(3,), (2, 5)])
def test_sizes_that_do_not_fit(context, size):
    f = opencl([a], rvs.normal(0.0, a, size=size, rng=pytensor.shared(np.random.default_rng(1))))
    with pytest.raises(ValueError, match=r"(?i)size|broadcast|shape"):
        f(np.ones(4))


def test_a_generator_that_is_not_updated_stays(context):
    generator = pytensor.shared(np.random.default_rng(1))
    f = opencl([a], rvs.normal(0.0, a, rng=generator))
    first = f(np.ones(4))
    for _ in range(3):
        np.testing.assert_array_equal(f(np.ones(4)), first)


def test_other_draws_are_not_for_numba(context):
    for rv, parameters in ((rvs.bernoulli, (p,)), (rvs.gumbel, (a, b)), (rvs.dirichlet, (a,))):
        f = opencl([a, b, p], rv(*parameters, rng=pytensor.shared(np.random.default_rng(1))), on_unused_input="ignore")
        assert host_graph_of(f.maker.fgraph).numba_excluded


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.SFC64])
@pytest.mark.parametrize("has_half", [False, True])
def test_a_saved_state_is_restored(kind, has_half):
    cell = [np.random.Generator(kind(3))]
    save = rng_state_saver(cell)
    for seed in (1, 2):  # another generator in the same cell
        generator = cell[0] = np.random.Generator(kind(seed))
        generator.integers(0, 10, 4 - has_half, dtype="uint32")
        saved = save()
        first = [generator.integers(0, 10, 5, dtype="uint32"), generator.normal(size=5)]
        restore_saved_state(saved)
        again = [generator.integers(0, 10, 5, dtype="uint32"), generator.normal(size=5)]
        np.testing.assert_array_equal(first, again, strict=True)


def test_the_memory_of_numpy_s_default_generator_is_copied():
    """A copy takes a tenth of the time; a NumPy that lays it out in another way would silently be slower."""
    assert rng_state._is_copyable(np.random.PCG64)
    assert rng_state._is_copyable(np.random.PCG64DXSM)
    assert not rng_state._is_copyable(np.random.MT19937)
