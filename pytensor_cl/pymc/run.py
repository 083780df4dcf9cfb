"""The loop of `sample`: warm-up and draws, which can be interrupted, looked at, and continued from a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.pymc.checkpoint import load_state_dict, state_dict
from pytensor_cl.pymc.cluster import ClusterHamiltonian
from pytensor_cl.pymc.diagnostics import bulk_ess
from pytensor_cl.pymc.hamiltonian import Hamiltonian
from pytensor_cl.pymc.langevin import Langevin
from pytensor_cl.pymc.meads import Meads
from pytensor_cl.pymc.nuts import Nuts, TreeChains
from pytensor_cl.pymc.progress import progress_bar, warn
from pytensor_cl.pymc.samplers import Chees, Iteration
from pytensor_cl.pymc.shards import ShardedHamiltonian

AnyChains = ClusterHamiltonian | Hamiltonian | Langevin | ShardedHamiltonian | TreeChains
AnySampler = Chees | Meads | Nuts


class Settings(NamedTuple):
    """Arguments of `sample` that samplers need."""

    draws: int
    tune: int
    sampler: str
    target_accept: float
    max_steps: int
    trajectory_length: float | None
    target_ess: float | None
    progressbar: bool


class Record(NamedTuple):
    """Argument of the ``callback`` of `sample`, which is called after each iteration.

    Attributes
    ----------
    iteration : int
        Number of the iteration, from 0; the warm-up counts.
    tuning : bool
        Whether it was one of the warm-up.
    draws : int
        Draws of each chain so far.
    divergences : int
        Divergences of all draws so far.
    step_size : float
    n_steps : int
        Leapfrog steps of the iteration; their mean, if chains have different numbers.
    stats : dict
        Statistics of each chain by PyMC's names, arrays of shape (chains,); empty in the warm-up.
    positions : dict
        Positions in the unbounded space by value variable, arrays of shape (chains, ...); empty in the warm-up.
    """

    iteration: int
    tuning: bool
    draws: int
    divergences: int
    step_size: float
    n_steps: int
    stats: Mapping[str, np.ndarray]
    positions: Mapping[str, np.ndarray]


class Draws:
    """Draws of all value variables and their statistics, in arrays that are allocated once."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], chains: int, draws: int) -> None:
        self._values = [np.empty((chains, draws, *s), d) for s, d in zip(shapes, dtypes, strict=True)]
        self._stats: list[Mapping[str, np.ndarray]] = []

    def __len__(self) -> int:
        return len(self._stats)

    def add(self, positions: Sequence[np.ndarray], done: Iteration) -> None:
        """Keep the state after an iteration."""
        for array, value in zip(self._values, positions, strict=True):
            array[:, len(self)] = value
        self._stats.append(done.stats)

    def values(self) -> list[np.ndarray]:
        """Return, for each value variable, an array of shape (chains, draws, *shape)."""
        return [np.ascontiguousarray(array[:, : len(self)]) for array in self._values]

    def flat(self) -> np.ndarray:
        """Return the draws as one array of shape (chains, draws, parameters)."""
        return np.concatenate([value.reshape(*value.shape[:2], -1) for value in self.values()], axis=2)

    def stats(self) -> dict[str, np.ndarray]:
        """Return arrays of shape (chains, draws) by name."""
        return {name: np.stack([stat[name] for stat in self._stats], axis=1) for name in self._stats[0]}

    def state_dict(self) -> dict[str, Any]:
        """Return the draws and statistics so far."""
        return {"values": self.values(), "stats": self.stats() if self._stats else {}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take draws and statistics from `state_dict`."""
        for array, values in zip(self._values, state["values"], strict=True):
            array[:, : values.shape[1]] = values
        number = state["values"][0].shape[1]
        self._stats = [{name: part[:, i] for name, part in state["stats"].items()} for i in range(number)]


class Run:
    """A warm-up and the draws after it; `seconds` has the time of each."""

    def __init__(self, chains: AnyChains, sampler: AnySampler, settings: Settings) -> None:
        density = chains.density
        self._chains, self.sampler, self._settings = chains, sampler, settings
        self.kept = Draws(density.shapes, density.dtypes, chains.chains, settings.draws)
        self.seconds = [0.0, 0.0]
        self._index = 0
        self._divergences = 0
        self._next_check = 8
        self._is_enough = False

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two iterations; see `checkpoint.state_dict`."""
        return {
            "sampler": state_dict(self.sampler),
            "kept": self.kept.state_dict(),
            "seconds": list(self.seconds),
            "counts": [self._index, self._divergences, self._next_check, self._is_enough],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        load_state_dict(self.sampler, state["sampler"])
        self.kept.load_state_dict(state["kept"])
        self.seconds = list(state["seconds"])
        self._index, self._divergences, self._next_check, self._is_enough = state["counts"]

    def go(self, callback: Callable[[Record], Any] | None, save: Callable[[bool], None]) -> None:
        """Move the chains until the draws are made, or enough, or the user stops them."""
        settings = self._settings
        total = settings.tune + settings.draws
        label = f"{self._chains.chains} chains"
        try:
            with _stop_signals() as stopped, progress_bar(total, label, settings.progressbar) as show:
                if self._index == 0:
                    self._or_go_back(self.sampler.start, save)
                while self._index < total and not self._is_enough:
                    record = self._or_go_back(self._iterate, save)
                    if callback is not None:
                        try:
                            callback(record)
                        except BaseException:
                            save(True)
                            raise
                    progress = f"step size {record.step_size:.3g}, {record.n_steps} steps"
                    show(self._index, f"{record.divergences} divergences, {progress}")
                    save(bool(stopped))
                    if stopped:
                        is_term = stopped[0] == signal.SIGTERM and not len(self.kept)
                        raise SystemExit(128 + signal.SIGTERM) if is_term else KeyboardInterrupt
        except KeyboardInterrupt:
            if not len(self.kept):
                raise
            warn(f"interrupted: {len(self.kept)} of {settings.draws} draws are there")
        else:
            save(True)

    def _or_go_back(self, move: Callable[[], Any], save: Callable[[bool], None]) -> Any:
        """Do what moves the chains. If machines fail in the middle, a checkpoint of the state before is written."""
        if not isinstance(self._chains, ClusterHamiltonian):
            return move()
        before = state_dict(self.sampler)
        try:
            return move()
        except Exception:
            load_state_dict(self.sampler, before)
            save(True)
            raise

    def _iterate(self) -> Record:
        """Move the chains once, and return what a callback gets."""
        settings, begun = self._settings, perf_counter()
        done = self.sampler.iterate()
        positions = {}
        if not done.tuning:
            values = self._chains.positions()
            positions = dict(zip(self._chains.density.names, values, strict=True))
            self.kept.add(values, done)
            self._divergences += int(done.stats.get("n_diverging", done.stats["diverging"]).sum())
        self._index += 1
        if settings.target_ess and len(self.kept) >= self._next_check:
            self._next_check = int(self._next_check * 1.3) + 1
            self._is_enough = bool(np.min(bulk_ess(self.kept.flat())) >= settings.target_ess)
        self.seconds[not done.tuning] += perf_counter() - begun
        counts = self._index - 1, done.tuning, len(self.kept), self._divergences
        return Record(*counts, done.step_size, done.n_steps, done.stats, positions)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Yield a list that gets the number of the first SIGINT or SIGTERM; a second one is handled as usual.

    So the iteration that is under way ends, and a checkpoint can be written. Handlers that a program has set itself
    stay, and threads other than the main one have none.
    """
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: Any) -> None:
        stopped.append(number)
        restore()

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        restore()
