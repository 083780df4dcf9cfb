"""Hamiltonian trajectories of all chains, as functions whose state stays on the device."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.pymc.density import ModelDensity

__all__ = [
    "MAX_ENERGY_ERROR",
    "Chains",
    "Hamiltonian",
    "Trajectory",
    "compile_function",
    "per_chain",
    "rows",
    "statistics",
]

MAX_ENERGY_ERROR = 1000.0
"""A trajectory whose energy grows by more than that diverges, as in Stan and PyMC."""


class Trajectory(NamedTuple):
    """What the host reads of one trajectory of all chains.

    Attributes
    ----------
    acceptance : ndarray
        Probability of acceptance of each chain.
    accepted, diverging : ndarray
        One boolean for each chain.
    log_density, energy : ndarray
        Of each chain, after the decision.
    energy_error : ndarray
        Energy at the end of each trajectory less that at its start.
    growth : ndarray
        For each chain, half the derivative in time of the squared distance from the mean at the end of the trajectory,
        times the growth of the squared distance: the term of the ChEES criterion.
    """

    acceptance: np.ndarray
    accepted: np.ndarray
    diverging: np.ndarray
    log_density: np.ndarray
    energy: np.ndarray
    energy_error: np.ndarray
    growth: np.ndarray

    def statistics(self, step_size: float, n_steps: int) -> dict[str, np.ndarray]:
        """Return the statistics of each chain by PyMC's names.

        Parameters
        ----------
        step_size, n_steps
            Of the leapfrog steps, the same for all chains.
        """
        return statistics(self, step_size, n_steps)


def statistics(moves: Any, step_size: float, n_steps: int) -> dict[str, np.ndarray]:
    """Return the statistics that all samplers have of moves: a `Trajectory`, or the steps of another sampler."""
    chains = moves.acceptance.shape
    return {
        "acceptance_rate": moves.acceptance,
        "accepted": moves.accepted,
        "diverging": moves.diverging > 0,
        "energy": moves.energy,
        "energy_error": moves.energy_error,
        "lp": moves.log_density,
        "n_steps": np.full(chains, n_steps),
        "step_size": np.full(chains, step_size),
    }


def rows(value: TensorVariable) -> TensorVariable:
    """Return the sum over the parameters of each chain."""
    return value.sum(axis=1)


def per_chain(value: TensorVariable) -> TensorVariable:
    """Give a vector of chains an axis of parameters."""
    return value[:, None]


def compile_function(inputs: list[Any], outputs: list[Any], updates: dict[Any, Any], mode: Any, name: str) -> Any:
    """Compile a function of a model, as `pytensor.function` does.

    Parameters
    ----------
    inputs, outputs, updates, mode, name
        See `pytensor.function`.
    """
    with warnings.catch_warnings():
        # A model of many variables has more arguments than one kernel takes; PyTensor then makes several.
        warnings.filterwarnings("ignore", "Loop fusion failed because", UserWarning)
        return pytensor.function(inputs, outputs, updates=updates, mode=mode, name=name)


class Chains:
    """Positions, gradients and log densities of all chains, on the device.

    Parameters
    ----------
    density
        See `ModelDensity`.
    chains
        Number of chains. They are at zero until `set_positions` is called.
    seed
        Seed of the random numbers of a sampler.
    mode
        PyTensor mode that compiles the functions.

    Attributes
    ----------
    density
        What is sampled.
    chains
        Number of chains.
    rng
        Shared variable: the generator of all random numbers.
    """

    def __init__(self, density: ModelDensity, chains: int, seed: Any, mode: Any) -> None:
        self.density = density
        self.chains = chains
        self._mode = mode
        self.rng = pytensor.shared(np.random.default_rng(seed), name="rng")
        self._position, self._gradient = self._state("position"), self._state("gradient")
        self._log_density = self._per_chain_state("log_density")
        self._step_size = pt.scalar("step_size", dtype=density.dtype)

    def _state(self, name: str) -> Any:
        """Return a shared variable of shape (chains, parameters)."""
        return self._shared(name, (self.chains, self.density.size))

    def _per_chain_state(self, name: str) -> Any:
        """Return a shared variable with a number for each chain."""
        return self._shared(name, (self.chains,))

    def _shared(self, name: str, shape: tuple[int, ...]) -> Any:
        return pytensor.shared(np.zeros(shape, self.density.dtype), name=name, shape=shape)

    def positions(self) -> list[np.ndarray]:
        """Return copies of the positions, for each value variable."""
        return list(self.density.split(np.asarray(self._position.get_value()), self.chains))

    def flat_state(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the positions and gradients, as float64 of shape (chains, parameters)."""
        position, gradient = (np.asarray(v.get_value(), "float64") for v in (self._position, self._gradient))
        return position, gradient

    def set_inverse_temperature(self, value: float) -> None:
        """Set the power of the likelihood. `set_positions` must follow, for the densities and gradients.

        Parameters
        ----------
        value
            Between 0 (the prior) and 1 (the posterior).
        """
        self.density.temperature.set_value(np.asarray(value, self.density.dtype))

    def _function(self, inputs: list[Any], outputs: list[Any], updates: dict[Any, Any], name: str) -> Any:
        return compile_function(inputs, outputs, updates, self._mode, name)

    def _wrap(self, position: Any) -> Any:
        """Bring the values of periodic variables back between -pi and pi, where the density is the same.

        Otherwise chains drift apart by whole periods, and variances over chains say nothing.
        """
        is_periodic = self.density.parameter_is_periodic
        if not is_periodic.any():
            return position
        wrapped = pt.arctan2(pt.sin(position), pt.cos(position))
        return wrapped if is_periodic.all() else pt.switch(is_periodic, wrapped, position)

    def _draw_normal(self) -> tuple[Any, Any]:
        """Return the generator's next state, and normal numbers of shape (chains, parameters)."""
        rng, drawn = pt.random.normal(size=(self.chains, self.density.size), rng=self.rng, return_next_rng=True)
        return rng, drawn.astype(self.density.dtype)


