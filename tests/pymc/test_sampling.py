"""Posteriors of many chains against known ones; the kernels run on the device."""

import numpy as np
import pytest
from pytensor.tensor.elemwise import DimShuffle

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc import sample  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.hamiltonian import Hamiltonian  # noqa: E402
from tests.helpers import assert_on_device, host_ops, on_one_driver  # noqa: E402

OBSERVED = np.array([1.2, 0.4, 2.1, 1.7])


def conjugate_model():
    """Normal prior (0, 2), normal observations with deviation 1: a normal posterior."""
    with pm.Model(coords={"unit": ["a", "b"]}) as model:
        mu = pm.Normal("mu", 0, 2)
        pm.Normal("shift", 3, 0.5, dims="unit")
        scale = pm.HalfNormal("scale", 2)
        pm.Deterministic("double", 2 * mu)
        pm.Deterministic("square", scale**2)
        pm.Normal("y", mu, 1, observed=OBSERVED)
    return model


def assert_mean(draws, mean, deviation, effective, factor=4.5):
    """The mean and the standard deviation are within Monte Carlo error."""
    assert abs(draws.mean() - mean) < factor * deviation / np.sqrt(effective)
    assert abs(draws.std() - deviation) < factor * deviation / np.sqrt(effective / 2) * 1.5


@on_one_driver
def test_normal_posterior(context):
    """Means and deviations of normal and half-normal parameters, coordinates, deterministics, and the same draws for a seed."""
    model = conjugate_model()
    found = sample(model, chains=64, draws=60, tune=60, random_seed=3, progressbar=False)
    precision = 1 / 4 + len(OBSERVED)
    posterior = found.posterior
    attrs = posterior.attrs
    assert attrs["divergences"] == 0
    assert attrs["ess_bulk_min"] > 500
    assert attrs["nested_rhat_max"] < 1.05
    assert_mean(posterior.mu.values, OBSERVED.sum() / precision, precision**-0.5, attrs["ess_bulk_min"])
    for unit in ("a", "b"):
        assert_mean(posterior["shift"].sel(unit=unit).values, 3, 0.5, attrs["ess_bulk_min"])
    half = 2 * np.sqrt(2 / np.pi)
    assert (posterior.scale.values > 0).all()
    assert_mean(posterior.scale.values, half, np.sqrt(4 - half**2), attrs["ess_bulk_min"])
    np.testing.assert_allclose(posterior["double"].values, 2 * posterior.mu.values)
    np.testing.assert_allclose(posterior["square"].values, posterior.scale.values**2, rtol=1e-6)
    assert posterior.mu.shape == (64, 60)
    assert set(found.sample_stats.data_vars) >= {"diverging", "energy", "lp", "n_steps", "step_size", "acceptance_rate"}
    np.testing.assert_array_equal(found.observed_data["y"].values, OBSERVED)
    again = sample(model, chains=64, draws=60, tune=60, random_seed=3, progressbar=False)
    np.testing.assert_array_equal(again.posterior.mu.values, posterior.mu.values)


@on_one_driver
def test_step_is_on_device(context, on_device):
    """The whole leapfrog step runs on the device, and computes what PyMC's own functions give."""
    model = conjugate_model()
    point = model.initial_point()
    density = ModelDensity(model, {name: np.shape(value) for name, value in point.items()})
    chains = Hamiltonian(density, 40, 1, "OPENCL")
    assert not {type(op) for op in host_ops(chains.step)} - {DimShuffle}  # of the step size
    assert_on_device(chains.step, GpuElemwise)
    rng = np.random.default_rng(7)
    start = [rng.normal(size=(40, *shape)) for shape in density.shapes]
    got = chains.set_positions(start)
    logp = model.compile_logp(mode="FAST_RUN")
    expected = [logp({n: value[i] for n, value in zip(density.names, start, strict=True)}) for i in range(40)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert chains.trajectory(1e-4, 3).acceptance.min() > 0.999


@on_one_driver
def test_bad_chain(context):
    """A parameter that is not allowed gives minus infinity for its chain, and changes no other one."""
    with pm.Model() as model:
        scale = pm.Normal("scale", 1, 1)
        pm.Normal("y", 0, scale, observed=OBSERVED)
    density = ModelDensity(model, {"scale": ()})
    chains = Hamiltonian(density, 3, 1, "OPENCL")
    got = chains.set_positions([np.array([1.0, -1.0, 2.0])])
    assert got[1] == -np.inf
    logp = model.compile_logp(mode="FAST_RUN")
    np.testing.assert_allclose(got[[0, 2]], [logp({"scale": 1.0}), logp({"scale": 2.0})], rtol=1e-6)


def test_bad_arguments():
    """Each is a ValueError with the allowed values."""
    with pm.Model() as model:
        pm.Poisson("n", 3)
    with pytest.raises(ValueError, match="continuous"):
        sample(model)
    with pm.Model() as model:
        pm.Normal("x")
    for options, message in (
        ({"sampler": "gibbs"}, "no sampler 'gibbs'"),
        ({"sampler": "nuts"}, "use 'chees'"),
        ({"chains": 1}, "chains must be at least 2"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"superchains": 7}, "cannot be divided"),
        ({"target_accept": 1.5}, "between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(model, **options)
