"""Samplers in both floatX, on variables whose log density PyMC computes in float64 whatever floatX is."""

import numpy as np
import pytensor
import pytest

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc import sample  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.hamiltonian import Hamiltonian  # noqa: E402
from tests.helpers import assert_on_device, on_one_driver  # noqa: E402

COUNTS = np.array([3, 5, 1, 4])
ALPHA = np.array([2.0, 3.0, 4.0])
COVARIATE = np.array([-1.0, 0.5, 2.0])
OUTCOME = np.array([-1.2, 0.3, 2.5])
MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[4.0, 1.8], [1.8, 1.0]])


def mixed_model(whole=True):
    """Counts and a float64 covariate; Dirichlet, LKJ and multivariate normal distributions, and an autoregression."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0)
        pm.Poisson("counts", rate, observed=COUNTS)
        slope = pm.Normal("slope", 0, 2)
        pm.Normal("outcome", slope * COVARIATE, 1, observed=OUTCOME)
        if whole:
            pm.Dirichlet("share", ALPHA)
            pm.LKJCholeskyCov("factor", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0), compute_corr=False)
            pm.MvNormal("pair", MEAN, COVARIANCE)
            pm.AR("walk", rho=np.array([0.5]), sigma=1.0, init_dist=pm.Normal.dist(0, 1), shape=3)
    return model


def expected_moments(draws):
    """Yield quantities of the draws with their exact means and standard deviations."""
    yield draws.rate.values, (2 + COUNTS.sum()) / 5, np.sqrt(2 + COUNTS.sum()) / 5
    precision = 1 / 4 + COVARIATE @ COVARIATE
    yield draws.slope.values, COVARIATE @ OUTCOME / precision, precision**-0.5
    if "share" not in draws:
        return
    total = ALPHA.sum()
    deviations = np.sqrt(ALPHA * (total - ALPHA) / (total**2 * (total + 1)))
    for i in range(3):
        yield draws.share.values[..., i], ALPHA[i] / total, deviations[i]
    # The correlation has mean 0 and variance 1/5, and the scales are half-normal.
    yield draws.factor.values[..., 0], np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)
    yield draws.factor.values[..., 1], 0.0, np.sqrt(0.2)
    for i in range(2):
        yield draws.pair.values[..., i], MEAN[i], np.sqrt(COVARIANCE[i, i])
    for i, variance in enumerate((1.0, 1.25, 1.3125)):
        yield draws.walk.values[..., i], 0.0, np.sqrt(variance)


@on_one_driver
@pytest.mark.parametrize(
    ("sampler", "dtype", "whole"),
    [
        ("chees", "float32", True),
        ("chees", "float64", True),
        *((name, "float32", False) for name in ("meads", "hmc", "nuts", "smc")),
    ],
)
def test_moments(context, sampler, dtype, whole):
    """Means are those known within 4.5 standard errors; draws have the dtype of floatX."""
    with pytensor.config.change_flags(floatX=dtype):
        found = sample(
            mixed_model(whole),
            sampler=sampler,
            chains=256,
            draws=8,
            tune=80,
            random_seed=31,
            log_likelihood=sampler == "smc",
            progressbar=False,
        ).posterior
    assert {value.dtype for value in found.data_vars.values()} == {np.dtype(dtype)}
    effective = found.attrs["ess_bulk_min"]
    assert effective > 250
    for values, mean, deviation in expected_moments(found):
        assert abs(values.mean() - mean) < 4.5 * deviation / np.sqrt(effective)
        assert abs(values.std() - deviation) < 4.5 * deviation / np.sqrt(effective / 2) * 1.5


@on_one_driver
def test_float32_density(context, on_device):
    """Log densities and gradients of floatX=float32 agree with PyMC's in float64."""
    model = mixed_model()
    shapes = {name: np.shape(value) for name, value in model.initial_point().items()}
    rng = np.random.default_rng(3)
    start = {name: rng.normal(size=(16, *shape)) for name, shape in shapes.items()}
    reference = model.compile_logp(mode="FAST_RUN")
    expected = [reference({name: value[i] for name, value in start.items()}) for i in range(16)]
    with pytensor.config.change_flags(floatX="float32"):
        density = ModelDensity(mixed_model(), shapes)
        chains = Hamiltonian(density, 16, 1, "OPENCL")
        got = chains.set_positions([start[name] for name in density.names])
        assert chains.trajectory(1e-3, 2).acceptance.min() > 0.99
    assert got.dtype == "float32"
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert_on_device(chains.step, GpuElemwise)
