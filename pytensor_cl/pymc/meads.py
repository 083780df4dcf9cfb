"""MEADS: generalised HMC whose parameters are adapted from the statistics of other chains."""

import math
from typing import NamedTuple

import numpy as np

from pytensor_cl.pymc.adaptation import usual_chains
from pytensor_cl.pymc.langevin import Langevin, Steps
from pytensor_cl.pymc.lost import LostChainMonitor
from pytensor_cl.pymc.parts import chain_squares
from pytensor_cl.pymc.samplers import Iteration

FOLDS = 4
"""Groups of chains; each is moved with the statistics of another one."""

_MOST_EARLY_STEPS = 100
"""Steps of an iteration of the warm-up, at most: the statistics of early iterations are soon replaced."""


def largest_eigenvalue(vectors: np.ndarray) -> float:
    """Return an estimate of the largest eigenvalue of the second moments of `vectors`, weighted by the dominant ones.

    It is the trace of the squared matrix divided by the trace (Hoffman and Sountsov 2022, section 3.1), each without
    bias, and is at least the mean eigenvalue.
    """
    n, size = vectors.shape
    gram = vectors @ vectors.T
    squares = np.diag(gram)
    trace = float(squares.mean())
    if not trace > 0:
        return 0.0
    of_square = float((np.sum(gram * gram) - np.sum(squares * squares)) / (n * (n - 1)))
    result: float = max(of_square / trace, trace / size)
    return result


class Fold(NamedTuple):
    """Parameters of generalised HMC, from the chains of a fold."""

    scale: np.ndarray  # deviation of each parameter
    step: float  # step size in units of the scale
    rate: float  # damping for each unit of time


def fold_parameters(positions: np.ndarray, gradients: np.ndarray) -> Fold:
    """Return parameters from the chains of a fold (Hoffman and Sountsov 2022, algorithm 3)."""
    scale = positions.std(axis=0)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    slopes = np.where(np.isfinite(gradients), gradients, 0.0) * scale
    curvature = largest_eigenvalue(slopes)
    step = min(1.0, 0.5 / math.sqrt(curvature)) if curvature > 0 else 1.0
    spread = largest_eigenvalue((positions - positions.mean(axis=0)) / scale)
    return Fold(scale, step, 1 / math.sqrt(spread) if spread > 0 else 1.0)