class Hamiltonian(Chains):
    """Positions, momenta and gradients of all chains, and the functions that move them.

    A trajectory is a call of `begin`, calls of `step`, and a call of `finish`. A step moves the positions, and adds the
    gradient times the step size to the momenta; `begin` adds half of that before the first step, and `finish` subtracts
    half of it. So a step evaluates the gradient once, and nothing else is computed.

    Parameters
    ----------
    density, chains, seed, mode
        See `Chains`.

    Attributes
    ----------
    inverse_mass
        Shared variable: the diagonal of the inverse mass matrix, shape (parameters,).
    """

    def __init__(self, density: ModelDensity, chains: int, seed: Any, mode: Any) -> None:
        super().__init__(density, chains, seed, mode)
        self._proposal, self._momentum = self._state("proposal"), self._state("momentum")
        self._proposal_gradient = self._state("slope")
        self._proposal_density = self._per_chain_state("proposal_density")
        self._energy = self._per_chain_state("energy")
        self.inverse_mass = self._shared("inverse_mass", (density.size,))
        self._momentum_scale = self._shared("momentum_scale", (density.size,))
        self.set_inverse_mass(np.ones(density.size))
        self.begin = self._compile_begin()
        self.step = self._compile_step()
        self._finish = self._compile_finish()
        if density.temperature is not None:
            self._observed = self._function([], [density.observed(self._position)], {}, "observed")

    def state(self) -> list[Any]:
        """Return the shared variables that differ from chain to chain."""
        matrices = [self._position, self._gradient, self._proposal, self._momentum, self._proposal_gradient]
        return [*matrices, self._log_density, self._proposal_density, self._energy]

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities.

        Parameters
        ----------
        positions
            Arrays of shape (chains, *shape).
        """
        flat = self.density.join(positions)
        self._proposal.set_value(flat)
        self._momentum.set_value(np.zeros_like(flat))
        # A step of size zero evaluates the density where the chains are: no other function is compiled for that.
        self.step(0.0)
        log_density = np.asarray(self._proposal_density.get_value())
        self._position.set_value(flat)
        self._gradient.set_value(np.asarray(self._proposal_gradient.get_value()))
        self._log_density.set_value(log_density)
        return log_density

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix.

        Parameters
        ----------
        flat
            One positive number for each parameter.
        """
        self.inverse_mass.set_value(np.asarray(flat, self.density.dtype))
        # In the graph this would be a node of the host, which Numba compiles.
        self._momentum_scale.set_value(np.asarray(1 / np.sqrt(flat), self.density.dtype))

    def observed(self) -> np.ndarray:
        """Return the log likelihood of each chain, of a tempered density."""
        return np.asarray(self._observed()[0])

    def finish(self, step_size: float) -> Trajectory:
        """Accept or reject the proposals.

        Parameters
        ----------
        step_size
            That of the steps.
        """
        return Trajectory(*self._finish(step_size, 1.0))

    def synchronize(self) -> None:
        """Wait until the last steps have run."""
        self._proposal_density.get_value(borrow=True)

    def trajectory(self, step_size: float, n_steps: int) -> Trajectory:
        """Move all chains along trajectories of `n_steps` steps.

        Parameters
        ----------
        step_size
            Size of a leapfrog step, in units of the mass matrix.
        n_steps
            Number of gradients.
        """
        self.begin(step_size)
        for _ in range(n_steps):
            self.step(step_size)
        return self.finish(step_size)

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the positions, and stay there.

        Parameters
        ----------
        step_size
            Size of a leapfrog step, in units of the mass matrix.
        """
        self.begin(step_size)
        self.step(step_size)
        return self._finish(step_size, 0.0)[0]

    def _compile_begin(self) -> Any:
        rng, drawn = self._draw_normal()
        updates = {
            self.rng: rng,
            self._energy: 0.5 * rows(pt.sqr(drawn)) - self._log_density,
            self._momentum: drawn * self._momentum_scale + 0.5 * self._step_size * self._gradient,
            self._proposal: self._position,
        }
        return self._function([self._step_size], [], updates, "begin")

    def _compile_step(self) -> Any:
        moved = self._proposal + self._step_size * self.inverse_mass * self._momentum
        log_density, gradient = self.density(moved)
        updates = {
            self._proposal: moved,
            self._proposal_density: log_density,
            self._proposal_gradient: gradient,
            self._momentum: self._momentum + self._step_size * gradient,
        }
        return self._function([self._step_size], [], updates, "leapfrog")

    def _compile_finish(self) -> Any:
        """Return the function of the step size, and of 1, or of 0 if all proposals are rejected."""
        moves = pt.scalar("moves", dtype=self.density.dtype)
        momentum = self._momentum - 0.5 * self._step_size * self._proposal_gradient
        kinetic = 0.5 * rows(self.inverse_mass * pt.sqr(momentum))
        error = kinetic - self._proposal_density - self._energy
        error = pt.switch(pt.isnan(error), np.asarray(np.inf, error.dtype), error)
        diverging = error > MAX_ENERGY_ERROR
        acceptance = pt.exp(pt.minimum(-error, 0))
        rng, uniform = pt.random.uniform(size=(self.chains,), rng=self.rng, return_next_rng=True)
        accepted = uniform.astype(error.dtype) < acceptance * moves
        position = self._wrap(pt.switch(per_chain(accepted), self._proposal, self._position))
        gradient = pt.switch(per_chain(accepted), self._proposal_gradient, self._gradient)
        log_density = pt.switch(accepted, self._proposal_density, self._log_density)
        updates = {
            self.rng: rng,
            self._log_density: log_density,
            self._position: position,
            self._gradient: gradient,
        }
        energy = self._energy + pt.switch(accepted, error, 0)
        growth = self._growth(momentum, ~diverging)
        outputs = [acceptance, accepted, diverging, log_density, energy, error, growth]
        return self._function([self._step_size, moves], outputs, updates, "finish")

    def _growth(self, momentum: TensorVariable, finite: TensorVariable) -> TensorVariable:
        """Return the term of the ChEES criterion (Hoffman, Radul, Sountsov 2021)."""
        start = self._position
        end = pt.switch(per_chain(finite), self._proposal, start)
        from_mean = end - end.mean(axis=0)
        distance = rows((pt.sqr(from_mean) - pt.sqr(start - start.mean(axis=0))) / self.inverse_mass)
        return distance * rows(pt.switch(per_chain(finite), from_mean * momentum, 0))
