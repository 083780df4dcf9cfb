"""The replica that a worker of a data-parallel training has: all variables, and functions for sums and updates.

The functions at the end run as tasks of Dask, which may run a task twice, or after a step was given up. So a task names
the step that it belongs to: sums of another step than the next one are refused, and an update that was made is not
made again.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.optimizers.state import value_of
from pytensor_cl.train.definition import Definition
from pytensor_cl.train.parts import Keys, PartDevice, PartGraph, Sums
from pytensor_cl.train.steps import Evaluation


class StaleReplica(Exception):
    """A worker has no replica of a training, or one that is at another step."""


class Status(NamedTuple):
    """The state of a replica: its number of steps, a digest of its variables, and the results of its last step."""

    step_count: int
    digest: str
    results: list[np.ndarray]


def definition_of(arguments: Any) -> Definition:
    """Return the definition of a step from what a caller's `build` returned."""
    if not isinstance(arguments, Mapping):
        raise TypeError(
            "build must return the arguments of train.step as a dict, such as "
            f"{{'inputs': [x, y], 'loss': loss, 'optimizer': Adam(1e-3)}}; got {arguments!r}"
        )
    refused = [name for name in ("accumulate", "devices") if name in arguments]
    if refused:
        raise ValueError(f"build may not give {' and '.join(refused)}: shards= is the number of parts of a batch")
    definition = Definition(**arguments)
    if definition.further:
        raise ValueError("updates= are made part after part, which several workers cannot do")
    return definition


def _aligned(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Return arrays where dtypes need them; in a message they begin anywhere."""
    return [np.require(array, requirements=["A", "C"]) for array in arrays]


class Replica:
    """The variables of a training on one worker."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._definition = definition_of(build())
        self._device = PartDevice(PartGraph(self._definition))
        self._evaluation: Evaluation | None = None
        self._count = -1  # until it has values
        self._results: list[np.ndarray] = []
        self._lock = Lock()

    def total(self, count: int, parts: Mapping[int, Sequence[Any]], keys: Keys, first: int, last: int) -> Sums:
        """Return the sums of parts for the step after `count` steps."""
        with self._lock:
            if self._count != count:
                raise StaleReplica(f"sums of step {count + 1} from a replica after {self._count} steps")
            own = {k: _aligned(part) for k, part in parts.items()}
            return [np.asarray(array) for array in self._device.total(own, keys, first, last)]

    def update(self, count: int, total: Sums) -> list[np.ndarray]:
        """Make the step after `count` steps, if it was not made; return its results."""
        with self._lock:
            if self._count == count:
                self._count = -1  # an exception leaves it without values
                self._results = [np.asarray(result) for result in self._device.update(*_aligned(total))]
                self._count = count + 1
            elif self._count != count + 1:
                raise StaleReplica(f"update {count + 1} of a replica after {self._count} steps")
            return self._results

    def evaluate(self, batch: Sequence[Any]) -> list[np.ndarray]:
        """Return the results of a batch from the prediction graph."""
        with self._lock:
            if self._evaluation is None:
                self._evaluation = Evaluation(self._definition)
            return [np.asarray(result) for result in self._evaluation(*_aligned(batch)).values()]

    def status(self) -> Status:
        """Return where the replica is."""
        with self._lock:
            digest = hashlib.blake2b(digest_size=16)
            for value in self._values():
                digest.update(np.ascontiguousarray(value).data.cast("B"))
            return Status(self._count, digest.hexdigest(), self._results)

    def _values(self) -> list[np.ndarray]:
        return [value_of(variable) for variable in self._definition.arrays]

    def values(self) -> list[np.ndarray]:
        """Return the variables in the definition's order."""
        with self._lock:
            return self._values()

    def load(self, count: int, values: Sequence[np.ndarray]) -> None:
        """Set all variables to those after `count` steps."""
        with self._lock:
            self._count = -1
            for variable, value in zip(self._definition.arrays, values, strict=True):
                variable.set_value(np.array(value))
            self._count = count


_replicas: dict[tuple[str, str], Replica] = {}
"""Replicas of this process by training and worker, of which a process may have several."""
_opening = Lock()


def _key(training: str) -> tuple[str, str]:
    from distributed import get_worker

    return training, get_worker().address


def _replica(training: str) -> Replica:
    found = _replicas.get(_key(training))
    if found is None:
        raise StaleReplica("a worker without a replica, as after a restart")
    return found


def open_replica(training: str, build: bytes) -> None:
    """Make the replica of this worker, if there is none."""
    import cloudpickle

    with _opening:  # PyTensor compiles in one thread at a time
        if _key(training) not in _replicas:
            _replicas[_key(training)] = Replica(cloudpickle.loads(build))


def close_replica(training: str) -> None:
    """Free the replica of this worker."""
    _replicas.pop(_key(training), None)


def call_replica(training: str, method: str, *arguments: Any) -> Any:
    """Return what a method of this worker's replica returns."""
    return getattr(_replica(training), method)(*arguments)


def status_of(training: str) -> Status | None:
    """Return where this worker's replica is; None if there is none."""
    found = _replicas.get(_key(training))
    return None if found is None else found.status()
