"""Logistic regression with 100,000 rows: the gradients of all chains are two matrix products.

The data are simulated. Needs PyMC 6.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
from pymc_common import compare, sampling_arguments

SEED = 41
NAMES = ("intercept", "slopes")


def simulate(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features of shape (rows, columns) and zeros and ones of shape (rows,)."""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((rows, columns))
    chance = 1 / (1 + np.exp(0.5 - x @ np.linspace(-1, 1, columns)))
    return x, (rng.uniform(size=rows) < chance).astype("int64")


def build(x: np.ndarray, y: np.ndarray) -> pm.Model:
    """Return the model."""
    with pm.Model() as model:
        features, labels = pm.Data("features", x), pm.Data("labels", y)
        intercept, slopes = pm.Normal("intercept", 0, 2), pm.Normal("slopes", 0, 1, shape=x.shape[1])
        pm.Bernoulli("y", logit_p=intercept + features @ slopes, observed=labels)
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare gradients and posteriors, and return 1 if device and host do not agree."""
    parser = sampling_arguments(__doc__, chains=64, draws=50)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    options = parser.parse_args(arguments)
    return compare(
        build(*simulate(options.rows, options.columns)), NAMES, options, "pymc_logistic_regression.png", SEED
    )


if __name__ == "__main__":
    sys.exit(main())
