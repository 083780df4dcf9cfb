"""Models of PyMC with reference posteriors: hierarchies, transforms, mixtures, missing data, time series, processes.

`tools/reference_posteriors.py` writes `posterior_references.json`: means, deviations and effective sample sizes of long
NUTS runs.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def _data(seed):
    return np.random.default_rng(seed)


def radon(centred):
    """Varying intercepts and slopes of groups of unequal size."""
    rng = _data(1)
    sizes = [2, 3, 5, 8, 8, 12, 20, 4]
    group = np.repeat(np.arange(8), sizes)
    x = rng.integers(0, 2, group.size).astype("float64")
    y = (1.4 + 0.5 * rng.normal(size=8))[group] - 0.7 * x + 0.6 * rng.normal(size=group.size)
    with pm.Model(coords={"group": list("abcdefgh"), "row": np.arange(group.size)}) as model:
        floor = pm.Data("floor", x, dims="row")
        mean, slope = pm.Normal("mean", 0, 3), pm.Normal("slope", 0, 2)
        spread, noise = pm.HalfNormal("spread", 1), pm.Exponential("noise", 1)
        if centred:
            level = pm.Normal("level", mean, spread, dims="group")
        else:
            raw = pm.Normal("raw", dims="group")
            level = pm.Deterministic("level", mean + spread * raw, dims="group")
        pm.Normal("y", level[group] + slope * floor, noise, observed=y, dims="row")
    return model


def simplex_and_order():
    """A Dirichlet vector, ordered cut points, a bounded number and an angle."""
    rng = _data(2)
    counts = np.array([14, 30, 6])
    grades = rng.integers(0, 4, 60)
    angles = rng.vonmises(0.8, 3.0, 40)
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(3))
        pm.Multinomial("counts", counts.sum(), shares, observed=counts)
        cuts = pm.Normal("cuts", [-1.0, 0.0, 1.0], 2, transform=pm.distributions.transforms.ordered)
        pm.OrderedLogistic("grades", 0.0, cuts, observed=grades, compute_p=False)
        where = pm.VonMises("where", 0, 0.5)
        narrow = pm.Uniform("narrow", 0.5, 8)
        pm.VonMises("angles", where, narrow, observed=angles)
    return model


def lkj():
    """A multivariate normal distribution with an LKJ prior of its correlations."""
    rng = _data(3)
    covariance = np.array([[1.0, 0.7, 0.0], [0.7, 2.0, -0.5], [0.0, -0.5, 0.5]])
    y = rng.multivariate_normal([1.0, 0.0, -1.0], covariance, 60)
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2, shape=3)
        factor, _, _ = pm.LKJCholeskyCov("factor", n=3, eta=2, sd_dist=pm.Exponential.dist(1.0, shape=3))
        pm.MvNormal("y", mean, chol=factor, observed=y)
    return model


def mixture():
    """A mixture of two normal distributions with ordered means."""
    rng = _data(4)
    y = np.where(rng.random(120) < 0.35, rng.normal(-1.5, 0.6, 120), rng.normal(1.5, 1.0, 120))
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.array([2.0, 2.0]))
        means = pm.Normal(
            "means", [-1.0, 1.0], 2, transform=pm.distributions.transforms.ordered, initval=np.array([-1.0, 1.0])
        )
        scales = pm.LogNormal("scales", 0, 0.5, shape=2)
        pm.NormalMixture("y", weights, means, scales, observed=y)
    return model


def marginalised():
    """A change point and zero inflation, with the discrete variables summed out."""
    rng = _data(5)
    years = np.arange(40)
    y = rng.poisson(np.where(years < 22, 4.0, 1.5))
    zeros = np.where(rng.random(50) < 0.3, 0, rng.poisson(3.0, 50))
    with pm.Model() as model:
        early, late = pm.Exponential("early", 0.5), pm.Exponential("late", 0.5)
        rates = pt.switch(years[None, :] < years[:, None], early, late)
        each = pm.logp(pm.Poisson.dist(rates), y).sum(axis=1)
        pm.Potential("change", pt.logsumexp(each) - np.log(40))
        pm.Deterministic("when", pt.sum(years * pt.special.softmax(each, axis=0)))
        inflation = pm.Beta("inflation", 2, 2)
        rate = pm.Gamma("rate", 2, 1)
        pm.ZeroInflatedPoisson("zeros", inflation, rate, observed=zeros)
    return model


def process():
    """A Gaussian process of twenty points with its length, scale and noise."""
    rng = _data(6)
    x = np.sort(rng.uniform(0, 5, 20))[:, None]
    y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.normal(size=20)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5, 5)
        scale = pm.HalfNormal("scale", 1.5)
        noise = pm.HalfNormal("noise", 0.5)
        latent = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.Matern52(1, ls=length))
        latent.marginal_likelihood("y", X=x, y=y, sigma=noise)
    return model


def robust_regression():
    """Linear regression with Student's t, with named coefficients."""
    rng = _data(7)
    x = rng.normal(size=(80, 3))
    y = x @ np.array([1.0, -0.5, 0.0]) + 0.4 * rng.standard_t(3, 80)
    with pm.Model(coords={"column": ["one", "two", "three"], "row": np.arange(80)}) as model:
        design = pm.Data("design", x, dims=("row", "column"))
        slopes = pm.Normal("slopes", 0, 2, dims="column")
        level = pm.Flat("level")
        scale = pm.HalfCauchy("scale", 1)
        freedom = pm.Gamma("freedom", 2, 0.1)
        pm.StudentT("y", freedom, level + design @ slopes, sigma=scale, observed=y, dims="row")
    return model


