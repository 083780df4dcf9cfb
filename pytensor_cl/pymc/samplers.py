"""Markov chains of Hamiltonian trajectories: ChEES-HMC and HMC with a fixed trajectory length."""

import math
from typing import NamedTuple

import numpy as np

from pytensor_cl.pymc.adaptation import Adam, DualAveraging, MassMatrix, halton, harmonic_mean
from pytensor_cl.pymc.hamiltonian import Hamiltonian, Trajectory
from pytensor_cl.pymc.shards import ShardedHamiltonian

__all__ = ["Chees", "Iteration", "window_ends"]


class Iteration(NamedTuple):
    """One iteration of all chains.

    Attributes
    ----------
    trajectory : Trajectory
    step_size : float
    n_steps : int
    tuning : bool
    """

    trajectory: Trajectory
    step_size: float
    n_steps: int
    tuning: bool


def window_ends(tune: int) -> list[int]:
    """Return the iterations at which a new mass matrix is used: windows that grow, and a last part without.

    Parameters
    ----------
    tune
        Number of iterations of warm-up.
    """
    ends, length, end = [], max(tune // 40, 2), 0
    last = tune - max(tune // 6, 5)
    while end + length <= last:
        end += length
        # What is left is too short for another window of twice the length: this one takes it.
        if end + 1.5 * length > last:
            end = last
        ends.append(end)
        length = math.ceil(1.5 * length)
    return ends


class Chees:
    """ChEES-HMC (Hoffman, Radul, Sountsov 2021): the trajectory length maximises the change of the squared distance.

    All chains take the same number of steps. The length of a trajectory is a term of Halton's sequence, between 0 and
    1, times the adapted length.

    Parameters
    ----------
    hamiltonian
        The chains.
    tune
        Iterations of warm-up.
    target_accept
        Wanted harmonic mean of the acceptance probabilities.
    max_steps
        Most leapfrog steps of a trajectory.
    trajectory_length
        First trajectory length, in units of the mass matrix; with `adapt_length` false, that of all trajectories (plain
        HMC).
    adapt_length
        Whether the trajectory length is adapted.
    """

    def __init__(
        self,
        hamiltonian: Hamiltonian | ShardedHamiltonian,
        tune: int,
        target_accept: float,
        max_steps: int,
        trajectory_length: float = 1.0,
        adapt_length: bool = True,
    ) -> None:
        self._hamiltonian = hamiltonian
        self._tune = tune
        self._max_steps = max_steps
        self._adapts_length = adapt_length
        self._windows = set(window_ends(tune))
        self._early = tune // 3
        self._mass = MassMatrix(hamiltonian.density.size, hamiltonian.chains)
        self._variances = np.ones(hamiltonian.density.size)
        self._step = DualAveraging(1.0, target_accept)
        self._length = Adam(math.log(trajectory_length), rate=0.05)
        self._log_length = math.log(trajectory_length)
        self._log_step = 0.0
        self._count = 0

    def start(self) -> None:
        """Find a first step size: one with which about half the chains accept a single step."""
        self._search(1.0)

    def _search(self, step_size: float) -> None:
        """Double or halve the step size until the mean acceptance of one step crosses one half."""
        grows = None
        for _ in range(60):
            accepted = float(self._hamiltonian.try_step(step_size).mean())
            if grows is None:
                grows = accepted > 0.5
            if (accepted > 0.5) != grows:
                break
            step_size *= 2.0 if grows else 0.5
        self._step.restart(step_size)

    @property
    def step_size(self) -> float:
        """Step size of the next trajectory."""
        return self._step.step_size if self._count < self._tune else math.exp(self._log_step)

    @property
    def trajectory_length(self) -> float:
        """Longest trajectory of the next iteration, in units of the mass matrix."""
        return math.exp(self._length.value if self._count < self._tune else self._log_length)

    def iterate(self) -> Iteration:
        """Move all chains once, and adapt if that is part of the warm-up."""
        tuning = self._count < self._tune
        step_size = self.step_size
        jitter = halton(self._count)
        n_steps = min(max(math.ceil(jitter * self.trajectory_length / step_size), 1), self._max_steps)
        trajectory = self._hamiltonian.trajectory(step_size, n_steps)
        if tuning:
            self._adapt(trajectory, step_size, jitter)
        self._count += 1
        return Iteration(trajectory, step_size, n_steps, tuning)

    def _adapt(self, trajectory: Trajectory, step_size: float, jitter: float) -> None:
        # A chain that never accepts must not make the harmonic mean 0 and the step size of all chains vanish.
        self._step.update(harmonic_mean(np.maximum(trajectory.acceptance, 1e-2)))
        if self._adapts_length:
            self._adapt_length(trajectory, step_size, jitter)
        self._mass.update(trajectory.moments)
        done = self._count + 1
        if done in self._windows:
            variances = self._mass.estimate(from_gradients=done <= self._early)
            if variances is not None:
                self._use_mass(variances)
        self._log_step = self._step.log_mean

    def _use_mass(self, variances: np.ndarray) -> None:
        """Use a new mass matrix; search the step size again if it is a very different one."""
        changes = np.abs(np.log(variances) - np.log(self._variances))
        self._variances = variances
        self._hamiltonian.set_inverse_mass(variances)
        # The gradient with respect to the length has another scale now.
        self._length.restart()
        if changes.max() > math.log(4):
            self._search(self.step_size)
        else:
            self._step.restart(self._step.mean)

    def _adapt_length(self, trajectory: Trajectory, step_size: float, jitter: float) -> None:
        weights = np.where(np.isfinite(trajectory.growth), trajectory.acceptance, 0.0)
        growth = np.where(weights > 0, trajectory.growth, 0.0)
        gradient = jitter * float(np.sum(weights * growth)) / max(float(np.sum(weights)), 1e-20)
        value = self._length.update(gradient)
        low, high = math.log(step_size), math.log(step_size * self._max_steps)
        self._length.value = value = min(max(value, low), high)
        # An average over about the last third of what has been done.
        self._log_length += (value - self._log_length) * min(1.0, 6 / (self._count + 6))
