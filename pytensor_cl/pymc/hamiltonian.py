"""Hamiltonian trajectories of all chains, as functions whose state stays on the device."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.pymc.density import ModelDensity

__all__ = ["MAX_ENERGY_ERROR", "Chains", "Hamiltonian", "Trajectory", "compile_function", "per_chain", "rows"]

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
    moments : ndarray
        Means and variances of the positions, and variances of the gradients, over chains: shape (3, parameters).
    """

    acceptance: np.ndarray
    accepted: np.ndarray
    diverging: np.ndarray
    log_density: np.ndarray
    energy: np.ndarray
    energy_error: np.ndarray
    growth: np.ndarray
    moments: np.ndarray

    def statistics(self, step_size: float, n_steps: int) -> dict[str, np.ndarray]:
        """Return the statistics of each chain by PyMC's names.

        Parameters
        ----------
        step_size, n_steps
            Of the leapfrog steps, the same for all chains.
        """
        chains = self.acceptance.shape
        return {
            "acceptance_rate": self.acceptance,
            "accepted": self.accepted,
            "diverging": self.diverging,
            "energy": self.energy,
            "energy_error": self.energy_error,
            "lp": self.log_density,
            "n_steps": np.full(chains, n_steps),
            "step_size": np.full(chains, step_size),
        }


def rows(values: Sequence[TensorVariable]) -> TensorVariable:
    """Return the sum of `values` over all axes but that of chains."""
    return sum(value.sum(axis=tuple(range(1, value.ndim))) if value.ndim > 1 else value for value in values)


