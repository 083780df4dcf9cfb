"""Posteriors of many chains against known ones; the kernels run on the device."""

import numpy as np
import pytest
import scipy.stats
from pytensor.tensor.elemwise import DimShuffle

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pytensor_cl.errors import ContextNotDefined  # noqa: E402
from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc import sample  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.device_trees import DeviceTreeChains  # noqa: E402
from pytensor_cl.pymc.hamiltonian import Hamiltonian  # noqa: E402
from pytensor_cl.pymc.langevin import Langevin  # noqa: E402
from pytensor_cl.pymc.nuts import TreeChains  # noqa: E402
from pytensor_cl.runtime.registry import add_context  # noqa: E402
from tests.conftest import DRIVERS  # noqa: E402
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


EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def eight_schools_by_quadrature():
    """Posterior means of mu, tau, and the schools' effects: given tau everything is normal, and one integral is left."""
    tau = np.linspace(1e-3, 200, 200_001)[:, None]
    variance = ERRORS**2 + tau**2
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mu = (EFFECTS / variance).sum(axis=1) / precision
    log_weight = -0.5 * np.log(variance).sum(axis=1) - 0.5 * np.log(precision)
    log_weight += 0.5 * mu**2 * precision - 0.5 * (EFFECTS**2 / variance).sum(axis=1) - np.log(25 + tau[:, 0] ** 2)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    theta = (EFFECTS * tau**2 + mu[:, None] * ERRORS**2) / variance
    return weight @ mu, weight @ tau[:, 0], weight @ theta


