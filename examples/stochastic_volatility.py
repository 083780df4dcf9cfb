"""Stochastic volatility: returns whose standard deviation follows a random walk, by scan with a state.

The returns are simulated, so the true values are known. Needs PyMC 6.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc_common import DEVICE, HOST, Picture, agree, gradient_of, out_argument, recovers

SEED = 19
TRUTH = {"level": -1.0, "persistence": 0.95, "spread": 0.3}


def simulate(days: int) -> np.ndarray:
    """Return daily returns of shape (days,)."""
    rng = np.random.default_rng(SEED)
    level, persistence, spread = TRUTH.values()
    h, volatility = 0.0, []
    for shock in rng.standard_normal(days):
        h = persistence * h + spread * shock
        volatility.append(np.exp((level + h) / 2))
    return np.array(volatility) * rng.standard_normal(days)


def build(returns: np.ndarray) -> pm.Model:
    """Return the model: the logarithm of the variance is an AR(1) process around `level`."""
    with pm.Model() as model:
        level, spread = pm.Normal("level", 0, 2), pm.HalfNormal("spread", 0.5)
        persistence = pm.Beta("persistence", 20, 1.5)
        shocks = pm.Normal("shocks", 0, 1, shape=len(returns))
        h = pytensor.scan(
            lambda shock, before, persistence, spread: persistence * before + spread * shock,
            sequences=[shocks],
            outputs_info=[pt.zeros(())],
            non_sequences=[persistence, spread],
            return_updates=False,
        )
        pm.Normal("returns", 0, pt.exp((level + h) / 2), observed=returns)
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare gradients, sample, and return 1 if the modes do not agree or the truth is far from what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--chains", type=int, default=128, help="0: the gradients alone")
    parser.add_argument("--draws", type=int, default=60, help="of each chain")
    out_argument(parser)
    options = parser.parse_args(arguments)

    returns = simulate(options.days)
    model = build(returns)
    good = agree(model, gradient_of(model, DEVICE), gradient_of(model, HOST))
    if options.chains:
        picture = Picture("stochastic_volatility.png", returns, "daily returns")
        good = recovers(model, TRUTH, options, 100, SEED, picture) and good
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
