"""Generalised Hamiltonian Monte Carlo of all chains: one leapfrog step, and a partial refreshment of the momenta."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import MAX_ENERGY_ERROR, Chains, Trajectory, per_chain, rows

__all__ = ["Langevin"]


class Langevin(Chains):
    """Positions, momenta and slice variables of all chains, and the function that moves them by one step.

    An iteration mixes the momenta with new ones, takes a leapfrog step, and accepts or rejects it. After a rejection
    the momenta are reversed (Horowitz 1991). The number that decides is not drawn each time: it moves slowly through
    its interval, so that rejections come in groups (Neal 2020).

    Parameters
    ----------
    density, chains, seed, mode
        See `Chains`.
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
        self._accepted = self._per_chain_state("accepted")
        self._evaluate = self._compile_evaluate()
        self.advance = self._compile_advance()

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities.

        Parameters
        ----------
        positions
            Arrays of shape (chains, *shape).
        """
        self._position.set_value(self.density.join(positions))
        self._evaluate()
        return np.asarray(self._log_density.get_value())

    def set_parameters(
        self, scale: np.ndarray, step: np.ndarray, damping: np.ndarray, is_active: np.ndarray | None = None
    ) -> None:
        """Set what each chain's next steps use.

        Parameters
        ----------
        scale
            Scales of the parameters: shape (chains, parameters).
        step, damping
            Step sizes, and the share of the squared momenta that is replaced before each step: shape (chains,).
        is_active
            Which chains move; default all.
        """
        active = np.ones(self.chains) if is_active is None else is_active
        values = ((self._scale, scale), (self._step, step), (self._damping, damping), (self._is_active, active))
        for shared, value in values:
            shared.set_value(np.ascontiguousarray(value, self.density.dtype))

    def trajectory(self, n_steps: int) -> Trajectory:
        """Take `n_steps` steps; what is returned is that of the last one.

        Parameters
        ----------
        n_steps
            Number of gradients.
        """
        for _ in range(n_steps):
            self.advance()
        error = np.asarray(self._energy_error.get_value())
        return Trajectory(
            np.exp(np.minimum(-error, 0)),
            np.asarray(self._accepted.get_value()) > 0,
            error > MAX_ENERGY_ERROR,
            np.asarray(self._log_density.get_value()),
            np.asarray(self._energy.get_value()),
            error,
            np.zeros(0),
        )

    def _compile_evaluate(self) -> Any:
        log_density, gradient = self.density(self._position)
        return self._function([], [], {self._log_density: log_density, self._gradient: gradient}, "evaluate")

    def _compile_advance(self) -> Any:
        rng, noise = self._draw_normal()
        momentum = per_chain(pt.sqrt(1 - self._damping)) * self._momentum + per_chain(pt.sqrt(self._damping)) * noise
        half = 0.5 * per_chain(self._step) * self._scale
        middle = momentum + half * self._gradient
        moved = self._position + 2 * half * middle
        log_density, gradient = self.density(moved)
        end = middle + half * gradient
        before = 0.5 * rows(pt.sqr(momentum)) - self._log_density
        error = 0.5 * rows(pt.sqr(end)) - log_density - before
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
            self._position: self._wrap(pt.switch(per_chain(takes), moved, self._position)),
            self._gradient: pt.switch(per_chain(takes), gradient, self._gradient),
            self._log_density: pt.switch(takes, log_density, self._log_density),
            self._momentum: pt.switch(
                per_chain(active), pt.switch(per_chain(accepted), end, -momentum), self._momentum
            ),
            self._slice: pt.switch(active, changed, self._slice),
            self._energy_error: error,
            self._energy: before + pt.switch(takes, error, 0),
            self._accepted: takes.astype(self.density.dtype),
        }
        return self._function([], [], updates, "advance")
