"""Evidence of sequential Monte Carlo against closed forms, and the draws from the prior where it begins."""

import warnings

import numpy as np
import pytest
import scipy.stats
from scipy.special import betaln, gammaln

pm = pytest.importorskip("pymc")
pytest.importorskip("arviz_base")

from pymc.exceptions import SamplingError  # noqa: E402

from pytensor_cl.ops.elemwise import GpuElemwise  # noqa: E402
from pytensor_cl.pymc import sample  # noqa: E402
from pytensor_cl.pymc.density import ModelDensity  # noqa: E402
from pytensor_cl.pymc.hamiltonian import Hamiltonian  # noqa: E402
from pytensor_cl.pymc.prior import PriorDraws  # noqa: E402
from pytensor_cl.pymc.tempering import next_temperature, temper  # noqa: E402
from tests.helpers import assert_on_device, on_one_driver  # noqa: E402

OBSERVED = np.array([1.2, 0.4, 2.1, 1.7])


def uniform_of_unknown_length():
    """The likelihood is zero on half of the prior."""
    with pm.Model() as model:
        length = pm.Uniform("length", 0, 10)
        pm.Uniform("y", 0, length, observed=5.0)
    return model, np.log(np.log(10 / 5) / 10)


def conjugate_normal():
    """The variable has an initial value, which is no draw from its prior."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2, initval=1.5)
        pm.Normal("y", mean, 1, observed=OBSERVED)
    return model, scipy.stats.multivariate_normal.logpdf(OBSERVED, np.zeros(4), np.eye(4) + 4)


def beta_binomial(first=2.0, second=3.0, tries=20, good=17):
    with pm.Model() as model:
        share = pm.Beta("share", first, second)
        pm.Binomial("y", tries, share, observed=good)
    ways = gammaln(tries + 1) - gammaln(good + 1) - gammaln(tries - good + 1)
    return model, ways + betaln(first + good, second + tries - good) - betaln(first, second)


def beta_at_its_bounds():
    """A fifth of the draws from the prior is 1.0 in floating point."""
    return beta_binomial(0.02, 0.02)


def zero_on_most_of_the_prior():
    """The likelihood is zero on 90 percent of it."""
    bound = scipy.stats.norm.ppf(0.9)
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("above", pm.math.switch(x > bound, 0.0, -np.inf))
        pm.Normal("y", x, 0.5, observed=1.0)
    grid = np.linspace(bound, 12, 100_001)
    return model, np.log(np.trapezoid(scipy.stats.norm.pdf(grid) * scipy.stats.norm.pdf(1.0, grid, 0.5), grid))


def very_sharp_likelihood():
    """The first temperature is about 1e-13."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 5)
        pm.Normal("y", x, 1e-6, observed=3.0)
    return model, scipy.stats.norm.logpdf(3.0, 0, 5)


