"""Chains that are not where the posterior is: which ones, and how they start again from others in the warm-up."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["States", "Watch", "find_lost", "lost_chains"]

_LEAST_STATES = 4
"""Fewest states of a chain that say something about where it moves."""
_ALLOWANCE = 10.0
"""A chain may be in a region whose mass is exp(-10) of the others'."""
_SPREADS = 30.0
"""And, on top of that, this many median absolute deviations of the upper half of the chains: 12 standard deviations."""
_LEAST_ACCEPTANCE = 0.1
"""A chain without a move is stuck if its acceptance is below this share of the median; else that was by chance."""


class States(Protocol):
    """Chains that can be looked at and moved."""

    chains: int

    def positions(self) -> list[np.ndarray]:
        """Return an array of shape (chains, *shape) for each value variable."""

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities."""


def lost_chains(log_density: np.ndarray, deviations: np.ndarray, acceptance: np.ndarray) -> np.ndarray:
    """Return which chains are lost: they do not move, or are where the posterior has next to no mass.

    A chain that made no move is lost if its mean acceptance is less than a tenth of the chains' median.

    Of the others the mass of the region where a chain moves is estimated: its logarithm is the mean log density plus
    the sum of the logarithms of the deviations of the chain's own states, up to a constant (for a normal distribution
    that is exact). A chain is lost if it is below the median of the upper half of all chains by more than 10, and 30
    median absolute deviations of that half. So a chain in another mode is lost only if that mode has less than
    exp(-10) of the mass; a lower mode that is wide enough is none of these. The criterion holds as long as a quarter of
    the chains are where the mass is.

    Parameters
    ----------
    log_density, acceptance
        Means over the states of each chain: shape (chains,).
    deviations
        Standard deviations over the states of each chain: shape (chains, parameters).

    Returns
    -------
    ndarray of bool
        Shape (chains,). All false if no chain moves.
    """
    moves = (deviations > 0).any(axis=1)
    if not moves.any():
        return np.zeros(len(moves), bool)
    stuck = ~moves & ~(acceptance >= _LEAST_ACCEPTANCE * np.median(acceptance))
    usual = np.median(deviations[moves], axis=0)
    # A chain that made no move by chance says nothing about its region; a parameter that no chain moves does not count.
    deviations = np.where(moves[:, None], np.maximum(deviations, 1e-10 * usual), usual)
    log_mass = log_density + np.log(deviations[:, usual > 0]).sum(axis=1)
    log_mass = np.where(np.isfinite(log_mass) & ~stuck, log_mass, -np.inf)
    upper = np.sort(log_mass)[len(log_mass) // 2 :]
    upper = upper[np.isfinite(upper)]
    if not upper.size:
        return stuck
    centre = np.median(upper)
    spread = np.median(np.abs(upper - centre))
    return log_mass < centre - _ALLOWANCE - _SPREADS * spread


class Watch:
    """Where each chain moves in a part of the warm-up, and the restart of chains that are lost.

    Parameters
    ----------
    chains
        The chains.
    size
        Number of parameters.

    Attributes
    ----------
    restarted : set of int
        Chains that have started again from another one's position.
    """

    def __init__(self, chains: States, size: int) -> None:
        self._chains = chains
        self._shape = (chains.chains, size)
        self.restarted: set[int] = set()
        # Chains are exchangeable: a generator of its own chooses whose positions are taken.
        self._rng = np.random.default_rng(chains.chains)
        self.forget()

    def forget(self) -> None:
        """Begin another part of the warm-up."""
        self._count = 0
        self._origin = np.zeros(self._shape)
        self._sums = np.zeros((2, *self._shape))
        self._log_density, self._acceptance = np.zeros(self._shape[0]), np.zeros(self._shape[0])

    def add(self, positions: np.ndarray, log_density: np.ndarray, acceptance: np.ndarray) -> None:
        """Take a state of each chain into account.

        Parameters
        ----------
        positions
            Shape (chains, parameters).
        log_density, acceptance
            Shape (chains,).
        """
        if not self._count:
            self._origin = positions.copy()
        self._count += 1
        moved = positions - self._origin
        self._sums[0] += moved
        self._sums[1] += moved * moved
        self._log_density += log_density
        self._acceptance += acceptance

    def restart_lost(self) -> int:
        """Move lost chains to where others are, forget what they did, and return how many there were."""
        n = self._count
        if n < _LEAST_STATES:
            return 0
        variances = np.maximum(self._sums[1] / n - (self._sums[0] / n) ** 2, 0)
        lost = lost_chains(self._log_density / n, np.sqrt(variances), self._acceptance / n)
        self.forget()
        if lost.any():
            self.restarted.update(int(index) for index in np.flatnonzero(lost))
            source = np.arange(len(lost))
            source[lost] = self._rng.choice(np.flatnonzero(~lost), lost.sum())
            self._chains.set_positions([part[source] for part in self._chains.positions()])
        return int(lost.sum())


def find_lost(draws: np.ndarray, stats: Any) -> np.ndarray:
    """Return the numbers of the chains whose draws are lost (`lost_chains`).

    Parameters
    ----------
    draws
        Shape (chains, draws, parameters), at least four draws; with fewer, none is lost.
    stats
        Mapping with log densities ``lp`` and acceptance probabilities ``acceptance_rate``, of shape (chains, draws).
    """
    if draws.shape[1] < _LEAST_STATES:
        return np.zeros(0, int)
    means = [np.asarray(stats[name], "float64").mean(axis=1) for name in ("lp", "acceptance_rate")]
    # A deviation of exactly zero for a chain that does not move.
    deviations = (draws - draws[:, :1]).std(axis=1, dtype="float64")
    return np.flatnonzero(lost_chains(means[0], deviations, means[1]))
