"""Chains that are divided among several devices."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pytensor_cl import kept_threads
from pytensor_cl.pymc.checkpoint import load_state_dict, state_dict
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import Hamiltonian, Trajectory
from pytensor_cl.pymc.parts import Parts
from pytensor_cl.runtime.registry import default_context, defined_contexts, undefined_context

SHARDS = 4
"""Parts of the chains, if no number is given: whatever the number of devices, so that each part computes the same."""


def check_shards(chains: int, shards: int | None, why: str) -> int:
    """Return the number of shards, or raise if chains cannot be divided among them."""
    if shards is None:
        shards = SHARDS
    if not isinstance(shards, int | np.integer) or isinstance(shards, bool):
        raise TypeError(f"shards must be an integer, not {shards!r}")
    if shards < 1:
        raise ValueError(f"shards must be at least 1, not {shards}")
    if chains % shards or chains < 2 * shards:
        raise ValueError(f"with {why}, chains must be a multiple of {shards} and at least {2 * shards}, not {chains}")
    return int(shards)


def check_devices(devices: Sequence[str], shards: int) -> None:
    """Raise if shards cannot be divided among devices."""
    if not 0 < len(devices) <= shards or len(set(devices)) < len(devices):
        raise ValueError(f"devices must be one to {shards} different names of contexts, not {list(devices)}")
    for name in devices:
        if name not in defined_contexts():
            raise undefined_context(name)


class Shard:
    """The state of a part of the chains, between two turns on its device."""

    def __init__(self, hamiltonian: Hamiltonian, generator: np.random.Generator, variables: Mapping[Any, Any]) -> None:
        """Begin with values of shared variables, which are copied."""
        self._cells = [shared.container.storage for shared in variables]
        self._values = [np.array(value) for value in variables.values()]
        self._generator_cell = hamiltonian.rng.container.storage
        self._generator: Any = generator
        self._noise, self._used = hamiltonian.noise, len(hamiltonian.noise)

    def enter(self) -> None:
        """Put the state into the shared variables. No reference is kept: updates may use the memory of old values."""
        for cell, value in zip(self._cells, self._values, strict=True):
            cell[0] = value
        self._values = []
        self._generator_cell[0], self._generator = self._generator, None
        self._noise.used = self._used

    def leave(self) -> None:
        """Take the state out of the shared variables; arrays stay on the device."""
        self._values = [cell.anywhere() if hasattr(cell, "anywhere") else cell[0] for cell in self._cells]
        self._generator = self._generator_cell[0]
        self._used = self._noise.used


class ShardedHamiltonian:
    """Hamiltonian trajectories of chains on several devices; it does what a `Hamiltonian` does on one.

    The chains are in parts of equal size, each with random numbers of its own. Devices take them in turn, and
    compute at the same time. Statistics are over all chains, in the order of the parts.
    """

    def __init__(
        self,
        densities: Sequence[ModelDensity],
        chains: int,
        seed: np.random.SeedSequence,
        mode: Any,
        devices: Sequence[str],
        shards: int = SHARDS,
    ) -> None:
        self.density = densities[0]
        self.chains = chains
        self.parts = Parts(shards)
        self._part = chains // shards
        self._devices: list[Hamiltonian] = []
        for density, name in zip(densities, devices, strict=True):
            with default_context(name):
                self._devices.append(Hamiltonian(density, self._part, 0, mode))
        self._shards = []
        for i, of_shard in enumerate(seed.spawn(shards)):
            device = self._devices[i % len(devices)]
            fresh = {shared: shared.get_value() for shared in device.state()}
            self._shards.append(Shard(device, np.random.default_rng(of_shard), fresh))
        self._threads = kept_threads.pool(len(devices), "pytensor-cl-chains")

    def _each(self, compute: Callable[[Hamiltonian, slice], Any]) -> list[Any]:
        """Return what a function of a device and of the chains of a part returns, for each part."""

        def of_device(index: int) -> list[Any]:
            found = []
            for i in range(index, len(self._shards), len(self._devices)):
                self._shards[i].enter()
                try:
                    found.append(compute(self._devices[index], slice(i * self._part, (i + 1) * self._part)))
                finally:
                    self._shards[i].leave()
            return found

        results = list(self._threads.map(of_device, range(len(self._devices))))
        return [results[i % len(results)][i // len(results)] for i in range(len(self._shards))]

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities (`Chains.set_positions`)."""
        return np.concatenate(self._each(lambda device, part: device.set_positions([q[part] for q in positions])))

    def positions(self) -> list[np.ndarray]:
        """Return copies of the positions."""
        parts = self._each(lambda device, part: device.positions())
        return [np.concatenate(values) for values in zip(*parts, strict=True)]

    def flat_state(self, rows: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the positions and gradients (`Chains.flat_state`)."""
        positions, gradients = zip(*self._each(lambda device, part: device.flat_state()), strict=True)
        return np.concatenate(positions)[rows], np.concatenate(gradients)[rows]

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix of all chains."""
        for device in self._devices:
            device.set_inverse_mass(flat)

    def set_direction(self, centre: np.ndarray, direction: np.ndarray) -> None:
        """Set what the criterion of the trajectory length measures (`Hamiltonian.set_direction`)."""
        for device in self._devices:
            device.set_direction(centre, direction)

    def set_inverse_temperature(self, value: float) -> None:
        """Set the power of the likelihood of all chains."""
        for device in self._devices:
            device.set_inverse_temperature(value)

    def observed(self) -> np.ndarray:
        """Return the log likelihood of each chain, of a tempered density."""
        return np.concatenate(self._each(lambda device, part: device.observed()))

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the positions, and stay there."""
        return np.concatenate(self._each(lambda device, part: device.try_step(step_size)))

    def trajectory(self, step_size: float, n_steps: int) -> Trajectory:
        """Move all chains along trajectories of `n_steps` steps."""
        parts = self._each(lambda device, part: device.trajectory(step_size, n_steps))
        return Trajectory(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    def adapting_trajectory(
        self, step_size: float, n_steps: int, is_watched: bool, questions: Sequence[tuple[str, list[Any]]]
    ) -> Trajectory:
        """Move all chains, and let their parts see the state (`Hamiltonian.adapting_trajectory`)."""
        found = self.trajectory(step_size, n_steps)
        self.parts.see(*self.flat_state(), found.log_density, is_watched)
        return found

    def draw(self, step_size: float, lengths: Iterator[int]) -> Trajectory:
        """Move all chains along trajectories of so many steps as the first of `lengths` is (`Hamiltonian.draw`)."""
        return self.trajectory(step_size, next(lengths))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each part (`checkpoint.state_dict`)."""
        return {"parts": self._each(lambda device, part: state_dict(device)), "sums": self.parts.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give each part a state."""
        self._each(lambda device, part: load_state_dict(device, state["parts"][part.start // self._part]))
        self.parts.load_state_dict(state["sums"])
