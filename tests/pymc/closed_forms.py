"""Models whose posteriors are known exactly: each of their draws is turned into independent uniform numbers.

A case is a function that returns a model and, by name, functions of the posterior's draws. Such a function is a
distribution function, given the parameters that come before it (Rosenblatt's transform), so that joint distributions
are compared and not only marginal ones. `p_values` compares the draws of many chains with the uniform distribution.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy.stats as st

Uniforms = dict[str, Callable[[Any], np.ndarray]]


class Case(NamedTuple):
    """A model, and functions from its draws to uniform numbers of shape (chains, draws, ...)."""

    model: Any
    uniforms: Uniforms


def conjugate() -> Case:
    """Normal observations of unknown mean and variance, counts, successes and shares, of which one is near its bound."""
    y = np.array([1.3, 0.2, -0.7, 2.1, 0.9, 1.8])
    successes, trials = 0, 5
    events, exposure = np.array([3, 0, 2]), 1.0
    seen, weights = np.array([0, 3, 1]), np.array([0.3, 0.3, 0.4])
    with pm.Model() as model:
        variance = pm.InverseGamma("variance", 3, 2)
        mean = pm.Normal("mean", 0.5, pt.sqrt(variance / 2))
        pm.Normal("y", mean, pt.sqrt(variance), observed=y)
        rate = pm.Gamma("rate", 0.8, 1)
        pm.Poisson("events", rate * exposure, observed=events)
        chance = pm.Beta("chance", 0.5, 0.5)
        pm.Binomial("successes", trials, chance, observed=successes)
        shares = pm.Dirichlet("shares", weights)
        pm.Multinomial("seen", seen.sum(), shares, observed=seen)
    size, precision = y.size, 2 + y.size
    centre = (2 * 0.5 + y.sum()) / precision
    scale = 2 + 0.5 * ((y**2).sum() + 2 * 0.5**2 - precision * centre**2)
    of_variance = st.invgamma(3 + size / 2, scale=scale)
    of_rate = st.gamma(0.8 + events.sum(), scale=1 / (1 + exposure * events.size))
    of_chance = st.beta(0.5 + successes, 0.5 + trials - successes)
    a, b, c = weights + seen

    def rest(p: Any) -> np.ndarray:
        second, third = p.shares.values[..., 1], p.shares.values[..., 2]
        return st.beta(b, c).cdf(second / (second + third))

    return Case(
        model,
        {
            "variance": lambda p: of_variance.cdf(p.variance.values),
            "mean": lambda p: st.norm.cdf((p["mean"].values - centre) * np.sqrt(precision / p.variance.values)),
            "rate": lambda p: of_rate.cdf(p.rate.values),
            "chance": lambda p: of_chance.cdf(p.chance.values),
            "share": lambda p: st.beta(a, b + c).cdf(p.shares.values[..., 0]),
            "rest of the shares": rest,
        },
    )


def correlated() -> Case:
    """Slopes of two covariates with a correlation of 0.999, and five normal variables with one of 0.999."""
    rng = np.random.default_rng(11)
    common = rng.normal(size=(20, 1))
    x = common + 0.0316 * rng.normal(size=(20, 2))
    y = x @ np.array([1.0, -1.0]) + 0.5 * rng.normal(size=20)
    covariance = np.full((5, 5), 0.999) + 0.001 * np.eye(5)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 3, shape=2)
        pm.Normal("y", pm.math.dot(x, slopes), 0.5, observed=y)
        pm.MvNormal("several", np.zeros(5), covariance)
    precision = x.T @ x / 0.25 + np.eye(2) / 9
    centre = np.linalg.solve(precision, x.T @ y / 0.25)
    roots = np.linalg.cholesky(precision), np.linalg.cholesky(np.linalg.inv(covariance))
    return Case(
        model,
        {
            "slopes": lambda p: st.norm.cdf((p.slopes.values - centre) @ roots[0]),
            "several": lambda p: st.norm.cdf(p.several.values @ roots[1]),
        },
    )


def funnel(deviation: float = 1.5) -> Case:
    """A scale's logarithm, and six normal variables of that scale."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, deviation)
        pm.Normal("x", 0, pm.math.exp(v / 2), shape=6)
    return Case(
        model,
        {
            "v": lambda p: st.norm.cdf(p.v.values / deviation),
            "x": lambda p: st.norm.cdf(p.x.values * np.exp(-p.v.values[..., None] / 2)),
        },
    )


