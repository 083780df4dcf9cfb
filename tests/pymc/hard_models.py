"""Models of PyMC whose starting points, or scales, lose chains; with the exact moments of most.

The data are simulated in the form of known ones: `regression`, `years` and `two_groups` are posteriordb's sblrc-blr,
kilpisjarvi_mod and low_dim_gauss_mix.
"""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy.special import logsumexp
from scipy.stats import poisson


class Case(NamedTuple):
    """A model and, where they are known, the means and deviations of its parameters by name."""

    model: Any
    exact: dict[str, tuple[np.ndarray, np.ndarray]]


def _linear_moments(design, y, mean, deviation, log_scales, log_prior):
    """Moments of the coefficients and the noise of a linear regression: given the noise the posterior is normal.

    The prior of the coefficients is normal; `log_prior` is that of the noise, as a density of its logarithm.
    """
    weights, centres, squares = [], [], []
    for log_scale, prior in zip(log_scales, log_prior, strict=True):
        precision = design.T @ design / np.exp(2 * log_scale) + np.diag(1 / deviation**2)
        covariance = np.linalg.inv(precision)
        centre = covariance @ (design.T @ y / np.exp(2 * log_scale) + mean / deviation**2)
        rest = y @ y / np.exp(2 * log_scale) + mean @ (mean / deviation**2) - centre @ precision @ centre
        weights.append(prior - y.size * log_scale - 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * rest)
        centres.append(centre)
        squares.append(np.diag(covariance) + centre**2)
    share = np.exp(np.array(weights) - logsumexp(weights))
    scales = np.exp(log_scales)
    coefficients = share @ np.array(centres)
    noise = share @ scales
    return (coefficients, np.sqrt(share @ np.array(squares) - coefficients**2)), (
        noise,
        np.sqrt(share @ scales**2 - noise**2),
    )


def regression():
    """Linear regression with correlated covariates and wide priors."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 5)) @ (np.eye(5) + 0.4 * rng.normal(size=(5, 5)))
    y = x @ np.array([1.0, -2.0, 0.5, 3.0, 0.0]) + rng.normal(size=100)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=5)
        sigma = pm.HalfNormal("sigma", 10)
        pm.Normal("y", pm.math.dot(x, beta), sigma, observed=y)
    logs = np.linspace(-0.6, 0.8, 400)
    moments = _linear_moments(x, y, np.zeros(5), np.full(5, 10.0), logs, -0.5 * np.exp(2 * logs) / 100 + logs)
    return Case(model, dict(zip(("beta", "sigma"), moments, strict=True)))


def years():
    """A trend over years that are not centred: level and slope have a correlation of -0.99999."""
    rng = np.random.default_rng(2)
    year = np.arange(1952, 2014.0)
    y = 9.3 + 0.02 * (year - year.mean()) + rng.normal(size=year.size)
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 9.3, 100)
        beta = pm.Normal("beta", 0, 0.0333)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", alpha + beta * year, sigma, observed=y)
    logs = np.linspace(-0.7, 0.9, 400)
    design = np.stack([np.ones_like(year), year], axis=1)
    (centre, spread), noise = _linear_moments(design, y, np.array([9.3, 0]), np.array([100, 0.0333]), logs, logs)
    exact = {"alpha": (centre[0], spread[0]), "beta": (centre[1], spread[1]), "sigma": noise}
    return Case(model, exact)


def two_groups():
    """A mixture of two normal distributions with ordered means, and a thousand observations."""
    rng = np.random.default_rng(3)
    y = np.where(rng.random(1000) < 0.4, rng.normal(-2.7, 1, 1000), rng.normal(2.9, 1, 1000))
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=np.array([-0.5, 0.5]))
        sigma = pm.HalfNormal("sigma", 2, shape=2)
        theta = pm.Beta("theta", 5, 5)
        pm.NormalMixture("y", pt.stack([theta, 1 - theta]), mu, sigma, observed=y)
    return Case(model, {})


def counts():
    """Poisson regression with a covariate from 0 to 40: a slope of 1 is a rate of exp(40)."""
    rng = np.random.default_rng(4)
    x = np.linspace(0, 40, 60)
    y = rng.poisson(np.exp(0.5 + 0.05 * x))
    with pm.Model() as model:
        a = pm.Normal("a", 0, 5)
        b = pm.Normal("b", 0, 5)
        pm.Poisson("y", pm.math.exp(a + b * x), observed=y)
    a, b = np.linspace(-0.3, 2.2, 301)[:, None], np.linspace(-0.01, 0.085, 301)[None, :]
    log = poisson.logpmf(y, np.exp(a[..., None] + b[..., None] * x)).sum(axis=-1) - (a**2 + b**2) / 50
    share = np.exp(log - logsumexp(log))
    exact = {}
    for name, value in (("a", a), ("b", b)):
        mean = (share * value).sum()
        exact[name] = (mean, np.sqrt((share * value**2).sum() - mean**2))
    return Case(model, exact)


def seasons():
    """An autoregression of order two about the mean of each day of the week, as a loop over 300 days."""
    rng = np.random.default_rng(5)
    day = np.arange(300) % 7
    noise = np.zeros(300)
    for t in range(2, 300):
        noise[t] = 0.37 * noise[t - 1] + 0.3 * noise[t - 2] + 0.5 * rng.normal()
    y = 5 + np.array([2, 1, 0, -1, -2, 0.6, -0.6])[day] + noise
    with pm.Model() as model:
        level = pm.Normal("level", 0, 10)
        season = pm.Normal("season", 0, 2, shape=7)
        phi = pm.Normal("phi", 0, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        mean = level + season[day]
        rest = pt.as_tensor(y) - mean
        expected = pytensor.scan(
            lambda m, last, before, phi: m + phi[0] * last + phi[1] * before,
            sequences=[mean[2:], rest[1:-1], rest[:-2]],
            non_sequences=[phi],
            return_updates=False,
        )
        pm.Normal("y", expected, sigma, observed=y[2:])
    return Case(model, {})


MODELS = {"regression": regression, "years": years, "two groups": two_groups, "counts": counts, "seasons": seasons}


def worst_difference(posterior, exact):
    """The largest difference of a mean from the exact one, and of a deviation, in Monte Carlo standard errors."""
    effective = posterior.attrs["ess_bulk_min"]
    worst = 0.0
    for name, (mean, deviation) in exact.items():
        draws = posterior[name].values
        of_mean = np.abs(draws.mean(axis=(0, 1)) - mean) / deviation * np.sqrt(effective)
        of_deviation = np.abs(draws.std(axis=(0, 1)) / deviation - 1) * np.sqrt(2 * effective)
        worst = max(worst, float(np.max(of_mean)), float(np.max(of_deviation)) / 1.5)
    return worst
