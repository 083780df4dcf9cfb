"""From draws to the result: memory is bounded, and what cannot be computed or held costs nothing else."""

import tracemalloc

import numpy as np
import pytensor.tensor as pt
import pytest
import scipy.stats
from pytensor.raise_op import Assert

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pytensor_cl.pymc import memory, posterior, sample  # noqa: E402

ROWS = 5000
OBSERVED = np.linspace(-1, 1, ROWS)


@pytest.fixture
def draws(rng):
    return [rng.normal(size=(20, 50)), rng.normal(size=(20, 50))]


@pytest.fixture
def model():
    """Two parameters, and values that make thousands of numbers on the way."""
    with pm.Model() as model:
        x = pm.Normal("x")
        scale = pm.HalfNormal("scale")
        pm.Deterministic("energy", pm.math.sqr(x * OBSERVED).sum())
        pm.Deterministic("rows", x + OBSERVED)
        pm.Normal("y", x, scale, observed=OBSERVED)
    return model


def test_memory_is_bounded(model, draws, monkeypatch):
    """Intermediate values of all draws would take 40 MB each; blocks of them take a bounded number of bytes."""
    monkeypatch.setattr(posterior, "_BLOCK_BYTES", 2**21)
    tracemalloc.start()
    found = posterior.constrain(model, draws, ["energy", "scale"], "FAST_COMPILE")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5e7
    np.testing.assert_allclose(found["energy"], (OBSERVED**2).sum() * draws[0] ** 2, rtol=1e-6)
    np.testing.assert_allclose(found["scale"], np.exp(draws[1]), rtol=1e-6)


def test_smaller_blocks_where_memory_is_not_enough(model, draws, monkeypatch):
    """A call that runs out of memory is repeated with fewer draws."""
    compile_function, sizes = posterior.pytensor.function, []

    def fails_for_many(*args, name=None, **kwargs):
        function = compile_function(*args, name=name, **kwargs)

        def call(*values):
            sizes.append(len(values[0]))
            if sizes[-1] > 100:
                raise MemoryError
            return function(*values)

        return call if name == "constrain" else function

    monkeypatch.setattr(posterior.pytensor, "function", fails_for_many)
    found = posterior.constrain(model, draws, None, "FAST_COMPILE")
    assert sizes[0] > 100 > max(sizes[5:])
    np.testing.assert_allclose(found["rows"], draws[0][..., None] + OBSERVED, rtol=1e-6)


def test_what_memory_does_not_hold_is_named(model, draws, monkeypatch):
    monkeypatch.setattr(posterior, "available_memory", lambda: 30_000_000)
    with pytest.warns(UserWarning, match="rows is not in the result: it takes 0.0 GB.*var_names"):
        found = posterior.constrain(model, draws, None, "FAST_COMPILE")
    assert set(found) == {"x", "scale", "energy"}
    with pytest.warns(UserWarning, match="log likelihood of y is not in the result"):
        assert posterior.log_likelihood(model, draws, "FAST_COMPILE") == {}
    monkeypatch.setattr(posterior, "available_memory", lambda: 10**9)
    found = posterior.log_likelihood(model, draws, "FAST_COMPILE")["y"]
    expected = scipy.stats.norm.logpdf(OBSERVED, draws[0][..., None], np.exp(draws[1])[..., None])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_variable_that_cannot_be_computed_costs_no_draws():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Deterministic("positive", Assert("not positive")(x, pt.gt(x, 0)))
        pm.Deterministic("double", 2 * x)
    with pytest.warns(UserWarning, match="positive is not in the result: AssertionError: not positive"):
        found = posterior.constrain(model, [np.array([[1.0, -1.0]])], None, "FAST_COMPILE")
    np.testing.assert_array_equal(found["double"], [[2.0, -2.0]])
    assert set(found) == {"x", "double"}


def test_constant_is_the_same_in_all_draws():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Deterministic("fixed", pt.as_tensor([1.0, 2.0]))
    found = posterior.constrain(model, [np.zeros((3, 4))], None, "FAST_COMPILE")
    np.testing.assert_array_equal(found["fixed"], np.broadcast_to([1.0, 2.0], (3, 4, 2)))


def test_draws_that_memory_does_not_hold_are_said_first(model):
    with pytest.raises(MemoryError, match="draws of 1,024 chains of 2 parameters take"):
        sample(model, draws=10**12, progressbar=False)


def test_available_memory():
    """It is less than the limit of a control group or of the address space, and what cannot be read is no limit."""
    assert memory.available_memory() > 0
    assert memory._numbers("/no/such/file") == {}
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = memory._numbers("/proc/self/status").get("VmSize")
    if used is None:
        pytest.skip("no /proc")
    try:
        resource.setrlimit(resource.RLIMIT_AS, (1024 * used + 2**28, limits[1]))
        assert memory.available_memory() <= 2**28
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
