"""A mixture of three normal distributions: which of them a value comes from is summed out.

The values are simulated. Needs PyMC 6.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc_common import compare, sampling_arguments

SEED = 12
WEIGHTS, LEVELS, SPREADS = np.array([0.3, 0.5, 0.2]), np.array([-2.0, 0.5, 3.0]), np.array([0.6, 0.5, 0.8])
NAMES = ("weights", "levels", "spreads")


def simulate(count: int) -> np.ndarray:
    """Return values of shape (count,)."""
    rng = np.random.default_rng(SEED)
    of = rng.choice(3, count, p=WEIGHTS)
    return LEVELS[of] + SPREADS[of] * rng.standard_normal(count)


def build(y: np.ndarray) -> pm.Model:
    """Return the model; the levels are ordered, so that the components do not change names."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        levels = pm.Normal(
            "levels", 0, 3, shape=3, transform=pm.distributions.transforms.ordered, initval=np.array([-1.0, 0.0, 1.0])
        )
        spreads = pm.HalfNormal("spreads", 1, shape=3)
        pm.NormalMixture("y", weights, levels, spreads, observed=y)
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare gradients and posteriors, and return 1 if device and host do not agree."""
    parser = sampling_arguments(__doc__)
    parser.add_argument("--count", type=int, default=2000, help="of the values")
    options = parser.parse_args(arguments)
    return compare(build(simulate(options.count)), NAMES, options, "mixture.png", SEED)


if __name__ == "__main__":
    sys.exit(main())