@on_one_driver
@pytest.mark.parametrize("sampler", ["chees", "meads", "hmc", "nuts"])
def test_eight_schools(context, sampler):
    """Non-centred eight schools, against a numerical integral; early stop at an effective sample size."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, shape=8)
        theta = pm.Deterministic("theta", mu + tau * z)
        pm.Normal("y", theta, ERRORS, observed=EFFECTS)
    found = sample(
        model, sampler=sampler, chains=128, draws=200, tune=100, target_ess=3000, random_seed=11, progressbar=False
    )
    posterior = found.posterior
    assert posterior.attrs["ess_bulk_min"] >= 3000
    assert posterior.sizes["draw"] < 200
    expected = eight_schools_by_quadrature()
    np.testing.assert_allclose(posterior.mu.values.mean(), expected[0], atol=0.3)
    np.testing.assert_allclose(posterior.tau.values.mean(), expected[1], atol=0.35)
    np.testing.assert_allclose(posterior.theta.values.mean(axis=(0, 1)), expected[2], atol=0.5)


@on_one_driver
@pytest.mark.parametrize("sampler", ["chees", "nuts"])
def test_correlated_normal(context, sampler):
    """A multivariate normal distribution keeps its mean and covariance."""
    covariance = np.array([[4.0, 1.8, 0.0], [1.8, 1.0, -0.2], [0.0, -0.2, 0.25]])
    with pm.Model() as model:
        pm.MvNormal("x", np.array([1.0, -2.0, 0.0]), covariance)
    found = sample(
        model, sampler=sampler, chains=128, draws=60, tune=80, random_seed=5, progressbar=False
    ).posterior  # fmt: skip
    draws = found.x.values.reshape(-1, 3)
    assert found.attrs["ess_bulk_min"] > 1000
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -2.0, 0.0], atol=0.25)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.45)


@on_one_driver
def test_simulation_based_calibration(context):
    """The ranks of parameters drawn from the prior among draws from their posteriors are uniform.

    One model has all replications: they are independent of each other.
    """
    replications, rows = 60, 8
    rng = np.random.default_rng(20)
    true_mean = rng.normal(size=replications)
    true_scale = np.abs(rng.normal(size=replications))
    observed = true_mean[:, None] + true_scale[:, None] * rng.normal(size=(replications, rows))
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1, shape=replications)
        scale = pm.HalfNormal("scale", 1, shape=replications)
        pm.Normal("y", mean[:, None], scale[:, None], observed=observed)
    found = sample(model, chains=100, draws=10, tune=60, target_accept=0.8, random_seed=8, progressbar=False).posterior
    for draws, true in ((found["mean"].values, true_mean), (found["scale"].values, true_scale)):
        # One draw of each chain: they are independent.
        ranks = (draws[:, -1] < true).mean(axis=0)
        counts = np.histogram(ranks, bins=6, range=(0, 1))[0]
        chi_square = ((counts - replications / 6) ** 2 / (replications / 6)).sum()
        assert chi_square < 20.5, counts  # the 0.999 quantile with 5 degrees of freedom


@on_one_driver
def test_tempering(context):
    """Two modes keep their weights, and the marginal likelihood is the one known."""
    deviation, observed = 0.3, 2.0
    with pm.Model() as model:
        x = pm.Normal("x", 0.1, 1)
        pm.Normal("y", pm.math.abs(2 * x), deviation, observed=observed)
    found = sample(model, sampler="smc", chains=512, draws=10, tune=30, random_seed=4, progressbar=False).posterior
    grid = np.linspace(-6, 6, 100_001)
    density = np.exp(-0.5 * (grid - 0.1) ** 2 - 0.5 * ((observed - np.abs(2 * grid)) / deviation) ** 2)
    density /= 2 * np.pi * deviation
    evidence = density.sum() * (grid[1] - grid[0])
    np.testing.assert_allclose(found.attrs["log_marginal_likelihood"], np.log(evidence), atol=0.35)
    positive = density[grid > 0].sum() / density.sum()
    np.testing.assert_allclose((found.x.values > 0).mean(), positive, atol=0.15)


@on_one_driver
def test_meads_steps_are_on_device(context, on_device):
    """The mean and deviation of a scaled normal posterior; the step is a function of the device."""
    with pm.Model() as model:
        pm.Normal("x", [1.0, -2.0, 0.0], [0.1, 1.0, 20.0])
    found = sample(
        model,
        sampler="meads",
        chains=128,
        draws=40,
        tune=100,
        random_seed=6,
        initvals={"x": np.zeros(3)},
        progressbar=False,
    ).posterior
    assert found.attrs["ess_bulk_min"] > 500
    assert found.attrs["divergences"] == 0
    for i, (mean, deviation) in enumerate([(1.0, 0.1), (-2.0, 1.0), (0.0, 20.0)]):
        assert_mean(found.x.values[:, :, i], mean, deviation, found.attrs["ess_bulk_min"])
    chains = Langevin(ModelDensity(model, {"x": (3,)}), 16, 1, "OPENCL")
    assert_on_device(chains.advance, GpuElemwise)


@on_one_driver
@pytest.mark.parametrize("sampler", ["chees", "smc"])
def test_several_devices(context, sampler):
    """The draws are the same, bit for bit, whether one context or two have the chains; the posterior is right."""
    add_context("second", f"opencl:{context.name}")
    options = {"chains": 64, "draws": 10, "tune": 40, "random_seed": 9, "progressbar": False, "sampler": sampler}
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        pm.Normal("y", mu, 1, observed=OBSERVED)
    one = sample(model, devices=[context.name], **options).posterior
    two = sample(model, devices=[context.name, "second"], **options).posterior
    np.testing.assert_array_equal(one.mu.values, two.mu.values)
    precision = 1 / 4 + len(OBSERVED)
    assert_mean(one.mu.values, OBSERVED.sum() / precision, precision**-0.5, one.attrs["ess_bulk_min"])
    assert len(np.unique(one.mu.values)) > 300  # no two parts have the same random numbers


@pytest.mark.skipif(len(DRIVERS) < 2, reason="needs two drivers")
def test_devices_of_two_drivers(context):
    """Chains on two drivers at once."""
    with pm.Model() as model:
        pm.Normal("x", [1.0, -2.0], [0.5, 3.0])
    found = sample(model, devices=DRIVERS[:2], chains=64, draws=20, tune=40, random_seed=2, progressbar=False).posterior
    for i, (mean, deviation) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):
        assert_mean(found.x.values[:, :, i], mean, deviation, found.attrs["ess_bulk_min"])


@on_one_driver
def test_log_likelihood_and_constants(context):
    """Each observation's log density, with the model's coordinates; data that are not observed; angles stay in their period."""
    x = np.array([0.5, -1.0, 2.0])
    with pm.Model(coords={"row": ["a", "b", "c"]}) as model:
        design = pm.Data("design", x, dims="row")
        slope = pm.Normal("slope", 0, 1)
        angle = pm.VonMises("angle", 0, 0.1)
        pm.Normal("y", slope * design + pm.math.sin(angle), 0.5, observed=[0.4, -0.9, 1.5], dims="row")
    found = sample(model, chains=32, draws=6, tune=40, log_likelihood=True, random_seed=1, progressbar=False)
    np.testing.assert_array_equal(found.constant_data["design"].values, x)
    density = found.log_likelihood["y"]
    assert density.dims == ("chain", "draw", "row")
    draws = found.posterior
    mean = draws.slope.values[..., None] * x + np.sin(draws.angle.values)[..., None]
    np.testing.assert_allclose(density.values, scipy.stats.norm.logpdf([0.4, -0.9, 1.5], mean, 0.5), rtol=1e-6)
    assert np.abs(draws.angle.values).max() <= np.pi
    assert draws.attrs["nested_rhat_max"] < 1.2


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
@pytest.mark.parametrize("trees", ["host", "device"])
def test_nuts(context, on_device, trees):
    """Gradients on the device; the same draws for a seed; statistics that agree with each other; angles in their period."""
    with pm.Model() as model:
        pm.Normal("x", [1.0, -2.0], [0.5, 3.0])
        pm.VonMises("angle", 3.0, 0.5)
    options = {"chains": 64, "draws": 30, "tune": 50, "random_seed": 2, "max_steps": 15, "progressbar": False}
    options["trees"] = trees
    found, again = (sample(model, sampler="nuts", **options) for _ in range(2))
    posterior, stats = found.posterior, found.sample_stats
    np.testing.assert_array_equal(again.posterior.x.values, posterior.x.values)
    for i, (mean, deviation) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):
        assert_mean(posterior.x.values[:, :, i], mean, deviation, posterior.attrs["ess_bulk_min"])
    assert np.abs(posterior.angle.values).max() <= np.pi
    steps, depth = stats.n_steps.values, stats.tree_depth.values
    assert (steps < 2**depth).all()
    assert (steps >= 2 ** (depth - 1)).all()
    assert depth.max() <= 4
    deepest = stats.reached_max_treedepth.values
    assert (steps[deepest] == 15).all()
    assert len(np.unique(steps)) > 2  # chains do not move in step
    np.testing.assert_allclose(stats.lp, scipy.stats.norm.logpdf(posterior.x, [1.0, -2.0], [0.5, 3.0]).sum(-1)
                               + scipy.stats.vonmises.logpdf(posterior.angle, 0.5, 3.0), rtol=1e-6)  # fmt: skip
    density = ModelDensity(model, {"x": (2,), "angle_circular__": ()})
    kind = DeviceTreeChains if trees == "device" else TreeChains
    chains = kind(density, 8, np.random.SeedSequence(1), "OPENCL", 15)
    assert_on_device(chains.evaluate, GpuElemwise)


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
        pm.HalfFlat("x")
    with pytest.raises(ValueError, match="the prior of x is improper"):
        sample(model, sampler="smc")
    with pm.Model() as model:
        pm.ICAR("x", np.array([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match="cannot be drawn: .*ICAR"):
        sample(model, sampler="smc", progressbar=False)
    with pm.Model() as model:
        pm.Normal("x")
    with pytest.raises(ContextNotDefined, match="no_such_device"):
        sample(model, devices=["no_such_device"])
    for options, message in (
        ({"sampler": "gibbs"}, "no sampler 'gibbs'"),
        ({"devices": ["dev0"], "sampler": "nuts"}, "runs on one device"),
        ({"trees": "device"}, "trees= is for sampler 'nuts'"),
        ({"trees": "gpu", "sampler": "nuts"}, "trees must be 'device' or 'host'"),
        ({"trees": "device", "sampler": "nuts", "mode": "FAST_COMPILE"}, "needs mode OPENCL"),
        ({"chains": 1}, "chains must be at least 2"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"superchains": 7}, "cannot be divided"),
        ({"target_accept": 1.5}, "between 0 and 1"),
        ({"devices": []}, "one to 4 different names"),
        ({"devices": ["a", "a"]}, "one to 4 different names"),
        ({"devices": ["dev0"], "chains": 10}, "multiple of 4"),
        ({"devices": ["dev0"], "sampler": "meads"}, "runs on one device"),
        ({"sampler": "meads", "target_accept": 0.8}, "has no target_accept"),
        ({"sampler": "meads", "chains": 4}, "chains must be at least 8"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(model, **options)
