"""A hidden Markov model: the states are summed out by a scan, which is one kernel on the device.

The series are simulated, with normal noise around a level of each state, so the true values are known. Needs PyMC 6.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc_common import DEVICE, HOST, Picture, agree, gradient_of, out_argument, recovers

SEED = 5
STAY = np.array([0.9, 0.7])
LEVELS, NOISE = np.array([-1.0, 1.5]), 0.8
TRUTH = {"stay": STAY, "levels": LEVELS, "noise": NOISE}


def simulate(steps: int) -> np.ndarray:
    """Return a series of observations of shape (steps,)."""
    rng = np.random.default_rng(SEED)
    state, states = 0, []
    for leaves in rng.uniform(size=steps):
        state = state if leaves < STAY[state] else 1 - state
        states.append(state)
    return LEVELS[states] + NOISE * rng.standard_normal(steps)


def log_likelihood(y: np.ndarray, stay: pt.TensorVariable, levels: pt.TensorVariable, noise: pt.TensorVariable):
    """Return the log-density of the series, all paths of states summed: the forward algorithm in logarithms."""
    transition = pt.log(pt.stack([pt.stack([stay[0], 1 - stay[0]]), pt.stack([1 - stay[1], stay[1]])]))
    emission = pm.logp(pm.Normal.dist(levels, noise), y[:, None])  # (steps, 2)

    def step(seen, forward, transition):
        # forward[i]: log-density of the series so far and of state i at its end.
        return seen + pt.logsumexp(forward[:, None] + transition, axis=0)

    first = pt.specify_shape(emission[0] + np.log(0.5), (2,))
    forward = pytensor.scan(
        step, sequences=[emission[1:]], outputs_info=[first], non_sequences=[transition], return_updates=False
    )
    return pt.logsumexp(forward[-1])


def build(y: np.ndarray) -> pm.Model:
    """Return the model; the levels are ordered, so that the states do not change names."""
    with pm.Model() as model:
        stay = pm.Beta("stay", 4, 2, shape=2)
        levels = pm.Normal(
            "levels", 0, 3, shape=2, transform=pm.distributions.transforms.ordered, initval=np.array([-1.0, 1.0])
        )
        noise = pm.HalfNormal("noise", 1)
        pm.Potential("y", log_likelihood(y, stay, levels, noise))
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare gradients, sample, and return 1 if the modes do not agree or the truth is far from what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500, help="length of the series")
    parser.add_argument("--chains", type=int, default=256, help="0: the gradients alone")
    parser.add_argument("--draws", type=int, default=60, help="of each chain")
    out_argument(parser)
    options = parser.parse_args(arguments)

    y = simulate(options.steps)
    model = build(y)
    good = agree(model, gradient_of(model, DEVICE), gradient_of(model, HOST))
    if options.chains:
        picture = Picture("hidden_markov_model.png", y, "observations")
        good = recovers(model, TRUTH, options, 60, SEED, picture) and good
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
