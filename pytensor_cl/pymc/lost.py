"""Chains that are not where the posterior is: which ones, and how they start again from others in the warm-up."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from pytensor_cl.pymc.parts import LEAST_STATES, AnyParts, log_volumes, usual_deviations

_ALLOWANCE = 10.0
"""A chain may be in a region whose mass is exp(-10) of the others'."""
_SPREADS = 30.0
"""The same in median absolute deviations of the upper half of the chains, which are added: 12 standard deviations."""
_SPREADS_AT_REST = 5.0
"""The same for the density of a chain that did not move."""
_HIGH_SHARE = 0.9
"""The quantile of the excesses of all chains that stands for the draws: modes may differ."""
_LEAST_MOVES = 0.1
"""A chain that has not moved is stuck if its acceptances add up to less; else that was by chance."""


class States(Protocol):
    """Chains that can be looked at and moved."""

    chains: int

    @property
    def parts(self) -> AnyParts:
        """The parts of the chains, which answer questions about their states."""

    def positions(self) -> list[np.ndarray]:
        """Return an array of shape (chains, *shape) for each value variable."""

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities."""


def lost_chains(log_density: np.ndarray, deviations: np.ndarray, excess: np.ndarray | float = 0.0) -> np.ndarray:
    """Return which chains are where the posterior has next to no mass.

    A chain is lost if two numbers are far below the other chains' numbers: its mean log density, and an estimate of the
    logarithm of the mass of the region where it moves. The estimate is the mean log density plus the sum of the
    logarithms of the deviations of the chain's own states. For a normal distribution without correlations it is exact,
    up to a constant; for any other one it is too large, as no distribution with these deviations has more volume. So
    from the estimates of the others `excess` is subtracted: equal modes of which one is correlated are not lost. Far
    below is: below the median of the upper half of all chains by more than 10 and 30 median absolute deviations of that
    half; 5 for the log density of a chain that did not move at all. Half of two chains is one, and has no deviation:
    then a normal distribution's, the square root of half the number of parameters, takes its place.
    So

    - a chain in another mode is lost only if that mode has less than exp(-10) of the mass; a lower mode that is wide
      enough is none of these;
    - a chain that moves slowly, or not at all, is not lost where the density is as large as elsewhere.

    The criterion holds as long as a quarter of the chains are where the mass is.
    """
    usual = usual_deviations(deviations)
    if usual is None:
        return np.zeros(len(deviations), bool)
    moves = (deviations > 0).any(axis=1)
    return _judged(log_density, log_volumes(deviations, usual), moves, excess, deviations.shape[1])


def _judged(
    log_density: np.ndarray, volumes: np.ndarray, moves: np.ndarray, excess: np.ndarray | float, size: int
) -> np.ndarray:
    """Return which chains are lost, from log densities, logarithms of volumes, and whether they moved."""
    alone = float(np.sqrt(size / 2))
    low, low_at_rest = (
        _far_below(log_density, log_density, spreads, alone) for spreads in (_SPREADS, _SPREADS_AT_REST)
    )
    is_low = np.where(moves, low, low_at_rest)
    most = log_density + volumes
    result: np.ndarray = is_low & _far_below(most, most - excess, _SPREADS, alone)
    return result


def _far_below(values: np.ndarray, others: np.ndarray, spreads: float, alone: float) -> np.ndarray:
    """Return which values are far below the upper half of others; values that are not finite are.

    `alone` is the deviation of a half that has one value.
    """
    values, others = (np.where(np.isfinite(part), part, -np.inf) for part in (values, others))
    upper = np.sort(others)[len(others) // 2 :]
    upper = upper[np.isfinite(upper)]
    if not upper.size:
        return np.zeros(len(values), bool)
    centre = np.median(upper)
    deviation = np.median(np.abs(upper - centre)) if upper.size > 1 else alone
    result: np.ndarray = values < centre - _ALLOWANCE - spreads * deviation
    return result


class LostChainMonitor:
    """Finds lost chains from their moments in a part of the warm-up, and starts them again."""

    def __init__(self, chains: States, size: int) -> None:
        self._chains = chains
        self._size = size
        self.restarted: set[int] = set()
        self.excess = 0.0
        # Chains are exchangeable: a generator of its own chooses whose positions are taken.
        self._rng = np.random.default_rng(chains.chains)

    def forget(self) -> None:
        """Begin another part of the warm-up."""
        self._chains.parts.forget()

    def restart_lost(self) -> int:
        """Move lost chains to where others are, forget what they did, and return how many there were."""
        usual = [part for part in self._chains.parts.ask("usual_deviations") if part is not None]
        if not usual:
            return 0
        found = np.concatenate(self._chains.parts.ask("regions", np.median(usual, axis=0)), axis=1)
        log_density, volumes, excess, moves = found
        finite = excess[np.isfinite(excess)]
        if finite.size:
            self.excess = max(self.excess, float(np.quantile(finite, _HIGH_SHARE, method="lower")))
        lost = _judged(log_density, volumes, moves > 0, excess, self._size)
        self.forget()
        if lost.any():
            self.restarted.update(int(index) for index in np.flatnonzero(lost))
            source = np.arange(len(lost))
            source[lost] = self._rng.choice(np.flatnonzero(~lost), lost.sum())
            self._chains.set_positions([part[source] for part in self._chains.positions()])
        return int(lost.sum())


def find_lost(draws: np.ndarray, stats: Mapping[str, np.ndarray], excess: float = 0.0) -> np.ndarray:
    """Return the numbers of the chains that are lost (`lost_chains`), or stuck.

    A chain is stuck if all its draws are the same, and its acceptance probabilities add up to less than 0.1. In the
    warm-up such a chain does not start again if its density is large: the narrow place where it is belongs to the
    posterior.
    """
    if draws.shape[1] < LEAST_STATES:
        return np.zeros(0, int)
    # A deviation of exactly zero for a chain that does not move.
    deviations = (draws - draws[:, :1]).std(axis=1, dtype="float64")
    lost = lost_chains(np.asarray(stats["lp"], "float64").mean(axis=1), deviations, excess)
    stuck = ~(deviations > 0).any(axis=1) & (stats["acceptance_rate"].sum(axis=1) < _LEAST_MOVES)
    return np.flatnonzero(lost | stuck)
