"""Hamiltonian trajectories of all chains, as functions whose state stays on the device."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.parts import Parts

BLOCK_BYTES = 4 << 20
"""Bytes of the normal numbers that are drawn in one call, at most."""
BLOCK_LENGTH = 32
"""Trajectories for which there are such numbers, at most."""
MAX_ENERGY_ERROR = 1000.0
"""A trajectory whose energy grows by more than that diverges, as in Stan and PyMC."""


class Trajectory(NamedTuple):
    """Results of one trajectory that the host reads: arrays with a number for each chain."""

    acceptance: np.ndarray
    accepted: np.ndarray
    diverging: np.ndarray
    log_density: np.ndarray  # after the decision, as the energy is
    energy: np.ndarray
    energy_error: np.ndarray  # energy at the end of the trajectory less that at its start
    change: np.ndarray  # growth of the squared distance from a centre along a direction (`Hamiltonian.set_direction`)
    slope: np.ndarray  # half the derivative in time of that squared distance at the end

    def statistics(self, step_size: float, n_steps: int) -> dict[str, np.ndarray]:
        """Return the statistics of each chain by PyMC's names."""
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


def compile_function(inputs: list[Any], outputs: list[Any], updates: dict[Any, Any], mode: Any, name: str) -> Any:
    """Compile a function of a model, as `pytensor.function` does."""
    with warnings.catch_warnings():
        # A model of many variables has more arguments than one kernel takes; PyTensor then makes several.
        warnings.filterwarnings("ignore", "Loop fusion failed because", UserWarning)
        return pytensor.function(inputs, outputs, updates=updates, mode=mode, name=name)


