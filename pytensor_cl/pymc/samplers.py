"""Markov chains of Hamiltonian trajectories: ChEES-HMC and HMC with a fixed trajectory length."""

import math
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np

from pytensor_cl.pymc.adaptation import (
    Adam,
    DualAveraging,
    MassMatrix,
    PrincipalDirection,
    halton,
    harmonic_mean,
    usual_chains,
)
from pytensor_cl.pymc.cluster import ClusterHamiltonian
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import Hamiltonian, Trajectory
from pytensor_cl.pymc.lost import LostChainMonitor, States
from pytensor_cl.pymc.parts import Moments, combined
from pytensor_cl.pymc.shards import ShardedHamiltonian

EARLY_STEPS = 10
"""Most leapfrog steps of a trajectory in the first third of a warm-up, while step size and scales are not right yet."""
SHORTEST = 0.5
"""Shortest trajectory of ChEES-HMC, as a share of the longest one: the very short ones cost a draw, and move little."""
OVERHEAD_STEPS = 3.0
"""Leapfrog steps that take as long as the beginning and the end of a trajectory: 2 to 4, measured."""


class Iteration(NamedTuple):
    """One iteration of all chains."""

    stats: Mapping[str, np.ndarray]  # by PyMC's names, for each chain; empty in the warm-up
    step_size: float
    n_steps: int  # the mean, if chains have different numbers
    tuning: bool


class SteppingChains(States, Protocol):
    """Chains whose step size and mass matrix can be adapted."""

    density: ModelDensity

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the positions, and stay there."""

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix."""


