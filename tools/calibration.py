"""Simulation-based calibration (Talts et al. 2018) of `pytensor_cl.pymc.sample` for three models.

usage: python -m tools.calibration [--replications 100] [--samplers chees meads] [--seed 1]

Parameters are drawn from the prior, data from them, and the rank of each parameter among independent draws from its
posterior is found: it is uniform. One PyMC model has all replications, which do not depend on each other. The tool
prints, for each parameter, the p value of a chi-square test of the ranks in ten bins.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy.stats import chisquare

from pytensor_cl.pymc import sample

BINS = 10


class Simulation(NamedTuple):
    """A model of all replications, and the parameters that its data come from.

    Attributes
    ----------
    model : pymc.Model
    true : dict
        Parameters of shape (replications, ...) by name.
    """

    model: Any
    true: dict[str, np.ndarray]


def location_and_scale(n: int, rng: np.random.Generator) -> Simulation:
    """Normal observations with unknown mean and deviation."""
    mean, scale = rng.normal(size=n), np.abs(rng.normal(size=n))
    y = mean[:, None] + scale[:, None] * rng.normal(size=(n, 8))
    with pm.Model() as model:
        m = pm.Normal("mean", 0, 1, shape=n)
        s = pm.HalfNormal("scale", 1, shape=n)
        pm.Normal("y", m[:, None], s[:, None], observed=y)
    return Simulation(model, {"mean": mean, "scale": scale})


def hierarchy(n: int, rng: np.random.Generator) -> Simulation:
    """Six groups of three observations, not centred."""
    centre, spread = rng.normal(size=n), np.abs(rng.normal(size=n))
    raw = rng.normal(size=(n, 6))
    level = centre[:, None] + spread[:, None] * raw
    y = level[:, :, None] + 0.7 * rng.normal(size=(n, 6, 3))
    with pm.Model() as model:
        c = pm.Normal("centre", 0, 1, shape=n)
        s = pm.HalfNormal("spread", 1, shape=n)
        z = pm.Normal("raw", 0, 1, shape=(n, 6))
        pm.Normal("y", (c[:, None] + s[:, None] * z)[:, :, None], 0.7, observed=y)
    return Simulation(model, {"centre": centre, "spread": spread, "raw": raw})


def logistic(n: int, rng: np.random.Generator) -> Simulation:
    """Logistic regression with two covariates."""
    x = rng.normal(size=(25, 2))
    slopes, level = rng.normal(size=(n, 2)), rng.normal(size=n)
    y = rng.random((n, 25)) < 1 / (1 + np.exp(-(level[:, None] + slopes @ x.T)))
    with pm.Model() as model:
        b = pm.Normal("slopes", 0, 1, shape=(n, 2))
        a = pm.Normal("level", 0, 1, shape=n)
        pm.Bernoulli("y", logit_p=a[:, None] + pm.math.dot(b, x.T), observed=y.astype("int64"))
    return Simulation(model, {"slopes": slopes, "level": level})


MODELS: dict[str, Callable[[int, np.random.Generator], Simulation]] = {
    "location and scale": location_and_scale,
    "hierarchy": hierarchy,
    "logistic": logistic,
}


def p_values(simulation: Simulation, sampler: str, seed: int) -> dict[str, float]:
    """Return the p value of uniform ranks of each parameter.

    Parameters
    ----------
    simulation
        Model and parameters.
    sampler
        That of `pytensor_cl.pymc.sample`.
    seed
        Of the chains.
    """
    options = {} if sampler == "meads" else {"target_accept": 0.85}
    found = sample(
        simulation.model,
        sampler=sampler,
        chains=199,
        draws=20,
        tune=150,
        random_seed=seed,
        progressbar=False,
        **options,
    ).posterior
    result = {}
    for name, true in simulation.true.items():
        # The last draw of each chain: chains are independent of each other.
        ranks = (found[name].values[:, -1] < true).sum(axis=0)
        counts = np.bincount(ranks.ravel() * BINS // 200, minlength=BINS)
        result[name] = float(chisquare(counts).pvalue)
    return result


def main() -> None:
    """Print a line for each model and sampler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--samplers", nargs="*", default=["chees", "meads"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    for name, simulate in MODELS.items():
        for sampler in options.samplers:
            rng = np.random.default_rng(options.seed)
            found = p_values(simulate(options.replications, rng), sampler, options.seed)
            print(f"{name}, {sampler}:", *(f"{key} p={value:.3f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
