"""Radon in houses of 85 counties: a hierarchical regression that PyMC samples, with the gradient from mode OPENCL.

The data are simulated, with the sizes of the well-known survey, so the true values are known. Needs PyMC 6.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm

SEED = 2882
HOUSES, COUNTIES = 919, 85
TRUTH = {"intercept": 1.4, "slope": -0.6, "noise": 0.7}
TOLERANCE = 5.0
"""Posterior standard deviations."""


def build() -> pm.Model:
    """Return the model: each county has an intercept of its own, drawn around a common one."""
    rng = np.random.default_rng(SEED)
    county, basement = rng.integers(0, COUNTIES, HOUSES), rng.integers(0, 2, HOUSES).astype(float)
    offsets = 0.3 * rng.standard_normal(COUNTIES)
    radon = TRUTH["intercept"] + offsets[county] + TRUTH["slope"] * basement
    radon += TRUTH["noise"] * rng.standard_normal(HOUSES)
    with pm.Model() as model:
        at, floor = pm.Data("county", county), pm.Data("floor", basement)
        intercept, slope = pm.Normal("intercept", 0, 5), pm.Normal("slope", 0, 5)
        spread, noise = pm.HalfNormal("spread", 1), pm.HalfNormal("noise", 1)
        shift = pm.Normal("shift", 0, 1, shape=COUNTIES)
        pm.Normal("radon", intercept + spread * shift[at] + slope * floor, noise, observed=radon)
    return model


def seconds_of(call: Callable[[], object], repeats: int = 2000) -> float:
    """Return the time of a call: the best of five rounds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter() - start) / repeats)
    return min(times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample, print what was found, and return 1 if it is far from the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="OPENCL")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--cores", type=int, default=1)
    options = parser.parse_args(arguments)

    model = build()
    with model:
        gradient = model.logp_dlogp_function(ravel_inputs=True, mode=options.mode)
        gradient.set_extra_values({})
        point = np.zeros(4 + COUNTIES)
        gradient([point])  # compiles
        print(f"gradient, mode {options.mode}: {1e6 * seconds_of(lambda: gradient([point])):.1f} us")
        found = pm.sample(
            options.draws,
            chains=2,
            cores=options.cores,
            random_seed=SEED,
            compile_kwargs={"mode": options.mode},
            progressbar=False,
        ).posterior

    worst = 0.0
    for name, true in TRUTH.items():
        draws = found[name].to_numpy()
        worst = max(worst, abs(draws.mean() - true) / draws.std())
        print(f"{name:10s} {draws.mean():6.2f} +- {draws.std():.2f}   true {true}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
