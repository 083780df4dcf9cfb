"""Generalised Hamiltonian Monte Carlo of all chains: one leapfrog step, and a partial refreshment of the momenta."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt

from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import MAX_ENERGY_ERROR, Chains, statistics


class Steps(NamedTuple):
    """Results of the steps of an iteration that the host reads."""

    acceptance: np.ndarray  # the mean over the steps
    accepted: np.ndarray  # whether any step was accepted
    diverging: np.ndarray  # the number of steps that diverged
    log_density: np.ndarray  # after the last step, as the energy and its error are
    energy: np.ndarray
    energy_error: np.ndarray
    worst_error: np.ndarray  # the largest energy error of a step, in absolute value

    def statistics(self, step_size: float, n_steps: int) -> dict[str, np.ndarray]:
        """Return the statistics of each chain by PyMC's names, and ``n_diverging``."""
        common = statistics(self, step_size, n_steps)
        return {**common, "max_energy_error": self.worst_error, "n_diverging": self.diverging}


class Langevin(Chains):
    """Positions, momenta and slice variables of all chains, and the function that moves them by one step.

    An iteration mixes the momenta with new ones, takes a leapfrog step, and accepts or rejects it. After a rejection
    the momenta are reversed (Horowitz 1991). The number that decides is not drawn each time: it moves slowly through
    its interval, so that rejections come in groups (Neal 2020).
    """

    def __init__(self, density: ModelDensity, chains: int, seed: Any, mode: Any) -> None:
        super().__init__(density, chains, seed, mode)
        rng = np.random.default_rng(seed).spawn(1)[0]
        self._momentum, self._scale = self._state("momentum"), self._state("scale")
        self._momentum.set_value(rng.standard_normal((chains, density.size)).astype(density.dtype))
        self._slice, self._step = self._per_chain_state("slice"), self._per_chain_state("step")
        self._damping, self._is_active = self._per_chain_state("damping"), self._per_chain_state("is_active")
        self._slice.set_value(rng.uniform(-1, 1, chains).astype(density.dtype))
        self._energy_error = self._per_chain_state("energy_error")
        self._energy = self._per_chain_state("energy")
        self._totals = [self._per_chain_state(name) for name in ("acceptance", "accepted", "diverging", "worst_error")]
        self._evaluate = self._compile_evaluate()
        self.advance = self._compile_advance()

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities."""
        self._position.set_value(self.density.join(positions))
        self._evaluate()
        return np.asarray(self._log_density.get_value())

    def set_parameters(
        self, scale: np.ndarray, step: np.ndarray, damping: np.ndarray, is_active: np.ndarray | None = None
    ) -> None:
        """Set what each chain's next steps use."""
        active = np.ones(self.chains) if is_active is None else is_active
        values = ((self._scale, scale), (self._step, step), (self._damping, damping), (self._is_active, active))
        for shared, value in values:
            shared.set_value(np.ascontiguousarray(value, self.density.dtype))

    def trajectory(self, n_steps: int) -> Steps:
        """Take `n_steps` steps."""
        for total in self._totals:
            total.set_value(np.zeros(self.chains, self.density.dtype))
        for _ in range(n_steps):
            self.advance()
        acceptance, accepted, diverging, worst = (np.asarray(total.get_value()) for total in self._totals)
        log_density, energy, error = (
            np.asarray(shared.get_value()) for shared in (self._log_density, self._energy, self._energy_error)
        )
        return Steps(acceptance / n_steps, accepted > 0, diverging.astype(int), log_density, energy, error, worst)

    def _compile_evaluate(self) -> Any:
        log_density, gradient = self.density(self._position)
        return self._function([], [], {self._log_density: log_density, self._gradient: gradient}, "evaluate")

    def _compile_advance(self) -> Any:
        rng, noise = self._draw_normal()
        momentum = pt.sqrt(1 - self._damping)[:, None] * self._momentum + pt.sqrt(self._damping)[:, None] * noise
        half = 0.5 * self._step[:, None] * self._scale
        middle = momentum + half * self._gradient
        moved = self._position + 2 * half * middle
        log_density, gradient = self.density(moved)
        end = middle + half * gradient
        before = 0.5 * pt.sqr(momentum).sum(axis=1) - self._log_density
        error = 0.5 * pt.sqr(end).sum(axis=1) - log_density - before
        error = pt.switch(pt.isnan(error), np.asarray(np.inf, error.dtype), error)
        # The slice variable is reflected at 1: it moves by half of the damping.
        level = self._slice + 1 + 0.5 * self._damping
        level = pt.switch(level > 2, level - 2, level) - 1
        accepted = pt.log(pt.abs(level)) < -error
        active = self._is_active > 0
        takes = active & accepted
        # The ratio of densities that was compared is part of the slice variable of the new state.
        changed = pt.switch(accepted, level * pt.exp(pt.switch(accepted, error, 0)), level)

        updates = {
            self.rng: rng,
            self._position: self._wrap(pt.switch(takes[:, None], moved, self._position)),
            self._gradient: pt.switch(takes[:, None], gradient, self._gradient),
            self._log_density: pt.switch(takes, log_density, self._log_density),
            self._momentum: pt.switch(active[:, None], pt.switch(accepted[:, None], end, -momentum), self._momentum),
            self._slice: pt.switch(active, changed, self._slice),
            self._energy_error: error,
            self._energy: before + pt.switch(takes, error, 0),
            **dict(zip(self._totals, self._added(error, takes), strict=True)),
        }
        return self._function([], [], updates, "advance")

    def _added(self, error: Any, takes: Any) -> list[Any]:
        """Return the totals of an iteration with one more step."""
        acceptance, accepted, diverging, worst = self._totals
        dtype = self.density.dtype
        return [
            acceptance + pt.exp(pt.minimum(-error, 0)).astype(dtype),
            accepted + takes.astype(dtype),
            diverging + (error > MAX_ENERGY_ERROR).astype(dtype),
            pt.switch(pt.abs(error) > pt.abs(worst), error, worst).astype(dtype),
        ]