def counts():
    """Negative binomial regression with an offset and effects that sum to zero."""
    rng = _data(8)
    group = rng.integers(0, 5, 120)
    exposure = rng.uniform(0.5, 2, 120)
    effect = np.array([0.5, -0.3, 0.2, -0.4, 0.0])
    mean = exposure * np.exp(1 + effect[group])
    y = rng.negative_binomial(3, 3 / (3 + mean))
    with pm.Model(coords={"group": np.arange(5)}) as model:
        level = pm.Normal("level", 0, 2)
        spread = pm.HalfNormal("spread", 1)
        effects = pm.ZeroSumNormal("effects", spread, dims="group")
        shape = pm.TruncatedNormal("shape", 3, 3, lower=0.1, upper=20)
        pm.NegativeBinomial("y", mu=exposure * pm.math.exp(level + effects[group]), alpha=shape, observed=y)
    return model


def autoregression():
    """AR(2) noise around a random walk's level."""
    rng = _data(9)
    y = np.zeros(80)
    for t in range(2, 80):
        y[t] = 0.5 * y[t - 1] - 0.3 * y[t - 2] + 0.5 * rng.normal()
    level = np.cumsum(0.2 * rng.normal(size=15))
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.5, shape=3)
        noise = pm.HalfNormal("noise", 1)
        pm.AR("y", rho, sigma=noise, constant=True, init_dist=pm.Normal.dist(0, 1), observed=y)
        step = pm.HalfNormal("step", 0.5)
        walk = pm.GaussianRandomWalk("walk", sigma=step, init_dist=pm.Normal.dist(0, 1), steps=14)
        pm.Normal("seen", walk, 0.3, observed=level + 0.3 * rng.normal(size=15))
    return model


def missing():
    """Missing outcomes and missing covariates are parameters."""
    rng = _data(10)
    x = rng.normal(1, 1, 40)
    y = 0.5 + 1.2 * x + 0.5 * rng.normal(size=40)
    hidden_x, hidden_y = np.zeros(40, bool), np.zeros(40, bool)
    hidden_x[[3, 17, 30]] = hidden_y[[5, 8]] = True
    with pm.Model() as model:
        centre, width = pm.Normal("centre", 0, 2), pm.HalfNormal("width", 2)
        covariate = pm.Normal("covariate", centre, width, observed=np.ma.masked_array(x, hidden_x))
        slope, level, noise = pm.Normal("slope", 0, 2), pm.Normal("level", 0, 2), pm.HalfNormal("noise", 1)
        pm.Normal("y", level + slope * covariate, noise, observed=np.ma.masked_array(y, hidden_y))
    return model


def censored_survival():
    """Weibull times, some of them censored, with a bounded shape."""
    rng = _data(11)
    x = rng.normal(size=60)
    times = np.minimum(rng.weibull(1.5, 60) * np.exp(0.4 * x), 1.5)
    with pm.Model() as model:
        shape = pm.Uniform("shape", 0.2, 5)
        slope, level = pm.Normal("slope", 0, 1), pm.Normal("level", 0, 1)
        ends = pm.Weibull.dist(shape, pm.math.exp(level + slope * x))
        pm.Censored("times", ends, lower=None, upper=1.5, observed=times)
    return model


def softmax_regression():
    """Three categories, with a pivot, and a correlation matrix of coefficients."""
    rng = _data(12)
    x = rng.normal(size=(90, 2))
    true = np.array([[0.0, 1.0, -1.0], [0.0, -0.5, 0.5]])
    p = np.exp(x @ true)
    y = np.array([rng.choice(3, p=row / row.sum()) for row in p])
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1.5, shape=(2, 2))
        scale = pm.HalfStudentT("scale", 4, 1)
        level = pm.Laplace("level", 0, scale, shape=2)
        eta = pt.concatenate([pt.zeros((90, 1)), level + pt.dot(x, beta)], axis=1)
        pm.Categorical("y", logit_p=eta, observed=y)
    return model


MODELS = {
    "radon": lambda: radon(centred=False),
    "radon-centred": lambda: radon(centred=True),
    "simplex-order": simplex_and_order,
    "lkj": lkj,
    "mixture": mixture,
    "marginalised": marginalised,
    "process": process,
    "robust": robust_regression,
    "counts": counts,
    "autoregression": autoregression,
    "missing": missing,
    "censored": censored_survival,
    "softmax": softmax_regression,
}