def window_ends(tune: int) -> list[int]:
    """Return the iterations at which a new mass matrix is used: windows that grow, and a last part without."""
    ends, length, end = [], max(tune // 40, 2), 0
    last = tune - max(tune // 6, 5)
    while end + length <= last:
        end += length
        # The rest is too short for another window of twice the length: this one takes it.
        if end + 1.5 * length > last:
            end = last
        ends.append(end)
        length = math.ceil(1.5 * length)
    return ends


class StepAndMass:
    """Step size and mass matrix of all chains, adapted in a warm-up."""

    def __init__(self, chains: SteppingChains, tune: int, target_accept: float) -> None:
        self._chains = chains
        self._tune = tune
        self._windows = set(window_ends(tune))
        # Chains are looked at in the windows that end in the second half: before, they may still be on their way.
        self._watches_from = max((end for end in self._windows if end <= tune // 2), default=0)
        self.mass = MassMatrix(chains.density.size)
        self.monitor = LostChainMonitor(chains, chains.density.size)
        self._step = DualAveraging(1.0, target_accept)
        self._count = 0
        self.has_new_mass = False

    @property
    def step_size(self) -> float:
        """Step size of the next iteration: the average of all, once the warm-up is over."""
        return self._step.step_size if self._count < self._tune else self._step.mean

    def search(self, step_size: float) -> None:
        """Double or halve the step size until the mean acceptance of one step crosses one half."""
        grows = None
        for _ in range(60):
            accepted = float(self._chains.try_step(step_size).mean())
            if grows is None:
                grows = accepted > 0.5
            if (accepted > 0.5) != grows:
                break
            step_size *= 2.0 if grows else 0.5
        self._step.restart(step_size)

    @property
    def is_watching(self) -> bool:
        """Whether lost chains are looked for in the next state."""
        return self._count >= self._watches_from

    def questions(self, direction: np.ndarray | None) -> list[tuple[str, list[Any]]]:
        """Return what the parts of the chains will be asked after the next state, if no chain is far outside."""
        if self.mass.centre is None:
            return []
        return [("squares", [self.mass.centre, self.mass.inverse_mass]), ("moments", [None, direction])]

    def look(self, direction: np.ndarray | None = None) -> tuple[np.ndarray, Moments]:
        """Take the state that the parts of the chains have into account for the mass matrix.

        Return which chains are not far outside the others, and their moments.
        """
        parts, mass = self._chains.parts, self.mass
        if mass.centre is None:
            mass.centre = np.median(parts.ask("medians"), axis=0)
        usual = usual_chains(np.concatenate(parts.ask("squares", mass.centre, mass.inverse_mass), axis=1))
        moments = self.moments(usual, direction)
        mass.update(moments)
        return usual, moments

    def moments(self, usual: np.ndarray, direction: np.ndarray | None) -> Moments:
        """Return the moments of some chains in the state that the parts have."""
        parts = self._chains.parts
        return combined(parts.ask("moments", direction, masks=parts.divided(usual)), direction)

    def update(self, acceptance: np.ndarray, usual: np.ndarray, iterations: int = 1) -> None:
        """Adapt to iterations of the warm-up, whose states have been looked at."""
        # A chain that never accepts must not make the harmonic mean 0 and the step size of all chains vanish.
        self._step.update(harmonic_mean(np.maximum(acceptance[usual] if usual.any() else acceptance, 1e-2)))
        self._count += iterations
        if self._count in self._windows or self._count == self._tune:
            if self._count > self._tune // 2:
                self.monitor.restart_lost()
            self.monitor.forget()
        self.has_new_mass = self._count in self._windows and self._change_mass()

    def _change_mass(self) -> bool:
        before = self.mass.inverse_mass
        after = self.mass.estimate()
        if after is None:
            return False
        self._chains.set_inverse_mass(after)
        if np.abs(np.log(after) - np.log(before)).max() > math.log(4):
            self.search(self._step.step_size)
        else:
            self._step.restart(self._step.mean)
        return True


class Chees:
    """ChEES-HMC (Hoffman, Radul, Sountsov 2021), with the criterion of Sountsov and Hoffman (2022) for the length.

    All chains take the same number of steps. The length of a trajectory is a share of the adapted length, between
    `SHORTEST` and 1 by Halton's sequence. Without `adapt_length` it is plain HMC, with shares between 0 and 1.
    """

    def __init__(
        self,
        hamiltonian: ClusterHamiltonian | Hamiltonian | ShardedHamiltonian,
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
        self._shortest = SHORTEST if adapt_length else 0.0
        self._direction = PrincipalDirection(hamiltonian.density.size)
        self._adaptation = StepAndMass(hamiltonian, tune, target_accept)
        self._length = Adam(math.log(trajectory_length), rate=0.05)
        self._log_length = math.log(trajectory_length)
        self._count = 0

    def start(self) -> None:
        """Find a first step size: one with which about half the chains accept a single step."""
        self._adaptation.search(1.0)

    @property
    def step_size(self) -> float:
        """Step size of the next trajectory."""
        return self._adaptation.step_size

    @property
    def trajectory_length(self) -> float:
        """Longest trajectory of the next iteration, in units of the mass matrix."""
        return math.exp(self._length.value if self._count < self._tune else self._log_length)

    def iterate(self) -> Iteration:
        """Move all chains once, and adapt if that is part of the warm-up."""
        tuning = self._count < self._tune
        step_size, n_steps = self.step_size, self._n_steps(self._count)
        if tuning:
            trajectory = self._warm_up(step_size, n_steps)
        else:
            trajectory = self._hamiltonian.draw(step_size, map(self._n_steps, count(self._count)))
        self._count += 1
        stats = {} if tuning else trajectory.statistics(step_size, n_steps)
        return Iteration(stats, step_size, n_steps, tuning)

    def _n_steps(self, index: int) -> int:
        """Return the number of steps of an iteration, if it has the step size and length of the next one."""
        jitter = self._shortest + (1 - self._shortest) * halton(index)
        most = min(self._max_steps, EARLY_STEPS) if index < self._tune // 3 else self._max_steps
        return min(max(math.ceil(jitter * self.trajectory_length / self.step_size), 1), most)

    @property
    def monitor(self) -> LostChainMonitor:
        """The monitor that restarts chains that are lost in the warm-up."""
        return self._adaptation.monitor

    def _warm_up(self, step_size: float, n_steps: int) -> Trajectory:
        """Move all chains, and adapt what is adapted."""
        adaptation, mass = self._adaptation, self._adaptation.mass
        direction = self._direction.in_units(mass.inverse_mass) if self._adapts_length else None
        trajectory = self._hamiltonian.adapting_trajectory(
            step_size, n_steps, adaptation.is_watching, adaptation.questions(direction)
        )
        usual, moments = adaptation.look(direction)
        adaptation.update(trajectory.acceptance, usual)
        if self._adapts_length:
            self._adapt_length(trajectory, usual, step_size, n_steps)
            if moments.chains and mass.centre is not None:
                if adaptation.has_new_mass:
                    moments = adaptation.moments(usual, self._direction.in_units(mass.inverse_mass))
                # The next trajectories are measured along the direction in which the positions vary most.
                self._hamiltonian.set_direction(mass.centre, self._direction.update(moments, mass.inverse_mass))
        if adaptation.has_new_mass:
            # The gradient with respect to the length has another scale now.
            self._length.restart()
            self._direction.restart()
        return trajectory

    def _adapt_length(self, trajectory: Trajectory, usual: np.ndarray, step_size: float, n_steps: int) -> None:
        """Change the length so that the mean square of `change`, divided by the cost of a trajectory, grows."""
        growth = 4 * n_steps * step_size * trajectory.change * trajectory.slope
        gain = growth - trajectory.change**2 * (n_steps / (n_steps + OVERHEAD_STEPS))
        weights = np.where(usual & np.isfinite(gain), trajectory.acceptance, 0.0)
        gradient = float(np.sum(weights * np.where(weights > 0, gain, 0.0))) / max(float(np.sum(weights)), 1e-20)
        value = self._length.update(gradient)
        low, high = math.log(step_size), math.log(step_size * self._max_steps)
        self._length.value = value = min(max(value, low), high)
        # An average over about the last third of what has been done.
        self._log_length += (value - self._log_length) * min(1.0, 6 / (self._count + 6))
