"""Shards of chains in a worker process: they execute commands, each in its turn, and answer questions.

Nothing here knows how commands arrive. A command that comes twice is executed once.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor

from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import Hamiltonian
from pytensor_cl.pymc.parts import Part
from pytensor_cl.pymc.shards import Shard

_MOST_RUNS = 2
"""Runs whose chains a process keeps, as a client that is gone cannot say that its run has ended; and models."""
_OF_PARTS = ("medians", "squares", "moments", "usual_deviations", "regions")


class Request(NamedTuple):
    """Commands to a shard, and then questions. Both are names with arguments."""

    shard: int
    start: int  # number of commands of the run before these
    commands: Sequence[tuple[str, Sequence[Any]]]
    questions: Sequence[tuple[str, Sequence[Any]]] = ()
    wants_state: bool = False
    state: Mapping[str, Any] | None = None  # the state to begin with, where the shard is not known
    missed: Sequence[tuple[str, Sequence[Any]]] = ()  # the commands between that state and `start`

    @property
    def end(self) -> int:
        """Number of commands of the run after these."""
        return self.start + len(self.commands)


class Reply(NamedTuple):
    """The results of a request."""

    state: dict[str, Any] | None  # before the commands, if it is wanted
    results: list[Any]  # one for each command
    answers: list[Any]


class _WorkerShard:
    """A shard, and the number of commands that it has executed."""

    def __init__(self, hamiltonian: Hamiltonian, fresh: Mapping[Any, np.ndarray], state: Mapping[str, Any]) -> None:
        self._hamiltonian, self._part = hamiltonian, Part()
        generator = np.random.default_rng()
        generator.bit_generator.state = state["generator"]
        self._before = generator
        self._shard = Shard(hamiltonian, generator, fresh)
        self.done = self._last = -1
        self.latest: Reply | None = None
        if len(state) > 1:
            self._restore(state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        hamiltonian, noise = self._hamiltonian, self._hamiltonian.noise
        self._part.load_state_dict(state["sums"])
        self._shard.enter()
        try:
            for name, shared in hamiltonian.between_trajectories().items():
                shared.set_value(state["values"][name])
            if state["used"] < len(noise):
                # The same numbers again: a state has the generator's state before they were drawn, which is shorter.
                self._before = hamiltonian.rng.get_value()
                noise.draw()
                noise.used = state["used"]
        finally:
            self._shard.leave()

    def execute(self, request: Request) -> Reply:
        """Follow commands, and answer questions."""
        self._shard.enter()
        try:
            for name, arguments in request.missed:
                self._do(name, arguments)
            state = self._state() if request.wants_state else None
            results = [self._do(name, arguments) for name, arguments in request.commands]
            reply = Reply(state, results, [self._answer(name, arguments) for name, arguments in request.questions])
        finally:
            self._shard.leave()
        self._last, self.done, self.latest = request.start, request.end, reply
        return reply

    def has_executed(self, request: Request) -> bool:
        """Return whether these commands were the last ones; then their results are `latest`."""
        return len(request.commands) > 0 and (self._last, self.done) == (request.start, request.end)

    def _state(self) -> dict[str, Any]:
        """Return the state from which the next commands go on."""
        hamiltonian, noise = self._hamiltonian, self._hamiltonian.noise
        values = {name: np.array(v.get_value()) for name, v in hamiltonian.between_trajectories().items()}
        generator = self._before if noise.used < len(noise) else hamiltonian.rng.get_value()
        return {
            "generator": generator.bit_generator.state,
            "used": noise.used,
            "values": values,
            "sums": self._part.state_dict(),
        }

    def _do(self, name: str, arguments: Sequence[Any]) -> Any:
        return getattr(self, f"_do_{name}")(*arguments)

    def _do_set_positions(self, rows: np.ndarray, repeats: np.ndarray) -> np.ndarray:
        """Move the chains to rows, each of which stands for several chains that follow each other."""
        flat = np.repeat(rows, repeats, axis=0)
        return self._hamiltonian.set_positions(list(self._hamiltonian.density.split(flat, len(flat))))

    def _do_set_inverse_mass(self, flat: np.ndarray) -> None:
        self._hamiltonian.set_inverse_mass(flat)

    def _do_set_direction(self, centre: np.ndarray, direction: np.ndarray) -> None:
        self._hamiltonian.set_direction(centre, direction)

    def _do_set_inverse_temperature(self, value: float) -> None:
        self._hamiltonian.set_inverse_temperature(value)

    def _do_forget(self) -> None:
        self._part.forget()

    def _do_try_step(self, step_size: float) -> np.ndarray:
        self._note_generator()
        return np.array(self._hamiltonian.try_step(step_size))

    def _do_trajectory(self, step_size: float, n_steps: int) -> list[np.ndarray]:
        """Return all numbers that a trajectory has."""
        self._note_generator()
        return [np.array(values) for values in self._hamiltonian.trajectory(step_size, n_steps)]

    def _do_adapting_trajectory(self, step_size: float, n_steps: int, is_watched: bool) -> list[np.ndarray]:
        """Return the numbers that adaptation needs, and let the part see the state."""
        self._note_generator()
        found = self._hamiltonian.trajectory(step_size, n_steps)
        self._part.see(*self._hamiltonian.flat_state(), found.log_density, is_watched)
        return [np.array(values) for values in (found.acceptance, found.change, found.slope)]

    def _do_draw(self, step_size: float, n_steps: int) -> list[np.ndarray]:
        """Return the numbers that statistics need, and the positions."""
        self._note_generator()
        found = self._hamiltonian.trajectory(step_size, n_steps)
        return [*(np.array(values) for values in found[:6]), self._hamiltonian.flat_positions()]

    def _note_generator(self) -> None:
        noise = self._hamiltonian.noise
        if noise.used == len(noise):
            self._before = self._hamiltonian.rng.get_value()

    def _answer(self, name: str, arguments: Sequence[Any]) -> Any:
        if name in _OF_PARTS:
            return getattr(self._part, name)(*arguments)
        return getattr(self, f"_answer_{name}")(*arguments)

    def _answer_positions(self) -> np.ndarray:
        return self._hamiltonian.flat_positions()

    def _answer_flat_state(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        return self._hamiltonian.flat_state(rows)

    def _answer_observed(self) -> np.ndarray:
        return np.array(self._hamiltonian.observed())


class _Functions:
    """The functions of a model for so many chains."""

    def __init__(self, payload: bytes) -> None:
        import cloudpickle

        spec = cloudpickle.loads(payload)
        with pytensor.config.change_flags(floatX=spec["floatX"], opencl__select_backend=False):
            density = ModelDensity(spec["model"], spec["shapes"], spec["is_tempered"])
            self.hamiltonian = Hamiltonian(density, spec["chains"], 0, spec["mode"])
        variables = [*self.hamiltonian.state(), *self.hamiltonian.settings()]
        self.fresh = {shared: np.array(shared.get_value()) for shared in variables}
        self.lock = threading.Lock()


class _RunShards:
    """The shards of one run that are in this process."""

    def __init__(self, functions: _Functions) -> None:
        self._functions = functions
        self._shards: dict[int, _WorkerShard] = {}

    def execute(self, request: Request) -> Reply | None:
        """Return what a shard does; None if it is not here, or has not executed the same commands as others."""
        with self._functions.lock:
            shard = self._shards.get(request.shard)
            if shard is not None and shard.has_executed(request):
                return shard.latest
            if shard is not None and shard.done == request.start:
                request = request._replace(missed=())
            elif request.state is not None:
                shard = _WorkerShard(self._functions.hamiltonian, self._functions.fresh, request.state)
            else:
                return None
            self._shards.pop(request.shard, None)  # one that fails in the middle of a command is not used again
            reply = shard.execute(request)
            self._shards[request.shard] = shard
            return reply


_functions: dict[bytes, _Functions] = {}
_runs: dict[str, _RunShards] = {}
_lock = threading.Lock()


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Add to what is kept, and forget what is older than the last few."""
    kept[key] = value
    while len(kept) > _MOST_RUNS:
        del kept[next(iter(kept))]


def execute(run: str, requests: Sequence[Request], payload: bytes | None) -> list[Reply | None] | None:
    """Return what shards of a run do; None if the run is not known here, and there is no payload to make it from."""
    with _lock:
        shards = _runs.get(run)
        if shards is None:
            if payload is None:
                return None
            digest = hashlib.sha256(payload).digest()
            functions = _functions.pop(digest, None) or _Functions(payload)
            shards = _RunShards(functions)
            _keep(_functions, digest, functions)
            _keep(_runs, run, shards)
    return [shards.execute(request) for request in requests]


def forget_run(run: str) -> None:
    """Give the memory of a run back."""
    with _lock:
        _runs.pop(run, None)
