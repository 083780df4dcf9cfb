"""A state-space model: a level with a trend, measured with noise. A Kalman filter in a scan sums the states out.

The series is simulated. Needs PyMC 6.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc_common import compare, sampling_arguments

SEED = 77
NAMES = ("level_noise", "trend_noise", "noise")
FIRST_VARIANCE = 10.0


def simulate(steps: int) -> np.ndarray:
    """Return measurements of shape (steps,)."""
    rng = np.random.default_rng(SEED)
    level, trend, seen = 0.0, 0.1, []
    for shocks in rng.standard_normal((steps, 3)):
        level, trend = level + trend + 0.3 * shocks[0], trend + 0.1 * shocks[1]
        seen.append(level + 0.5 * shocks[2])
    return np.array(seen)


def filter_step(y, level, trend, p_level, p_both, p_trend, q_level, q_trend, r):
    """Predict a measurement, and update the mean and the covariance of level and trend.

    The covariance is ``[[p_level, p_both], [p_both, p_trend]]``, before the measurement.

    Returns
    -------
    tuple
        The next mean, the next covariance, and the log-density of the measurement.
    """
    variance = p_level + r
    error = y - level
    gain_level, gain_trend = (p_level + p_both) / variance, p_both / variance
    log_density = -0.5 * (np.log(2 * np.pi) + pt.log(variance) + error**2 / variance)
    return (
        level + trend + gain_level * error,
        trend + gain_trend * error,
        p_level + 2 * p_both + p_trend + q_level - gain_level**2 * variance,
        p_both + p_trend - gain_level * gain_trend * variance,
        p_trend + q_trend - gain_trend**2 * variance,
        log_density,
    )


def build(y: np.ndarray) -> pm.Model:
    """Return the model; its free variables are the three standard deviations."""
    with pm.Model() as model:
        level_noise, trend_noise = pm.HalfNormal("level_noise", 1), pm.HalfNormal("trend_noise", 0.5)
        noise = pm.HalfNormal("noise", 1)
        zero, first = pt.constant(0.0, dtype="float64"), pt.constant(FIRST_VARIANCE, dtype="float64")
        *_, log_density = pytensor.scan(
            filter_step,
            sequences=[pt.as_tensor(y)],
            outputs_info=[zero, zero, first, zero, first, None],
            non_sequences=[level_noise**2, trend_noise**2, noise**2],
            return_updates=False,
        )
        pm.Potential("y", log_density.sum())
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare gradients and posteriors, and return 1 if device and host do not agree."""
    parser = sampling_arguments(__doc__, chains=256)
    parser.add_argument("--steps", type=int, default=400, help="length of the series")
    options = parser.parse_args(arguments)
    return compare(build(simulate(options.steps)), NAMES, options, "state_space_model.png", SEED)


if __name__ == "__main__":
    sys.exit(main())