def tails() -> Case:
    """Heavy tails, a scale with a Cauchy prior, a lower bound, and both bounds."""
    with pm.Model() as model:
        pm.StudentT("student", nu=3, mu=1, sigma=2, shape=2)
        pm.HalfCauchy("scale", 2)
        pm.Exponential("waiting", 0.5)
        pm.Uniform("between", -1, 3)
        pm.Laplace("laplace", 0, 1)
    return Case(
        model,
        {
            "student": lambda p: st.t(3, 1, 2).cdf(p.student.values),
            "scale": lambda p: st.halfcauchy(scale=2).cdf(p.scale.values),
            "waiting": lambda p: st.expon(scale=2).cdf(p.waiting.values),
            "between": lambda p: (p.between.values + 1) / 4,
            "laplace": lambda p: st.laplace.cdf(p.laplace.values),
        },
    )


def groups() -> Case:
    """Mixtures with the groups summed out: of a variable, and of observations with an unknown share of two groups.

    The likelihood of the share is a polynomial, so its posterior is a mixture of Beta distributions.
    """
    share = np.array([0.3, 0.7])
    means, deviations = np.array([-1.5, 1.5]), np.array([1.0, 0.6])
    y = np.array([-1.0, 0.4, 1.2, 2.0, 0.1, 1.5])
    with pm.Model() as model:
        pm.NormalMixture("x", share, means, deviations)
        w = pm.Beta("w", 1.5, 1.5)
        pm.NormalMixture("y", pt.stack([w, 1 - w]), means, deviations, observed=y)
    terms = np.ones(1)
    for first, second in st.norm.pdf(y[:, None], means, deviations):
        terms = np.append(terms * second, 0) + np.append(0, terms * first)
    first = 1.5 + np.arange(y.size + 1)
    log_parts = np.log(terms) + np.array([_log_beta(a, 3 + y.size - a) for a in first])
    parts = np.exp(log_parts - log_parts.max())
    parts /= parts.sum()
    return Case(
        model,
        {
            "x": lambda p: st.norm.cdf((p.x.values[..., None] - means) / deviations) @ share,
            "w": lambda p: st.beta.cdf(p.w.values[..., None], first, 3 + y.size - first) @ parts,
        },
    )


def _log_beta(a: float, b: float) -> float:
    from scipy.special import betaln

    return float(betaln(a, b))


CASES: Mapping[str, Callable[[], Case]] = {
    "conjugate": conjugate,
    "correlated": correlated,
    "funnel": funnel,
    "tails": tails,
    "groups": groups,
}


def p_values(uniforms: Uniforms, posterior: Any) -> dict[str, float]:
    """Return p values of the first and of the last draw of all chains, by name.

    Three tests of each number are made: Kolmogorov's, and of the mean and the variance of its normal score. The
    smallest p value of a name is multiplied by their number.
    """
    found = {}
    for name, function in uniforms.items():
        values = np.asarray(function(posterior), "float64")
        values = values.reshape(*values.shape[:2], -1)[:, [0, -1]].reshape(len(values), -1)
        found[name] = min(1.0, 3 * values.shape[1] * min(map(_smallest_p, values.T)))
    return found


def _smallest_p(uniform: np.ndarray) -> float:
    """Return the smallest p value of three tests of independent numbers that should be uniform."""
    score = st.norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-7))
    n = score.size
    errors = np.array([score.mean() * np.sqrt(n), (score.var() - 1) * np.sqrt(n / 2)])
    return float(min(st.kstest(uniform, "uniform").pvalue, *(2 * st.norm.sf(np.abs(errors)))))
