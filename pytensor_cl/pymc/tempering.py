"""Sequential Monte Carlo: from the prior to the posterior through powers of the likelihood."""

import math
from collections.abc import Sequence

import numpy as np
import pytensor
from scipy.special import logsumexp

from pytensor_cl.pymc.adaptation import DualAveraging, halton
from pytensor_cl.pymc.cluster import ClusterHamiltonian
from pytensor_cl.pymc.hamiltonian import Hamiltonian
from pytensor_cl.pymc.progress import warn
from pytensor_cl.pymc.shards import ShardedHamiltonian

AnyHamiltonian = ClusterHamiltonian | Hamiltonian | ShardedHamiltonian

_LENGTH = math.pi
"""Longest trajectory, in units of the mass matrix."""

_SHARE = 0.5
"""Effective sample size of the weights of a step in temperature, as a share of the particles."""
_FIRST_MOVES = 2
"""Number of moves before the first resampling, if they are wanted."""
_WALK = 40
"""Steps of the random walk before these moves."""
_COLLAPSE = 0.1
"""Share of the particles below which there is a warning."""


def next_temperature(log_likelihood: np.ndarray, current: float) -> float:
    """Return the inverse temperature at which the effective sample size is `_SHARE` of the particles, at most 1."""
    finite = log_likelihood[np.isfinite(log_likelihood)]
    finite = finite - finite.max()
    low, high = 0.0, 1.0 - current
    if effective_size(high * finite) >= _SHARE:
        return 1.0
    # The scale of the likelihood may be any: the step is first found but for a factor of two.
    while effective_size(0.5 * high * finite) < _SHARE and high > 0:
        high *= 0.5
    low = 0.5 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective_size(middle * finite) >= _SHARE else (low, middle)
    return current + low


def effective_size(log_weights: np.ndarray) -> float:
    """Return the effective sample size of weights, as a share of their number."""
    size = math.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights))
    return size / len(log_weights)


def systematic(weights: np.ndarray, uniform: float) -> np.ndarray:
    """Return which particles are kept, by systematic resampling."""
    size = len(weights)
    places = (uniform + np.arange(size)) / size
    return np.minimum(np.searchsorted(np.cumsum(weights), places), size - 1)


def temper(
    hamiltonian: AnyHamiltonian,
    seed: np.random.SeedSequence,
    moves: int,
    log_share: float = 0.0,
    move_first: bool = False,
) -> tuple[float, int]:
    """Move particles from the prior to the posterior; return the logarithm of the evidence, and how many temperatures.

    Between two temperatures particles are resampled, and moved by Hamiltonian trajectories with the variances of the
    particles as mass matrix. `log_share` is the logarithm of the probability that a draw from the prior has a positive
    likelihood. With `move_first` the particles move before the first resampling, so that draws at the bounds of their
    variables spread.
    """
    rng = np.random.default_rng(seed)
    temperature, log_evidence, stages = 0.0, log_share, 0
    mover = _Mover(hamiltonian, moves)
    collapsed: list[str] = []
    if move_first:
        # The likelihood to this power is 1, but 0 where it is zero.
        hamiltonian.set_inverse_temperature(float(np.finfo(pytensor.config.floatX).tiny))
        _spread(hamiltonian, rng)
        for _ in range(_FIRST_MOVES):
            mover.move(hamiltonian.positions())
    while temperature < 1:
        log_likelihood = np.asarray(hamiltonian.observed(), "float64")
        log_likelihood = np.where(np.isfinite(log_likelihood), log_likelihood, -np.inf)
        following = _representable(next_temperature(log_likelihood, temperature), temperature)
        weights = (following - temperature) * log_likelihood
        log_sum = float(logsumexp(weights))
        log_evidence += log_sum - math.log(len(weights))
        size = effective_size(weights)
        kept = systematic(np.exp(weights - log_sum), float(rng.random()))
        hamiltonian.set_inverse_temperature(following)
        different = mover.move([position[kept] for position in hamiltonian.positions()])
        if min(size, different) < _COLLAPSE:
            collapsed.append(
                f"temperature {stages + 1}: effective sample size {size:.1%}, {different:.1%} of the particles differ"
            )
        temperature, stages = following, stages + 1
    if collapsed:
        warn(
            f"the particles collapsed at {len(collapsed)} of {stages} temperatures, and neither the evidence nor the "
            f"draws can be relied on; more chains help ({collapsed[0]})"
        )
    return log_evidence, stages


def _spread(hamiltonian: AnyHamiltonian, rng: np.random.Generator) -> None:
    """Move particles by random walks, which need no gradients: next to a bound PyMC's may be NaN."""
    split, n = hamiltonian.density.split, hamiltonian.chains
    position = _flat(hamiltonian.positions())
    scale = 2.4 / math.sqrt(position.shape[1]) * position.std(axis=0)
    density = np.asarray(hamiltonian.set_positions(list(split(position, n))), "float64")
    for _ in range(_WALK):
        proposal = position + scale * rng.standard_normal(position.shape)
        found = np.asarray(hamiltonian.set_positions(list(split(proposal, n))), "float64")
        takes = np.log(rng.random(n)) < found - density
        position = np.where(takes[:, None], proposal, position)
        density = np.where(takes, found, density)
    hamiltonian.set_positions(list(split(position, n)))


def _representable(following: float, current: float) -> float:
    """Return the inverse temperature in the precision in which it is used, and never the current one."""
    dtype = np.dtype(pytensor.config.floatX).type
    return float(max(dtype(following), np.nextafter(dtype(current), dtype(1))))


class _Mover:
    """Moves particles by Hamiltonian trajectories, and adapts step size and mass matrix to them."""

    def __init__(self, hamiltonian: AnyHamiltonian, moves: int) -> None:
        self._hamiltonian = hamiltonian
        self._moves = moves
        self._step = DualAveraging(0.5, 0.8)
        self._count = 0
        self._variances = np.ones(hamiltonian.density.size)

    def move(self, positions: Sequence[np.ndarray]) -> float:
        """Place the particles and move them; return how many differ at the end, as a share."""
        hamiltonian, step = self._hamiltonian, self._step
        variances = _flat(positions).var(axis=0)
        # Particles that are all at one place say nothing about the scale.
        self._variances = np.where(variances > 0, variances, self._variances)
        hamiltonian.set_inverse_mass(self._variances)
        hamiltonian.set_positions(positions)
        step.restart(step.mean)
        for _ in range(self._moves):
            n_steps = min(max(math.ceil(halton(self._count) * _LENGTH / step.step_size), 1), 100)
            step.update(float(hamiltonian.trajectory(step.step_size, n_steps).acceptance.mean()))
            self._count += 1
        moved = _flat(hamiltonian.positions())
        return len(np.unique(moved, axis=0)) / len(moved)


def _flat(positions: Sequence[np.ndarray]) -> np.ndarray:
    """Return positions as one array of shape (chains, parameters)."""
    return np.concatenate([np.reshape(position, (len(position), -1)) for position in positions], axis=1, dtype=float)
