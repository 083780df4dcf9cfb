"""Sequential Monte Carlo: from the prior to the posterior through powers of the likelihood."""

import math

import numpy as np
from scipy.special import logsumexp

from pytensor_cl.pymc.adaptation import DualAveraging, halton
from pytensor_cl.pymc.hamiltonian import Hamiltonian
from pytensor_cl.pymc.shards import ShardedHamiltonian

__all__ = ["next_temperature", "systematic", "temper"]

_LENGTH = math.pi
"""Longest trajectory, in units of the mass matrix."""


def next_temperature(log_likelihood: np.ndarray, current: float, share: float) -> float:
    """Return the inverse temperature at which the weights have a wanted effective sample size, at most 1.

    Parameters
    ----------
    log_likelihood
        Of each particle; minus infinity where a parameter is bad.
    current
        The inverse temperature now.
    share
        Wanted effective sample size, as a share of the number of particles.
    """

    def effective(temperature: float) -> float:
        weights = (temperature - current) * log_likelihood
        return math.exp(2 * logsumexp(weights) - logsumexp(2 * weights)) / len(log_likelihood)

    low, high = current, 1.0
    if effective(high) >= share:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= share else (low, middle)
    # Never the current one: particles with a likelihood of zero alone may push the size below the wanted one.
    return max(high, current + 1e-8)


def systematic(weights: np.ndarray, uniform: float) -> np.ndarray:
    """Return which particles are kept, by systematic resampling.

    Parameters
    ----------
    weights
        Their sum is 1.
    uniform
        A number between 0 and 1.
    """
    size = len(weights)
    places = (uniform + np.arange(size)) / size
    return np.minimum(np.searchsorted(np.cumsum(weights), places), size - 1)


def temper(
    hamiltonian: Hamiltonian | ShardedHamiltonian, seed: np.random.SeedSequence, moves: int, share: float = 0.5
) -> tuple[float, int]:
    """Move particles from the prior to the posterior.

    Temperatures are chosen so that the weights keep a share of their effective sample size. Between two of them
    particles are resampled, and moved by Hamiltonian trajectories with the variances of the particles as mass matrix.

    Parameters
    ----------
    hamiltonian
        Chains at draws from the prior, of a tempered density.
    seed
        Of the resampling.
    moves
        Trajectories at each temperature.
    share
        See `next_temperature`.

    Returns
    -------
    log_marginal_likelihood : float
    stages : int
        Number of temperatures.
    """
    rng = np.random.default_rng(seed)
    temperature, log_evidence, stages, count = 0.0, 0.0, 0, 0
    step = DualAveraging(0.5, 0.8)
    while temperature < 1:
        log_likelihood = np.nan_to_num(hamiltonian.observed(), nan=-np.inf, posinf=-np.inf, neginf=-np.inf)
        following = next_temperature(log_likelihood, temperature, share)
        weights = (following - temperature) * log_likelihood
        log_sum = float(logsumexp(weights))
        log_evidence += log_sum - math.log(len(weights))
        kept = systematic(np.exp(weights - log_sum), float(rng.random()))
        positions = [position[kept] for position in hamiltonian.positions()]
        flat = np.concatenate([position.reshape(len(kept), -1) for position in positions], axis=1)
        hamiltonian.set_inverse_mass(np.maximum(flat.var(axis=0), 1e-20))
        hamiltonian.set_inverse_temperature(following)
        hamiltonian.set_positions(positions)
        step.restart(step.mean)
        for _ in range(moves):
            n_steps = min(max(math.ceil(halton(count) * _LENGTH / step.step_size), 1), 100)
            step.update(float(hamiltonian.trajectory(step.step_size, n_steps).acceptance.mean()))
            count += 1
        temperature, stages = following, stages + 1
    return log_evidence, stages
