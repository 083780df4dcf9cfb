"""Radon in houses of 85 counties: a regression whose intercepts and slopes vary between counties.

The data are simulated, with the sizes of the well-known survey. Needs PyMC 6.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc_common import compare, sampling_arguments

SEED = 2882
HOUSES, COUNTIES = 919, 85
NAMES = ("intercept", "slope", "spread", "noise")


def build() -> pm.Model:
    """Return the model, not centred: each county has an intercept and a slope of its own, around common ones."""
    rng = np.random.default_rng(SEED)
    county, basement = rng.integers(0, COUNTIES, HOUSES), rng.integers(0, 2, HOUSES).astype(float)
    intercepts, slopes = 1.4 + 0.3 * rng.standard_normal(COUNTIES), -0.6 + 0.4 * rng.standard_normal(COUNTIES)
    radon = intercepts[county] + slopes[county] * basement + 0.7 * rng.standard_normal(HOUSES)
    with pm.Model(coords={"county": range(COUNTIES), "part": ["intercept", "slope"]}) as model:
        at, floor = pm.Data("county_of_house", county), pm.Data("floor", basement)
        intercept, slope = pm.Normal("intercept", 0, 5), pm.Normal("slope", 0, 5)
        spread, noise = pm.HalfNormal("spread", 1, dims="part"), pm.HalfNormal("noise", 1)
        shift = pm.Normal("shift", 0, 1, dims=("part", "county"))
        by_county = pm.Deterministic("by_county", spread[:, None] * shift, dims=("part", "county"))
        mean = intercept + by_county[0][at] + (slope + by_county[1][at]) * floor
        pm.Normal("radon", mean, noise, observed=radon)
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare gradients and posteriors, and return 1 if device and host do not agree."""
    options = sampling_arguments(__doc__).parse_args(arguments)
    return compare(build(), NAMES, options, "radon.png", SEED)


if __name__ == "__main__":
    sys.exit(main())
