"""Chains on the workers of a Dask cluster.

The sampler's process sends numbered commands, such as a trajectory of so many steps, and gets numbers for each chain
and moments of each shard. It keeps the states of all shards from time to time, and the commands since then. A shard
whose worker is gone begins on another one with that state, and executes the commands again: it computes the same bits.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytensor

from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.hamiltonian import Trajectory
from pytensor_cl.pymc.parts import divided
from pytensor_cl.pymc.worker_shards import Reply, Request
from pytensor_cl.pymc.workers import PendingReplies, Workers

STATE_COMMANDS = 50
"""Trajectories between two states that are kept; a worker that takes over executes at most about so many again."""
_MOVES = ("adapting_trajectory", "trajectory", "draw")
BLOCK_BYTES = 16 << 20
"""Bytes of the draws of one shard that are fetched at once, at most."""
CLIENT_BYTES = 128 << 20
"""Bytes of the draws of all shards that are fetched at once, at most, or a twentieth of all draws if that is more."""
BLOCK_LENGTH = 20
"""Draws that are fetched at once, at most."""


class Command(NamedTuple):
    """A command to all shards; `own` has for each of them its first arguments."""

    name: str
    arguments: Sequence[Any] = ()
    own: Sequence[Sequence[Any]] | None = None

    def of(self, shard: int) -> tuple[str, list[Any]]:
        """Return name and arguments for one shard."""
        return self.name, [*(() if self.own is None else self.own[shard]), *self.arguments]


def payload_of(model: Any, shapes: Mapping[str, Any], is_tempered: bool, chains: int, mode: Any) -> bytes:
    """Return the bytes from which workers make the functions of a model for so many chains."""
    import cloudpickle

    spec = {"model": model, "shapes": dict(shapes), "is_tempered": is_tempered, "chains": chains, "mode": mode}
    try:
        payload: bytes = cloudpickle.dumps({**spec, "floatX": pytensor.config.floatX})
    except Exception as error:
        raise TypeError(
            f"the model cannot be sent to the workers, because it cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    return payload


class ClusterHamiltonian:
    """Hamiltonian trajectories of chains on the workers of a cluster; it does what a `Hamiltonian` does on one device.

    The chains are in shards, each with random numbers of its own, as on several devices (`ShardedHamiltonian`).
    """

    def __init__(
        self,
        density: ModelDensity,
        chains: int,
        seed: np.random.SeedSequence,
        client: Any,
        payload: bytes,
        shards: int,
        draws: int,
    ) -> None:
        self.density = density
        self.chains = chains
        self.parts = _Parts(self)
        self.shards, self._part = shards, chains // shards
        self._workers = Workers(client, payload, shards, self._recovered)
        self._states: list[Mapping[str, Any]] = [
            {"generator": np.random.default_rng(s).bit_generator.state} for s in seed.spawn(shards)
        ]
        self._base = 0  # the commands that are in the states
        self._log: list[Command] = []  # those since then
        self._unsent = 0  # commands at the end of the log that wait for one with a result
        self._ahead: deque[Command] = deque()  # commands for draws that are not yet used
        self._block: deque[list[np.ndarray]] = deque()  # of them, those that are here
        self._pending: PendingReplies | None = None  # draws that workers are making
        self._draws = self._draws_left = draws
        self._latest: np.ndarray | None = None  # positions of the last draw

    def _recovered(self, request: Request) -> Request:
        """Return a request for a worker that does not have the shard."""
        missed = [*self._log, *self._ahead][: request.start - self._base]
        return request._replace(
            state=self._states[request.shard], missed=[command.of(request.shard) for command in missed]
        )

    def _perform(
        self,
        commands: Sequence[Command] = (),
        questions: Mapping[int, Sequence[tuple[str, Sequence[Any]]]] | None = None,
    ) -> dict[int, Reply]:
        """Send commands that wait and others, ask questions of some shards, and return the replies by shard."""
        if self._ahead:
            self._restart()  # the workers have made draws that nobody uses
        # Only before a trajectory: questions are about the state after the last one, which is not in what is kept.
        wants_state = any(command.name in _MOVES for command in commands) and self._is_long()
        start = self._base + len(self._log) - self._unsent
        self._log += commands
        self._latest = None
        sent = self._log[start - self._base :]
        questions = questions or {}
        requests = [
            Request(i, start, [command.of(i) for command in sent], questions.get(i, ()), wants_state)
            for i in range(self.shards)
            if sent or i in questions
        ]
        replies = self._workers.receive(self._workers.send(requests))
        self._unsent = 0
        self._keep_states(start, replies)
        return replies

    def _is_long(self) -> bool:
        """Return whether there are so many commands that other states are to be kept."""
        return sum(command.name in _MOVES for command in (*self._log, *self._ahead)) >= STATE_COMMANDS

    def _restart(self) -> None:
        """Let the shards begin with the states that are kept, wherever workers have got to."""
        self._ahead.clear()
        self._block.clear()
        self._pending = self._latest = None
        self._unsent = 0
        self.parts.know([], [])
        self._workers.forget_places()

    def _keep_states(self, start: int, replies: Mapping[int, Reply]) -> None:
        """Keep the states of all shards before a command, if they are among the replies."""
        states = [replies[i].state if i in replies else None for i in range(self.shards)]
        if all(state is not None for state in states):
            self._states = [state for state in states if state is not None]
            del self._log[: start - self._base]
            self._base = start
            self._workers.rebalance()

    def _results(self, command: Command) -> list[Any]:
        """Perform a command, and return the results of the shards."""
        replies = self._perform([command])
        return [replies[i].results[-1] for i in range(self.shards)]

    def _put(self, command: Command) -> None:
        """Let a command that has no result wait for one that has."""
        self._log.append(command)
        self._unsent += 1

    def answers(self, question: str, arguments: Sequence[Any], own: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Return the answers of the shards for which own arguments are given."""
        replies = self._perform(questions={i: [(question, [*first, *arguments])] for i, first in own.items()})
        return {i: replies[i].answers[-1] for i in own}

    def _ask_all(self, question: str) -> list[Any]:
        found = self.answers(question, (), dict.fromkeys(range(self.shards), ()))
        return [found[i] for i in range(self.shards)]

    def set_positions(self, positions: Sequence[np.ndarray]) -> np.ndarray:
        """Move the chains, and return their log densities (`Chains.set_positions`)."""
        parts = np.split(self.density.join(positions), self.shards)
        return np.concatenate(self._results(Command("set_positions", (), [_runs(part) for part in parts])))

    def positions(self) -> list[np.ndarray]:
        """Return copies of the positions."""
        flat = np.concatenate(self._ask_all("positions")) if self._latest is None else self._latest
        return list(self.density.split(flat, self.chains))

    def flat_state(self, rows: Any = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the positions and gradients of some chains (`Chains.flat_state`)."""
        wanted = np.arange(self.chains)[rows]
        own = {i: [wanted[wanted // self._part == i] % self._part] for i in range(self.shards)}
        own = {i: [part] for i, (part,) in own.items() if len(part)}
        found = self.answers("flat_state", (), own)
        order = np.argsort(np.argsort(wanted, kind="stable"), kind="stable")
        positions, gradients = (np.concatenate([found[i][k] for i in own])[order] for k in range(2))
        return positions, gradients

    def set_inverse_mass(self, flat: np.ndarray) -> None:
        """Set the diagonal of the inverse mass matrix of all chains."""
        self._put(Command("set_inverse_mass", [np.array(flat)]))

    def set_direction(self, centre: np.ndarray, direction: np.ndarray) -> None:
        """Set what the criterion of the trajectory length measures (`Hamiltonian.set_direction`)."""
        self._put(Command("set_direction", [np.array(centre), np.array(direction)]))

    def set_inverse_temperature(self, value: float) -> None:
        """Set the power of the likelihood of all chains."""
        self._put(Command("set_inverse_temperature", [value]))

    def forget(self) -> None:
        """Let the parts begin another part of the warm-up."""
        self._put(Command("forget"))

    def observed(self) -> np.ndarray:
        """Return the log likelihood of each chain, of a tempered density."""
        return np.concatenate(self._ask_all("observed"))

    def try_step(self, step_size: float) -> np.ndarray:
        """Return the acceptance probabilities of one step from the positions, and stay there."""
        return np.concatenate(self._results(Command("try_step", [step_size])))

    def trajectory(self, step_size: float, n_steps: int) -> Trajectory:
        """Move all chains along trajectories of `n_steps` steps."""
        found = self._results(Command("trajectory", [step_size, n_steps]))
        return Trajectory(*(np.concatenate(values) for values in zip(*found, strict=True)))

    def adapting_trajectory(
        self, step_size: float, n_steps: int, is_watched: bool, questions: Sequence[tuple[str, list[Any]]]
    ) -> Trajectory:
        """Move all chains, and let their parts see the state; questions that will follow are asked at once."""
        command = Command("adapting_trajectory", [step_size, n_steps, is_watched])
        replies = self._perform([command], dict.fromkeys(range(self.shards), questions))
        found = [replies[i].results[-1] for i in range(self.shards)]
        self.parts.know(questions, [replies[i].answers for i in range(self.shards)])
        acceptance, change, slope = (np.concatenate(values) for values in zip(*found, strict=True))
        nothing = acceptance[:0]
        return Trajectory(acceptance, nothing, nothing, nothing, nothing, nothing, change, slope)

    def draw(self, step_size: float, lengths: Iterator[int]) -> Trajectory:
        """Move all chains along trajectories of so many steps as the first of `lengths` is.

        Draws are made in blocks. While those of a block are used, the workers make the next ones.
        """
        if not self._block:
            numbers = list(islice(lengths, 2 * self._block_length))
            if self._pending is None:
                self._request_block(step_size, numbers[: self._block_length])
            self._receive_block()
            self._request_block(step_size, numbers[len(self._block) :][: self._block_length])
        *found, self._latest = self._block.popleft()
        self._log.append(self._ahead.popleft())
        self._draws_left -= 1
        nothing = found[0][:0]
        return Trajectory(*[*found, nothing, nothing])

    @property
    def _block_length(self) -> int:
        size = 8 * self._part * (self.density.size + 6)
        # The client has memory for all draws; two blocks more shall not take much.
        most = max(CLIENT_BYTES // (size * self.shards), self._draws // 20)
        return max(min(BLOCK_BYTES // size, most, BLOCK_LENGTH), 1)

    def _request_block(self, step_size: float, lengths: Sequence[int]) -> None:
        """Let the workers make draws; not more than are wanted."""
        block = [Command("draw", [step_size, n]) for n in lengths[: self._draws_left - len(self._ahead)]]
        if not block:
            self._pending = None
            return
        sent = [*self._log[len(self._log) - self._unsent :], *block]
        start = self._base + len(self._log) + len(self._ahead) - self._unsent
        wants_state = self._is_long()
        self._pending = self._workers.send(
            [Request(i, start, [command.of(i) for command in sent], (), wants_state) for i in range(self.shards)]
        )
        self._pending.start, self._pending.length, self._unsent = start, len(block), 0
        self._ahead += block

    def _receive_block(self) -> None:
        """Wait for the draws that are being made."""
        assert self._pending is not None
        start, length = self._pending.start, self._pending.length
        replies = self._workers.receive(self._pending)
        for j in range(-length, 0):
            found = [replies[i].results[j] for i in range(self.shards)]
            self._block.append([np.concatenate(values) for values in zip(*found, strict=True)])
        self._keep_states(start, replies)

    def state_dict(self) -> dict[str, Any]:
        """Return states of the shards and the commands since then; no worker is asked."""
        log = [[c.name, list(c.arguments), None if c.own is None else list(map(list, c.own))] for c in self._log]
        return {"states": list(self._states), "base": self._base, "log": log, "draws_left": self._draws_left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the shards execute its commands when the next one comes."""
        self._states, self._base, self._draws_left = list(state["states"]), state["base"], state["draws_left"]
        self._log = [Command(*saved) for saved in state["log"]]
        self._restart()

    def close(self) -> None:
        """Let the workers forget the chains."""
        self._workers.close()


def _runs(rows: np.ndarray) -> list[np.ndarray]:
    """Return rows without repetitions that follow each other, and how often each is there."""
    is_first = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))
    first = np.flatnonzero(is_first)
    return [rows[first], np.diff(first, append=len(rows))]