class Meads:
    """MEADS (Hoffman and Sountsov 2022).

    In the warm-up the chains are divided into folds at random. A fold moves with the scales, the step size and the
    damping that follow from the chains of another fold; in each iteration one fold does not move. Draws are made with
    parameters from all chains, which stay as they are.

    An iteration is as many steps as it takes for the momenta to be replaced, so that draws do not depend on each other
    by much; the article has one step.
    """

    def __init__(
        self, chains: Langevin, tune: int, max_steps: int, trajectory_length: float | None, seed: np.random.SeedSequence
    ) -> None:
        self._chains = chains
        self._tune, self._max_steps, self._length = tune, max_steps, trajectory_length
        self._rng = np.random.default_rng(seed)
        self._count = 0
        self._time = 0.0
        self._folds = [np.empty(0, int)] * FOLDS
        self._scale_sum = np.zeros(chains.density.size)
        self._log_sums = np.zeros(2)
        self._kept = 0
        self._inverse_mass = np.ones(chains.density.size)
        self.monitor = LostChainMonitor(chains, chains.density.size)
        self.step_size = 1.0
        self._n_steps = 1

    @property
    def trajectory_length(self) -> float:
        """Time between two draws, in units of the scales."""
        return self._n_steps * self.step_size

    def start(self) -> None:
        """Prepare the first iteration."""
        self._regroup()
        if self._tune == 0:
            self._finish_warm_up()

    def iterate(self) -> Iteration:
        """Move all chains, in the warm-up all but one fold."""
        tuning = self._count < self._tune
        if tuning:
            self._adapt()
        trajectory = self._chains.trajectory(self._n_steps)
        self._time += self._n_steps * self.step_size
        stats = {} if tuning else trajectory.statistics(self.step_size, self._n_steps)
        done = Iteration(stats, self.step_size, self._n_steps, tuning)
        self._count += 1
        if tuning:
            self._look_for_lost_chains(trajectory)
        if tuning and self._count == self._tune:
            self._finish_warm_up()
        return done

    def _look_for_lost_chains(self, trajectory: Steps) -> None:
        """Restart lost chains after three quarters of the warm-up, and at its end."""
        if self._count > self._tune // 2:
            self._chains.parts.see(*self._chains.flat_state(), trajectory.log_density)
        if self._count in (3 * self._tune // 4, self._tune):
            self.monitor.restart_lost()
            self.monitor.forget()

    def _regroup(self) -> None:
        self._folds = np.array_split(self._rng.permutation(self._chains.chains), FOLDS)

    def _statistics(self) -> list[Fold]:
        """Return the parameters from the chains of each fold, but for those far outside the others."""
        positions, gradients = self._chains.flat_state()
        centre = np.median(positions, axis=0)
        usual = usual_chains(chain_squares(positions, gradients, centre, self._inverse_mass))
        found = []
        for fold in self._folds:
            members = fold[usual[fold]]
            members = members if members.size > 1 else fold
            found.append(fold_parameters(positions[members], gradients[members]))
        self._inverse_mass = np.exp(2 * np.mean([np.log(fold.scale) for fold in found], axis=0))
        return found

    def _adapt(self) -> None:
        """Set the parameters of each fold's chains from the fold before it."""
        resting = self._count % FOLDS
        if resting == 0 and self._count:
            self._regroup()
        found = self._statistics()
        n, size = self._chains.chains, self._chains.density.size
        scale, step, damping, active = np.empty((n, size)), np.empty(n), np.empty(n), np.ones(n)
        for k, members in enumerate(self._folds):
            other = found[k - 1]
            # Before the chains have moved far, their spread says little: the damping then follows from the time so far.
            rate = max(other.rate, 1 / max(self._time, other.step))
            scale[members], step[members] = other.scale, other.step
            damping[members] = 1 - math.exp(-2 * other.step * rate)
        active[self._folds[resting]] = 0
        self._chains.set_parameters(scale, step, damping, active)
        self.step_size = float(np.exp(np.mean([math.log(fold.step) for fold in found])))
        rate = float(np.mean([fold.rate for fold in found]))
        self._n_steps = self._steps(rate, min(self._max_steps, _MOST_EARLY_STEPS, self._count + 1))
        if self._count >= self._tune // 2:
            self._kept += 1
            self._scale_sum += np.mean([np.log(fold.scale) for fold in found], axis=0)
            self._log_sums += np.mean([[math.log(fold.step), math.log(fold.rate)] for fold in found], axis=0)

    def _steps(self, rate: float, most: int) -> int:
        length = 1 / rate if self._length is None else self._length
        return min(max(math.ceil(length / self.step_size), 1), most)

    def _finish_warm_up(self) -> None:
        """Set the parameters of all draws: the geometric means over the second half of the warm-up."""
        if not self._kept:
            found = self._statistics()
            self._kept = 1
            self._scale_sum = np.mean([np.log(fold.scale) for fold in found], axis=0)
            self._log_sums = np.mean([[math.log(fold.step), math.log(fold.rate)] for fold in found], axis=0)
        scale = np.exp(self._scale_sum / self._kept)
        step, rate = np.exp(self._log_sums / self._kept)
        self.step_size = float(step)
        self._n_steps = self._steps(float(rate), self._max_steps)
        n = self._chains.chains
        damping = 1 - math.exp(-2 * step * rate)
        self._chains.set_parameters(np.tile(scale, (n, 1)), np.full(n, step), np.full(n, damping))
