"""Print evidences that sampler "smc" estimates, beside their closed forms.

usage: python -m tools.evidence [--chains 256] [--seeds 10]
"""

import argparse
import warnings

import numpy as np
import pymc as pm
import scipy.stats

import pytensor_cl.pymc  # noqa: F401  registers what models need
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import Hamiltonian
from pytensor_cl.pymc.prior import PriorDraws
from pytensor_cl.pymc.tempering import temper
from tests.pymc import test_evidence as closed_forms


def many_observations():
    """A mean of 10,000 observations with a deviation of 1e-4; its prior has a deviation of 5."""
    n, deviation = 10_000, 1e-4
    observed = np.random.default_rng(0).normal(3, deviation, n)
    mean, variance = observed.mean(), deviation**2
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        pm.Normal("y", mu, deviation, observed=observed)
    evidence = -0.5 * n * np.log(2 * np.pi * variance) - ((observed - mean) ** 2).sum() / (2 * variance)
    evidence += 0.5 * np.log(2 * np.pi * variance / n) + scipy.stats.norm.logpdf(
        mean, 0, np.hypot(5, deviation / n**0.5)
    )
    return model, evidence


def many_means():
    """20 means with one observation each, of a deviation of 0.05."""
    observed = np.linspace(-2, 2, 20)
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=20)
        pm.Normal("y", x, 0.05, observed=observed)
    return model, scipy.stats.norm.logpdf(observed, 0, np.hypot(1, 0.05)).sum()


MODELS = (
    closed_forms.uniform_of_unknown_length,
    closed_forms.conjugate_normal,
    closed_forms.beta_binomial,
    closed_forms.beta_at_its_bounds,
    closed_forms.zero_on_most_of_the_prior,
    closed_forms.very_sharp_likelihood,
    closed_forms.ordered,
    many_observations,
    many_means,
)


def estimates(model, chains, seeds):
    """Return an estimate for each seed, by functions that are compiled once."""
    prior = PriorDraws(model)
    particles = Hamiltonian(ModelDensity(model, prior.shapes(), tempered=True), chains, 1, "OPENCL")
    found = []
    for seed in range(seeds):
        particles.set_inverse_temperature(1.0)
        _, log_share = prior.find(seed, chains, particles.set_positions)
        found.append(temper(particles, np.random.SeedSequence(seed), 8, log_share, prior.is_rounded)[0])
    return np.array(found)


def main():
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print(f"{'model':30} {'evidence':>12} {'estimate':>12} {'deviation':>10} {'in standard errors':>20}")
    for build in MODELS:
        model, expected = build()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = estimates(model, options.chains, options.seeds)
        deviation = found.std(ddof=1)
        error = (found.mean() - expected) / deviation * np.sqrt(len(found))
        print(f"{build.__name__:30} {expected:12.3f} {found.mean():12.3f} {deviation:10.3f} {error:20.2f}", flush=True)


if __name__ == "__main__":
    main()