class _Parts:
    """The parts of the chains; each is where its shard is."""

    def __init__(self, chains: ClusterHamiltonian) -> None:
        self._chains = chains
        self._known: list[tuple[str, Sequence[Any], list[Any]]] = []

    def know(self, questions: Sequence[tuple[str, list[Any]]], answers: Sequence[Sequence[Any]]) -> None:
        """Take answers of all parts to questions that will be asked."""
        self._known = [(*question, [found[k] for found in answers]) for k, question in enumerate(questions)]

    def see(
        self, positions: np.ndarray, gradients: np.ndarray, log_density: np.ndarray, is_watched: bool = True
    ) -> None:
        """Raise an error: parts see their states where they are (`ClusterHamiltonian.adapting_trajectory`)."""
        raise NotImplementedError

    def ask(self, question: str, *arguments: Any, masks: Sequence[Any] | None = None) -> list[Any]:
        """Return what each part's method of that name returns; `masks` has a first argument for each part."""
        first: Sequence[Sequence[Any]] = [()] * self._chains.shards if masks is None else [[mask] for mask in masks]
        found: dict[int, Any] = {}
        for name, known, answers in self._known:
            if name == question:
                found = {i: answers[i] for i, own in enumerate(first) if _are_equal([*own, *arguments], known)}
        unknown = {i: own for i, own in enumerate(first) if i not in found}
        if unknown:
            found |= self._chains.answers(question, arguments, unknown)
        return [found[i] for i in range(len(first))]

    def divided(self, mask: np.ndarray) -> list[np.ndarray | None]:
        """Return the piece of a mask of all chains for each part, None where it selects all chains."""
        return divided(mask, self._chains.shards)

    def forget(self) -> None:
        """Begin another part of the warm-up."""
        self._chains.forget()


def _are_equal(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether arguments are the same: arrays, or None."""
    pairs = list(zip(some, others, strict=True))
    return all((a is None) == (b is None) and (a is None or np.array_equal(a, b)) for a, b in pairs)
