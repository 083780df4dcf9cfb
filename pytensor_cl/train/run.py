"""The state of a training that runs: where it is, what it has read of its results, and what a checkpoint holds."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pytensor_cl.optimizers import Optimizer
from pytensor_cl.train.files import save
from pytensor_cl.train.history import History


class Means:
    """Weighted means of results, summed in float64 in the order of the steps."""

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None) -> None:
        self.sums = {name: list(pair) for name, pair in (sums or {}).items()}

    def add(self, values: Mapping[str, float], weight: float) -> None:
        for name, value in values.items():
            pair = self.sums.setdefault(name, [0.0, 0.0])
            pair[0] += value * weight
            pair[1] += weight

    def values(self) -> dict[str, float]:
        return {name: total / weight if weight else 0.0 for name, (total, weight) in self.sums.items()}


def named_results(results: Any) -> Mapping[str, Any]:
    """Return the results of a step by name."""
    if isinstance(results, Mapping):
        return results
    if isinstance(results, list | tuple):
        if len(results) != 1:
            raise TypeError(f"a step returns a number or a dict of numbers by name; got {len(results)} values")
        results = results[0]
    if results is None:
        raise TypeError("a step returns a number, the loss, or a dict of numbers by name; got None")
    return {"loss": results}


def rows_of(batch: Sequence[Any]) -> int:
    """Return the number of rows of a batch: of its first array."""
    return int(np.shape(batch[0])[0]) if batch and np.ndim(batch[0]) else 1


def read(results: Mapping[str, Any], rows: int) -> tuple[dict[str, float], float]:
    """Return results as numbers, and what they are means of; a device may have to finish first."""
    try:
        values = {name: float(np.asarray(value)) for name, value in results.items()}
    except (TypeError, ValueError) as error:
        raise TypeError(f"the results of a step must be single numbers; got {results!r}") from error
    weight = values.pop("weight", float(rows))
    return values, weight


class Run:
    """A training that runs, as callbacks see it.

    Attributes
    ----------
    step
        The step.
    epochs
        The number of epochs to be done.
    epoch
        The epoch that runs, counted from 0.
    batch
        The number of batches done in it.
    step_count
        The number of steps done in all epochs.
    results
        The results that were read last: of a step while an epoch runs, of the whole epoch at its end.
    history
        The results of each epoch that has ended.
    is_whole
        Whether the last step and the reading of its results went well, so that a checkpoint is of use.
    """

    def __init__(self, step: Any, epochs: int, state: Any, on_nan: str) -> None:
        self.step, self.epochs = step, epochs
        self.epoch = self.batch = self.step_count = 0
        self.results: dict[str, float] = {}
        self.history = History()
        self.means, self.rows = Means(), 0
        self.is_stopped = False
        self.is_whole = True
        self.variables = _variables_of(step, state)
        self._on_nan, self._has_warned = on_nan, False
        self._waiting: list[tuple[Mapping[str, Any], int]] = []

    def stop(self) -> None:
        """End the training after this step, or now if an epoch has ended."""
        self.is_stopped = True

    def save(self, path: Any) -> None:
        """Write the variables to a file that `load` reads; without the place in the data, which checkpoints have.

        Parameters
        ----------
        path
            The file.
        """
        self.pull()
        save(path, self.variables)

    def pull(self) -> None:
        """Bring the variables here, if the training runs elsewhere; call it before you read one."""
        getattr(self.step, "pull", _nothing)()

    def push(self) -> None:
        """Bring the variables to where the training runs; call it after you have set one."""
        getattr(self.step, "push", _nothing)()

    @property
    def weights(self) -> list[SharedVariable]:
        """The shared variables of the network."""
        if hasattr(self.step, "weights"):
            return list(self.step.weights)
        flat = list(_flat(self.variables))
        return [variable for variable in flat if not isinstance(variable.type, RandomGeneratorType)]

    def do_step(self, batch: Sequence[Any]) -> None:
        """Start the step of a batch."""
        self.is_whole = False
        try:
            results = self.step(*batch)
        except Exception as error:
            self.is_whole = getattr(error, "is_state_whole", False)
            raise
        self._waiting.append((named_results(results), rows_of(batch)))
        self.is_whole = True
        self.batch += 1
        self.step_count += 1

    def read(self) -> dict[str, float]:
        """Return the results of the last step; this waits for the device."""
        self.is_whole = False
        first = self.step_count - len(self._waiting) + 1
        waiting, self._waiting = self._waiting, []
        for number, (results, rows) in enumerate(waiting, first):
            self.results, weight = read(results, rows)
            self.means.add(self.results, weight)
            self.rows += rows
            if self._on_nan != "ignore" and not self._has_warned:
                self._check(number)
        self.is_whole = True
        return self.results

    def _check(self, number: int) -> None:
        broken = [name for name, value in self.results.items() if math.isnan(value)]
        if not broken:
            return
        text = f"{', '.join(broken)} of step {number} (epoch {self.epoch + 1}): NaN"
        if self._on_nan == "raise":
            raise FloatingPointError(text)
        self._has_warned = True
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def end_epoch(self, more: Mapping[str, float]) -> None:
        """Add the results of the epoch to the history."""
        self.results = {**self.means.values(), **more}
        self.history.epochs.append({"epoch": self.epoch + 1, "steps": self.step_count, **self.results})

    def next_epoch(self) -> None:
        """Go on to the first batch of the next epoch."""
        self.epoch, self.batch, self.means, self.rows = self.epoch + 1, 0, Means(), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the training; JSON keeps all digits of its numbers."""
        return {
            "epoch": self.epoch,
            "batch": self.batch,
            "step_count": self.step_count,
            "rows_done": self.rows,
            "sums": self.means.sums,
            "history": self.history.epochs,
            "is_stopped": self.is_stopped,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a place in the training."""
        self.epoch, self.batch, self.step_count = state["epoch"], state["batch"], state["step_count"]
        self.means, self.rows = Means(state["sums"]), state["rows_done"]
        self.history, self.is_stopped = History(state["history"]), state["is_stopped"]
        if self.history.epochs:
            self.results = {k: v for k, v in self.history.epochs[-1].items() if k not in ("epoch", "steps")}


def _nothing() -> None:
    """Stands for a method that a step does not have."""


def _variables_of(step: Any, state: Any) -> list[Any]:
    """Return what a checkpoint of a step holds: its own, and what the caller adds."""
    own: list[Any] = []
    if hasattr(step, "variables"):
        own = [step]
    elif hasattr(step, "maker"):  # a compiled function of PyTensor
        own = [entry.variable for entry in step.maker.expanded_inputs if entry.update is not None]
    return [*own, *([] if state is None else [state])]


def _flat(what: Any) -> Iterable[SharedVariable]:
    """Yield the shared variables in nested lists and dicts, without the state of optimizers."""
    if isinstance(what, SharedVariable):
        yield what
    elif isinstance(what, Mapping):
        for part in what.values():
            yield from _flat(part)
    elif hasattr(what, "variables"):
        yield from _flat(what.variables)
    elif not isinstance(what, Optimizer):
        for part in what:
            yield from _flat(part)
