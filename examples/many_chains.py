"""Eight schools with hundreds of chains that advance together on the device, beside PyMC's NUTS on the host.

Needs PyMC 6. A figure of both posteriors is saved if matplotlib is installed.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc_common import DEVICE, gradient_of, same_posterior, sampling_arguments

SEED = 8
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def build() -> pm.Model:
    """Return the model, not centred: the schools' effects are standard normal numbers, shifted and scaled."""
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("y", theta, ERRORS, observed=EFFECTS, dims="school")
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample with both, print what was found, and return 1 if the means differ by more than chance."""
    options = sampling_arguments(__doc__).parse_args(arguments)
    model = build()
    gradient_of(model, DEVICE)  # prints where its nodes run
    return int(not same_posterior(model, ("mu", "tau", "theta"), options, "many_chains.png", SEED))


if __name__ == "__main__":
    sys.exit(main())