def ordered():
    """PyMC's density of ordered variables is that of all orders: the integral over one order is a sixth of it."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=3, transform=pm.distributions.transforms.ordered)
        pm.Normal("y", x.sum(), 1, observed=1.0)
    return model, scipy.stats.norm.logpdf(1.0, 0, 2) - np.log(6)


def scale_that_may_be_negative():
    """Half of the draws of the scale are no scale: there is no draw of what it scales, and the density is zero."""
    with pm.Model() as model:
        scale = pm.Normal("scale", 0, 1)
        x = pm.Normal("x", 0, scale)
        pm.Normal("y", x, 1, observed=0.5)
    grid = np.linspace(0, 12, 20_001)
    return model, np.log(
        np.trapezoid(scipy.stats.norm.pdf(grid) * scipy.stats.norm.pdf(0.5, 0, np.hypot(grid, 1)), grid)
    )


def no_likelihood():
    with pm.Model() as model:
        pm.Normal("x", 0, 1)
    return model, 0.0


def particles(model, chains, mode="FAST_COMPILE"):
    prior = PriorDraws(model)
    return prior, Hamiltonian(ModelDensity(model, prior.shapes(), tempered=True), chains, 1, mode)


@pytest.mark.parametrize(
    ("build", "number"),
    [
        (uniform_of_unknown_length, 128),
        (conjugate_normal, 128),
        (beta_binomial, 128),
        (beta_at_its_bounds, 512),
        (zero_on_most_of_the_prior, 128),
        (very_sharp_likelihood, 256),
        (ordered, 128),
        (scale_that_may_be_negative, 128),
    ],
)
@on_one_driver
def test_evidence(context, build, number):
    """The mean over seeds is within 4.5 standard errors, and the deviation is small."""
    model, expected = build()
    prior, chains = particles(model, number, "OPENCL")
    assert_on_device(chains.step, GpuElemwise)
    found = []
    for seed in range(6):
        chains.set_inverse_temperature(1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            _, log_share = prior.find(seed, number, chains.set_positions)
            found.append(temper(chains, np.random.SeedSequence(seed), 8, log_share, prior.is_rounded)[0])
    evidence = np.exp(np.array(found) - expected)  # the estimate without bias is that of the evidence itself
    error = evidence.std(ddof=1) / np.sqrt(len(evidence))
    assert abs(evidence.mean() - 1) < 4.5 * error, found
    assert evidence.std() < 0.5


def test_evidence_without_likelihood():
    """It is 1."""
    model, expected = no_likelihood()
    prior, chains = particles(model, 8)
    _, log_share = prior.find(1, 8, chains.set_positions)
    assert temper(chains, np.random.SeedSequence(1), 1, log_share) == (expected, 1)


def test_zero_likelihood_to_the_power_zero():
    """At temperature 0 the density is the prior's, also where the likelihood is zero."""
    model, _ = uniform_of_unknown_length()
    _, chains = particles(model, 4)
    chains.set_inverse_temperature(0.0)
    x = np.array([-3.0, -1.0, 1.0, 3.0])
    np.testing.assert_allclose(chains.set_positions([x]), scipy.stats.logistic.logpdf(x), rtol=1e-6)


def test_initial_values_play_no_part():
    """Draws from the prior have its moments, and `initvals` is an error."""
    model, _ = conjugate_normal()
    (draws,), log_share = PriorDraws(model).find(3, 1024, lambda points: np.zeros(1024))
    assert log_share == 0
    assert scipy.stats.kstest(draws, scipy.stats.norm(0, 2).cdf).pvalue > 1e-4
    with pytest.raises(ValueError, match="takes no initvals"):
        sample(model, sampler="smc", initvals={"mean": 1.0})


def test_likelihood_that_is_zero_or_not_a_number(rng):
    """Zero everywhere is an error; what is NaN, and fewer points than particles, are said."""
    with pm.Model() as model:
        pm.Normal("x")
    prior = PriorDraws(model)
    with pytest.raises(SamplingError, match="zero at all of 800 draws"):
        prior.find(1, 8, lambda points: np.full(8, -np.inf))
    with np.errstate(invalid="ignore"), pytest.warns(UserWarning, match="NaN or infinite at"):
        (points,), log_share = prior.find(1, 64, lambda points: np.sqrt(points[0]))
    assert (points >= 0).all()
    assert log_share == pytest.approx(np.log(0.5), abs=0.35)
    with pytest.warns(UserWarning, match="begin at"):
        (points,), log_share = prior.find(1, 16, lambda points: np.where(points[0] > 2.6, 0, -np.inf))
    different = len(np.unique(points))
    assert 0 < different < 16
    assert log_share == pytest.approx(np.log(different / 1600))


def test_particles_that_do_not_move_are_said():
    """Without moves, particles that were resampled often are copies of a few."""
    model, _ = very_sharp_likelihood()
    prior, chains = particles(model, 64)
    _, log_share = prior.find(1, 64, chains.set_positions)
    with pytest.warns(UserWarning, match="particles collapsed"):
        temper(chains, np.random.SeedSequence(1), 0, log_share)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e12, 1e280])
def test_temperature_follows_the_effective_size_at_every_scale(rng, scale):
    """Half of the particles count, whatever the unit of the log likelihood; those of likelihood zero have no part."""
    log_likelihood = -scale * rng.chisquare(3, size=400)
    log_likelihood[::8] = -np.inf
    found = next_temperature(log_likelihood, 0.0)
    if scale < 1:
        assert found == 1
        return
    finite = log_likelihood[np.isfinite(log_likelihood)]
    weights = np.exp(found * (finite - finite.max()))
    assert weights.sum() ** 2 / (weights**2).sum() == pytest.approx(len(finite) / 2, rel=1e-3)
