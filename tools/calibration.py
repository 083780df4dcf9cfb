"""Calibration of all samplers of `pytensor_cl.pymc.sample` in float64 and float32: a table of the manual.

usage: python -m tools.calibration [--write] [--models conjugate ...] [--samplers chees ...] [--floatx float32 ...]
                                   [--chains 1024] [--replications 100] [--seed 1]

The models of tests/pymc/closed_forms.py have known posteriors. The first and the last of eight draws of all chains are
turned into numbers that are uniform if the draws are right, and these are tested.

The other models are for simulation-based calibration (Talts et al. 2018). Parameters are drawn from the prior, data
from them, and the rank of each parameter among independent draws from its posterior is found: it is uniform. One PyMC
model has all replications, which do not depend on each other.

A line has the p values of all parameters, each multiplied by the number of its tests; the table has the smallest one
multiplied by the number of parameters. With --write what is found is stored in tests/pymc/calibration.json, and the
table of docs/many-chains-checks.md is made of it. The exit status is 1 if a p value of the run is below 0.001.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from scipy.stats import chisquare

from pytensor_cl.pymc import sample
from tests.pymc import closed_forms
from tools.driver_matrix import replaced

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "many-chains-checks.md"
FILE = ROOT / "tests" / "pymc" / "calibration.json"
BEGIN, END = "<!-- calibration: begin -->", "<!-- calibration: end -->"
SAMPLERS = ("chees", "meads", "nuts", "hmc", "smc")
FLOATX = ("float64", "float32")
BINS = 10
LEAST = 0.001
"""Smallest p value of the table that is accepted: 70 right ones are above it but for 7 % of the runs."""
TUNE = {"correlated": 300}
"""Iterations of warm-up, where 100 are not enough."""


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


SIMULATIONS: dict[str, Callable[[int, np.random.Generator], Simulation]] = {
    "location and scale": location_and_scale,
    "hierarchy": hierarchy,
    "logistic": logistic,
}


def _of_closed_form(name: str, sampler: str, options: argparse.Namespace) -> dict[str, float]:
    case = closed_forms.CASES[name]()
    found = sample(
        case.model,
        sampler=sampler,
        chains=options.chains,
        draws=8,
        tune=TUNE.get(name, 100),
        random_seed=options.seed,
        progressbar=False,
    )
    return closed_forms.p_values(case.uniforms, found.posterior)


def _of_simulation(name: str, sampler: str, options: argparse.Namespace) -> dict[str, float]:
    simulation = SIMULATIONS[name](options.replications, np.random.default_rng(options.seed))
    found = sample(
        simulation.model,
        sampler=sampler,
        chains=199,
        draws=20,
        tune=150,
        target_accept=None if sampler == "meads" else 0.85,
        random_seed=options.seed,
        progressbar=False,
    ).posterior
    result = {}
    for parameter, true in simulation.true.items():
        # The last draw of each chain: chains are independent of each other.
        ranks = (found[parameter].values[:, -1] < true).sum(axis=0)
        counts = np.bincount(ranks.ravel() * BINS // 200, minlength=BINS)
        result[parameter] = float(chisquare(counts).pvalue)
    return result


def table(stored: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the smallest p values of models, by floatX and sampler, as a table of Markdown."""
    lines = ["| | floatX | " + " | ".join(f'`"{sampler}"`' for sampler in SAMPLERS) + " |"]
    lines.append("|---|---|" + "---:|" * len(SAMPLERS))
    for name, by_floatx in stored.items():
        for floatx, found in by_floatx.items():
            cells = [f"{found[sampler]:.2g}" if sampler in found else "" for sampler in SAMPLERS]
            lines.append(f"| {name} | {floatx} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print a line for each model, sampler and floatX, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*closed_forms.CASES, *SIMULATIONS]
    parser.add_argument("--models", nargs="*", choices=names, default=names)
    parser.add_argument("--samplers", nargs="*", choices=SAMPLERS, default=SAMPLERS)
    parser.add_argument("--floatx", nargs="*", choices=FLOATX, default=FLOATX)
    parser.add_argument("--chains", type=int, default=1024)
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="store what is found, and write the table of the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    worst = 1.0
    for name in options.models:
        test = _of_closed_form if name in closed_forms.CASES else _of_simulation
        for floatx in options.floatx:
            for sampler in options.samplers:
                with pytensor.config.change_flags(floatX=floatx):
                    each = test(name, sampler, options)
                smallest = min(1.0, len(each) * min(each.values()))
                worst = min(worst, smallest)
                text = " ".join(f"{key}={value:.2g}" for key, value in each.items())
                print(f"{name}, {sampler}, {floatx}: {text}", flush=True)
                stored.setdefault(name, {}).setdefault(floatx, {})[sampler] = float(f"{smallest:.3g}")
                if options.write:
                    FILE.write_text(json.dumps(stored, indent=1) + "\n")
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text(), table(stored), BEGIN, END))
    print(f"\n{table(stored)}")
    return int(worst < LEAST)


if __name__ == "__main__":
    sys.exit(main())