def per_chain(value: TensorVariable, like: TensorVariable) -> TensorVariable:
    """Give a vector of chains as many dimensions as `like` has."""
    return pt.shape_padright(value, like.ndim - 1) if like.ndim > 1 else value


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
        self._step_size = pt.scalar("step_size", dtype=pytensor.config.floatX)
        self._evaluate = self._compile_evaluate()

    def _state(self, name: str) -> list[Any]:
        """Return shared variables of shape (chains, *shape), one for each value variable."""
        density = self.density
        shapes = [(self.chains, *shape) for shape in density.shapes]
        return [
            pytensor.shared(np.zeros(shape, dtype), name=f"{name}_{value}", shape=shape)
            for value, shape, dtype in zip(density.names, shapes, density.dtypes, strict=True)
        ]

    def _per_chain_state(self, name: str) -> Any:
        """Return a shared variable with a number for each chain."""
        return pytensor.shared(np.zeros(self.chains, pytensor.config.floatX), name=name, shape=(self.chains,))

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities.

        Parameters
        ----------
        positions
            Arrays of shape (chains, *shape).
        """
        for shared, value, dtype in zip(self._position, positions, self.density.dtypes, strict=True):
            shared.set_value(np.asarray(value, dtype))
        self._evaluate()
        return self._log_density.get_value()

    def positions(self) -> list[np.ndarray]:
        """Return copies of the positions."""
        return [np.asarray(shared.get_value()) for shared in self._position]

    def flat_state(self) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the positions and gradients, as float64 of shape (chains, parameters)."""
        parts = ([np.asarray(v.get_value(), "float64") for v in group] for group in (self._position, self._gradient))
        position, gradient = (np.concatenate([v.reshape(self.chains, -1) for v in part], axis=1) for part in parts)
        return position, gradient

    def set_inverse_temperature(self, value: float) -> None:
        """Set the power of the likelihood. `set_positions` must follow, for the densities and gradients.

        Parameters
        ----------
        value
            Between 0 (the prior) and 1 (the posterior).
        """
        self.density.temperature.set_value(np.asarray(value, pytensor.config.floatX))

    def _function(self, inputs: list[Any], outputs: list[Any], updates: dict[Any, Any], name: str) -> Any:
        return compile_function(inputs, outputs, updates, self._mode, name)

    def _compile_evaluate(self) -> Any:
        log_density, gradient = self.density(self._position)
        updates = {self._log_density: log_density, **dict(zip(self._gradient, gradient, strict=True))}
        return self._function([], [], updates, "evaluate")

    def _wrap(self, index: int, value: Any) -> Any:
        """Bring the values of a periodic variable back between -pi and pi, where the density is the same.

        Otherwise chains drift apart by whole periods, and variances over chains say nothing.
        """
        return pt.arctan2(pt.sin(value), pt.cos(value)) if self.density.is_periodic[index] else value

    def _draw_normal(self) -> tuple[Any, Any, list[TensorVariable]]:
        """Return the generator's next state, normal numbers of shape (chains, parameters), and their parts.

        There is a part of shape (chains, *shape) for each value variable.
        """
        rng, drawn = pt.random.normal(size=(self.chains, self.density.size), rng=self.rng, return_next_rng=True)
        drawn = drawn.astype(pytensor.config.floatX)
        return rng, drawn, list(self.density.split(drawn, self.chains))


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
    inverse_mass : list
        Shared variables: the diagonal of the inverse mass matrix, for each value variable.
    """

    def __init__(self, density: ModelDensity, chains: int, seed: Any, mode: Any) -> None:
        super().__init__(density, chains, seed, mode)
        self._proposal, self._momentum = self._state("proposal"), self._state("momentum")
        self._proposal_gradient = self._state("slope")
        self._proposal_density = self._per_chain_state("proposal_density")
        self._energy = self._per_chain_state("energy")
        self.inverse_mass = [
            pytensor.shared(np.ones(shape, dtype), name=f"inverse_mass_{value}", shape=shape)
            for value, shape, dtype in zip(density.names, density.shapes, density.dtypes, strict=True)
        ]
        self.begin = self._compile_begin()
        self.step = self._compile_step()
        self._finish, self._try = self._compile_finish()
        if density.temperature is not None:
            self._observed = self._function([], [density.observed(self._position)], {}, "observed")

    def state(self) -> list[Any]:
        """Return the shared variables that differ from chain to chain."""
        arrays = (self._position, self._gradient, self._proposal, self._momentum, self._proposal_gradient)
        return [*(v for group in arrays for v in group), self._log_density, self._proposal_density, self._energy]

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix.

        Parameters
        ----------
        flat
            One positive number for each parameter.
        """
        for shared, part in zip(self.inverse_mass, self.density.split(flat), strict=True):
            shared.set_value(part)

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
        acceptance, accepted, diverging, log_density, energy, error, growth, *moments = self._finish(step_size)
        size = self.density.size
        return Trajectory(
            *(acceptance, accepted, diverging, log_density, energy, error, growth),
            np.concatenate([np.reshape(part, (3, -1)) for part in moments], axis=1).reshape(3, size),
        )

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
        return self._try(step_size)[0]

    def _compile_begin(self) -> Any:
        rng, drawn, parts = self._draw_normal()
        momenta = [part / pt.sqrt(inverse_mass) for part, inverse_mass in zip(parts, self.inverse_mass, strict=True)]
        half = 0.5 * self._step_size
        updates = {
            self.rng: rng,
            self._energy: 0.5 * pt.sqr(drawn).sum(axis=1) - self._log_density,
            **{p: m + half * g for p, m, g in zip(self._momentum, momenta, self._gradient, strict=True)},
            **dict(zip(self._proposal, self._position, strict=True)),
        }
        return self._function([self._step_size], [], updates, "begin")

    def _compile_step(self) -> Any:
        moved = [
            q + self._step_size * m * p
            for q, m, p in zip(self._proposal, self.inverse_mass, self._momentum, strict=True)
        ]
        log_density, gradient = self.density(moved)
        updates = {
            self._proposal_density: log_density,
            **dict(zip(self._proposal, moved, strict=True)),
            **dict(zip(self._proposal_gradient, gradient, strict=True)),
            **{p: p + self._step_size * g for p, g in zip(self._momentum, gradient, strict=True)},
        }
        return self._function([self._step_size], [], updates, "leapfrog")

    def _compile_finish(self) -> tuple[Any, Any]:
        half = 0.5 * self._step_size
        momenta = [p - half * g for p, g in zip(self._momentum, self._proposal_gradient, strict=True)]
        kinetic = 0.5 * rows([m * pt.sqr(p) for m, p in zip(self.inverse_mass, momenta, strict=True)])
        error = kinetic - self._proposal_density - self._energy
        error = pt.switch(pt.isnan(error), np.asarray(np.inf, error.dtype), error)
        diverging = error > MAX_ENERGY_ERROR
        acceptance = pt.exp(pt.minimum(-error, 0))
        rng, uniform = pt.random.uniform(size=(self.chains,), rng=self.rng, return_next_rng=True)
        accepted = uniform.astype(error.dtype) < acceptance

        def chosen(new: TensorVariable, old: TensorVariable, condition: TensorVariable = accepted) -> TensorVariable:
            return pt.switch(per_chain(condition, old), new, old)

        position = [
            self._wrap(i, chosen(q, old)) for i, (q, old) in enumerate(zip(self._proposal, self._position, strict=True))
        ]
        gradient = [chosen(g, old) for g, old in zip(self._proposal_gradient, self._gradient, strict=True)]
        log_density = chosen(self._proposal_density, self._log_density)
        updates = {
            self.rng: rng,
            self._log_density: log_density,
            **dict(zip(self._position, position, strict=True)),
            **dict(zip(self._gradient, gradient, strict=True)),
        }
        outputs = [acceptance, accepted, diverging, log_density, self._energy + pt.switch(accepted, error, 0), error]
        outputs.append(self._growth(momenta, ~diverging))
        outputs += [
            pt.stack([q.mean(axis=0), q.var(axis=0), g.var(axis=0)]) for q, g in zip(position, gradient, strict=True)
        ]
        finish = self._function([self._step_size], outputs, updates, "finish")
        return finish, self._function([self._step_size], [acceptance], {}, "try_step")

    def _growth(self, momenta: list[TensorVariable], finite: TensorVariable) -> TensorVariable:
        """Return the term of the ChEES criterion (Hoffman, Radul, Sountsov 2021)."""
        distances, speeds = [], []
        for end, start, p, m in zip(self._proposal, self._position, momenta, self.inverse_mass, strict=True):
            end = pt.switch(per_chain(finite, end), end, start)
            from_mean = end - end.mean(axis=0)
            distances.append((pt.sqr(from_mean) - pt.sqr(start - start.mean(axis=0))) / m)
            speeds.append(pt.switch(per_chain(finite, end), from_mean * p, 0))
        return rows(distances) * rows(speeds)