class Chains:
    """Positions, gradients and log densities of all chains, on the device; zero until `set_positions` is called."""

    def __init__(self, density: ModelDensity, chains: int, seed: Any, mode: Any) -> None:
        self.density = density
        self.chains = chains
        self.parts = Parts()
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
        return list(self.density.split(self.flat_positions(), self.chains))

    def flat_positions(self) -> np.ndarray:
        """Return a copy of the positions, of shape (chains, parameters)."""
        return np.array(self._position.get_value())

    def flat_state(self, rows: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the positions and gradients of some chains, as float64 of shape (chains, parameters)."""
        position, gradient = (np.asarray(v.get_value(), "float64")[rows] for v in (self._position, self._gradient))
        return position, gradient

    def set_inverse_temperature(self, value: float) -> None:
        """Set the power of the likelihood. `set_positions` must follow, for the densities and gradients."""
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


class NormalBlock:
    """Standard normal numbers for several trajectories, which a device draws in one call; each is taken once."""

    def __init__(self, rng: Any, shape: tuple[int, ...], dtype: str, compile: Callable[..., Any]) -> None:
        length = min(max(BLOCK_BYTES // (8 * math.prod(shape)), 1), BLOCK_LENGTH)
        full = (length, *shape)
        self.values = pytensor.shared(np.zeros(full, dtype), name="noise", shape=full)
        self.used = length
        following, drawn = pt.random.normal(size=full, rng=rng, return_next_rng=True)
        self.draw = compile([], [], {rng: following, self.values: drawn.astype(dtype)}, "noise")

    def take(self) -> int:
        """Return the place in the block of the numbers for the next trajectory."""
        if self.used == len(self):
            self.draw()
            self.used = 0
        self.used += 1
        return self.used - 1

    def __len__(self) -> int:
        return int(self.values.type.shape[0])


class Hamiltonian(Chains):
    """Positions, momenta and gradients of all chains, and the functions that move them.

    A trajectory is a call of `begin`, calls of `step`, and a call of `finish`. A step moves the positions, and adds the
    gradient times the step size to the momenta; `begin` adds half of that before the first step, and `finish` subtracts
    half of it. So a step evaluates the gradient once, and nothing else is computed.
    """

    def __init__(self, density: ModelDensity, chains: int, seed: Any, mode: Any) -> None:
        super().__init__(density, chains, seed, mode)
        self._proposal, self._momentum = self._state("proposal"), self._state("momentum")
        self._proposal_gradient = self._state("slope")
        self._proposal_density = self._per_chain_state("proposal_density")
        self._energy, self._threshold = self._per_chain_state("energy"), self._per_chain_state("threshold")
        self.noise = NormalBlock(self.rng, (chains, density.size + 2), density.dtype, self._function)
        self.inverse_mass = self._shared("inverse_mass", (density.size,))
        self._momentum_scale = self._shared("momentum_scale", (density.size,))
        self._centre, self._direction = (self._shared(name, (density.size,)) for name in ("centre", "direction"))
        self.set_inverse_mass(np.ones(density.size))
        self._begin = self._compile_begin()
        self.step = self._compile_step()
        self._finish = self._compile_finish()
        if density.temperature is not None:
            self._observed = self._function([], [density.observed(self._position)], {}, "observed")

    def state(self) -> list[Any]:
        """Return the shared variables that differ from chain to chain."""
        matrices = [self._position, self._gradient, self._proposal, self._momentum, self._proposal_gradient]
        vectors = [self._log_density, self._proposal_density, self._energy, self._threshold]
        return [*matrices, *vectors, self.noise.values]

    def between_trajectories(self) -> dict[str, Any]:
        """Return by name the shared variables from which the next trajectory follows, with the random numbers."""
        kept = [self._position, self._gradient, self._log_density]
        return {shared.name: shared for shared in [*kept, *self.settings()]}

    def settings(self) -> list[Any]:
        """Return the shared variables that are the same for all chains."""
        settings = [self.inverse_mass, self._momentum_scale, self._centre, self._direction]
        return settings if self.density.temperature is None else [*settings, self.density.temperature]

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities."""
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
        """Set the diagonal of the inverse mass matrix."""
        self.inverse_mass.set_value(np.asarray(flat, self.density.dtype))
        # In the graph this would be a node of the host, which Numba compiles.
        self._momentum_scale.set_value(np.asarray(1 / np.sqrt(flat), self.density.dtype))

    def set_direction(self, centre: np.ndarray, direction: np.ndarray) -> None:
        """Set what `Trajectory.change` measures: the distance from a centre along a direction."""
        self._centre.set_value(np.asarray(centre, self.density.dtype))
        self._direction.set_value(np.asarray(direction, self.density.dtype))

    def observed(self) -> np.ndarray:
        """Return the log likelihood of each chain, of a tempered density."""
        return np.asarray(self._observed()[0])

    def begin(self, step_size: float) -> None:
        """Draw momenta, and move them by half a step."""
        self._begin(step_size, self.noise.take())

    def finish(self, step_size: float) -> Trajectory:
        """Accept or reject the proposals."""
        return Trajectory(*self._finish(step_size, 0.0))

    def trajectory(self, step_size: float, n_steps: int) -> Trajectory:
        """Move all chains along trajectories of `n_steps` steps."""
        self.begin(step_size)
        for _ in range(n_steps):
            self.step(step_size)
        return self.finish(step_size)

    def adapting_trajectory(
        self, step_size: float, n_steps: int, is_watched: bool, questions: Sequence[tuple[str, list[Any]]]
    ) -> Trajectory:
        """Move all chains, and let their parts see the state (`parts.Part.see`); questions will follow."""
        found = self.trajectory(step_size, n_steps)
        self.parts.see(*self.flat_state(), found.log_density, is_watched)
        return found

    def draw(self, step_size: float, lengths: Iterator[int]) -> Trajectory:
        """Move all chains along trajectories of so many steps as the first of `lengths` is; others will follow."""
        return self.trajectory(step_size, next(lengths))

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the positions, and stay there."""
        self.begin(step_size)
        self.step(step_size)
        probabilities: np.ndarray = self._finish(step_size, math.inf)[0]
        return probabilities

    def _compile_begin(self) -> Any:
        """Return the function of the step size, and of the place of the normal numbers in their block."""
        place = pt.lscalar("place")
        noise, size = self.noise.values[place], self.density.size
        drawn = noise[:, :size]
        updates = {
            self._energy: 0.5 * pt.sqr(drawn).sum(axis=1) - self._log_density,
            # Minus the logarithm of a uniform number: half the sum of two squared normal ones is exponential.
            self._threshold: 0.5 * pt.sqr(noise[:, size:]).sum(axis=1),
            self._momentum: drawn * self._momentum_scale + 0.5 * self._step_size * self._gradient,
            self._proposal: self._position,
        }
        return self._function([self._step_size, place], [], updates, "begin")

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
        """Return the function of the step size, and of 0, or of infinity if all proposals are to be rejected."""
        penalty = pt.scalar("penalty", dtype=self.density.dtype)
        momentum = self._momentum - 0.5 * self._step_size * self._proposal_gradient
        kinetic = 0.5 * (self.inverse_mass * pt.sqr(momentum)).sum(axis=1)
        error = kinetic - self._proposal_density - self._energy
        error = pt.switch(pt.isnan(error), np.asarray(np.inf, error.dtype), error)
        diverging = error > MAX_ENERGY_ERROR
        acceptance = pt.exp(pt.minimum(-error, 0))
        accepted = self._threshold > error + penalty
        position = self._wrap(pt.switch(accepted[:, None], self._proposal, self._position))
        gradient = pt.switch(accepted[:, None], self._proposal_gradient, self._gradient)
        log_density = pt.switch(accepted, self._proposal_density, self._log_density)
        updates = {
            self._log_density: log_density,
            self._position: position,
            self._gradient: gradient,
        }
        energy = self._energy + pt.switch(accepted, error, 0)
        outputs = [acceptance, accepted, diverging, log_density, energy, error, *self._change(momentum, ~diverging)]
        return self._function([self._step_size, penalty], outputs, updates, "finish")

    def _change(self, momentum: TensorVariable, finite: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
        """Return what the criterion of the trajectory length is made of (Sountsov and Hoffman 2022)."""
        start = ((self._position - self._centre) * self._direction).sum(axis=1)
        end = ((self._proposal - self._centre) * self._direction).sum(axis=1)
        velocity = (self.inverse_mass * momentum * self._direction).sum(axis=1)
        return pt.switch(finite, pt.sqr(end) - pt.sqr(start), 0), pt.switch(finite, end * velocity, 0)
