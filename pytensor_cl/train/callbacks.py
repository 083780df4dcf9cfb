"""Callbacks of `fit`: early stopping, files of weights, tables and plots of results, rates that are reduced."""

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable

from pytensor_cl.codegen.checked_files import replacing
from pytensor_cl.optimizers.numbers import fraction, nonnegative
from pytensor_cl.optimizers.state import value_of
from pytensor_cl.train.files import check_folder
from pytensor_cl.train.history import History
from pytensor_cl.train.run import Run

MODES = ("min", "max")


class _Best:
    """The best value of a result so far."""

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is min or max; got {mode!r}")
        self.monitor, self._sign, self._delta = monitor, 1 if mode == "min" else -1, min_delta
        self.value: float | None = None

    def is_improved(self, run: Run) -> bool:
        """Take over the result of an epoch; return whether it is the best one. NaN never is."""
        if self.monitor not in run.results:
            raise ValueError(f"there is no result {self.monitor!r} to monitor; there are {', '.join(run.results)}")
        value = run.results[self.monitor]
        if math.isnan(value) or not (self.value is None or self._sign * (self.value - value) > self._delta):
            return False
        self.value = value
        return True


class EarlyStopping:
    """Stops a training when a result has not improved for some epochs, and restores the best weights.

    The weights are restored at every end of the training, also if all epochs were done or an exception ended it. The
    checkpoint of `fit` has the weights of the last step, and the best ones beside them.

    Parameters
    ----------
    monitor
        The name of the result, such as ``"val_loss"`` or ``"val_accuracy"``.
    patience
        The number of epochs without an improvement after which the training stops.
    mode
        "min" or "max": whether small or large values are good.
    min_delta
        A difference that counts as an improvement is larger.
    restore_best
        Whether parameters and running statistics become those of the best epoch.

    Attributes
    ----------
    best
        The best value, or None.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 10,
        mode: str = "min",
        min_delta: float = 0.0,
        restore_best: bool = True,
    ) -> None:
        if patience < 1:
            raise ValueError(f"patience must be at least 1 epoch; got {patience}")
        self._best = _Best(monitor, mode, nonnegative("min_delta", min_delta))
        self._patience, self._restores = patience, restore_best
        self._waited = 0
        self._weights: dict[str, np.ndarray] = {}

    @property
    def best(self) -> float | None:
        return self._best.value

    def on_epoch_end(self, run: Run) -> None:
        if self._best.is_improved(run):
            self._waited = 0
            if self._restores:
                run.pull()
                self._weights = {name: value_of(variable) for name, variable in _by_name(run).items()}
            return
        self._waited += 1
        if self._waited >= self._patience:
            run.stop()

    def on_end(self, run: Run) -> None:
        if self._weights:
            run.pull()
            for name, variable in _by_name(run).items():
                variable.set_value(self._weights[name])
            run.push()

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best.value, "waited": self._waited, **self._weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        weights = dict(state)
        self._best.value, self._waited = weights.pop("best"), weights.pop("waited")
        self._weights = weights if self._restores else {}


def _by_name(run: Run) -> dict[str, SharedVariable]:
    """Return the variables of the network by keys of their own."""
    return {f"weights/{variable.name or number}": variable for number, variable in enumerate(run.weights)}


class Checkpoint:
    """Writes the variables of a training to a file of its own at the end of some epochs; `load` reads them.

    They are for use, or to look back. For a training that goes on after it was interrupted there is ``checkpoint=`` of
    `fit`.

    Parameters
    ----------
    path
        The file; the number of epochs done, or ``best``, is added: ``net.safetensors`` gives ``net-5.safetensors`` and
        ``net-best.safetensors``.
    every
        The number of epochs between two files. None: only the best one is written.
    keep
        The number of files that stay, beside the best one; older ones are removed. None: all.
    best
        The name of a result. None: there is no file of the best epoch.
    mode
        "min" or "max": whether small or large values are good.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        every: int | None = 1,
        keep: int | None = 2,
        best: str | None = None,
        mode: str = "min",
    ) -> None:
        for name, value in (("every", every), ("keep", keep)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 or None; got {value}")
        self._path, self._every, self._keep = Path(path), every, keep
        self._best = None if best is None else _Best(best, mode)
        self._written: list[int] = []

    def path_of(self, epoch: int | str) -> Path:
        """Return the file after so many epochs, or that of ``"best"``."""
        return self._path.with_name(f"{self._path.stem}-{epoch}{self._path.suffix}")

    def on_begin(self, run: Run) -> None:
        check_folder(self._path)

    def on_epoch_end(self, run: Run) -> None:
        done = run.epoch + 1
        if self._best is not None and self._best.is_improved(run):
            run.save(self.path_of("best"))
        if self._every is None or done % self._every:
            return
        run.save(self.path_of(done))
        self._written.append(done)
        while self._keep is not None and len(self._written) > self._keep:
            self.path_of(self._written.pop(0)).unlink(missing_ok=True)

    def state_dict(self) -> dict[str, Any]:
        return {"best": None if self._best is None else self._best.value, "written": self._written}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._written = list(state["written"])
        if self._best is not None:
            self._best.value = state["best"]


class CSVLog:
    """Writes the results of all epochs to a CSV file at the end of each epoch.

    The file is made from the history, so that it is the same after a training that was interrupted and went on.

    Parameters
    ----------
    path
        The file, which is replaced.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def on_begin(self, run: Run) -> None:
        check_folder(self._path)
        if len(run.history):
            self.on_epoch_end(run)

    def on_epoch_end(self, run: Run) -> None:
        with replacing(self._path, is_durable=True) as draft, draft.open("w", newline="") as file:
            writer = csv.DictWriter(file, run.history.names)
            writer.writeheader()
            writer.writerows(run.history.epochs)


class Plot:
    """Draws the results against the epochs to a picture at the end of each epoch; it needs Matplotlib.

    A result and that of the validation data are in one panel.

    Parameters
    ----------
    path
        The file; the ending, such as ``.png`` or ``.svg``, is the format.
    every
        The number of epochs between two pictures; there is one at the end too.
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 epoch; got {every}")
        self._path, self._every = Path(path), every

    def on_begin(self, run: Run) -> None:
        check_folder(self._path)
        _figure_class()  # missing Matplotlib is an error before the first epoch

    def on_epoch_end(self, run: Run) -> None:
        if (run.epoch + 1) % self._every == 0:
            self._draw(run.history)

    def on_end(self, run: Run) -> None:
        if len(run.history):
            self._draw(run.history)

    def _draw(self, history: History) -> None:
        names = [name for name in history.names if name not in ("epoch", "steps")]
        panels = list(dict.fromkeys(name.removeprefix("val_") for name in names))
        figure = _figure_class()(figsize=(5 * len(panels), 4), layout="constrained")
        for number, panel in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), number)
            for name, label in ((panel, "training"), (f"val_{panel}", "validation")):
                if name in names:
                    axes.plot(history["epoch"], history[name], marker=".", label=label)
            axes.set_xlabel("epoch")
            axes.set_ylabel(panel)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(alpha=0.3)
            axes.legend()
        with replacing(self._path, is_durable=True) as draft:
            figure.savefig(draft, format=self._path.suffix.lstrip(".") or None)


def _figure_class() -> Any:
    """Return the class of figures; one that is made without pyplot needs no window and no thread of its own."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plot needs Matplotlib: pip install matplotlib") from error
    return Figure


class ReduceOnPlateau:
    """Multiplies the learning rate when a result has not improved for some epochs, as PyTorch's ReduceLROnPlateau.

    Parameters
    ----------
    monitor
        The name of the result.
    factor
        The factor of the rate, between 0 and 1.
    patience
        The number of epochs without an improvement that are borne; the next one reduces the rate.
    mode
        "min" or "max": whether small or large values are good.
    threshold
        The relative difference from the best value that counts as an improvement.
    cooldown
        The number of epochs after a reduction that do not count.
    min_rate
        The smallest rate.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "min",
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_rate: float = 0.0,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is min or max; got {mode!r}")
        self._monitor, self._factor, self._patience = monitor, fraction("factor", factor), patience
        self._sign, self._threshold = 1 if mode == "min" else -1, nonnegative("threshold", threshold)
        self._cooldown, self._min_rate = cooldown, nonnegative("min_rate", min_rate)
        self._best, self._bad, self._cooling = math.inf * self._sign, 0, 0

    def on_begin(self, run: Run) -> None:
        _rate_of(run)

    def on_epoch_end(self, run: Run) -> None:
        if self._monitor not in run.results:
            raise ValueError(f"there is no result {self._monitor!r} to monitor; there are {', '.join(run.results)}")
        value = run.results[self._monitor]
        if self._is_better(value):
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._cooling:
            self._cooling, self._bad = self._cooling - 1, 0
        if self._bad > self._patience:
            self._reduce(run)
            self._cooling, self._bad = self._cooldown, 0

    def _is_better(self, value: float) -> bool:
        if self._sign == 1:
            return value < self._best * (1 - self._threshold)
        return value > self._best * (1 + self._threshold)

    def _reduce(self, run: Run) -> None:
        rate = _rate_of(run)
        run.pull()
        old = rate.get_value()
        new = max(float(old) * self._factor, self._min_rate)
        if new < old:
            rate.set_value(np.asarray(new, old.dtype))
            run.push()

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "bad": self._bad, "cooling": self._cooling}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._best, self._bad, self._cooling = state["best"], state["bad"], state["cooling"]


def _rate_of(run: Run) -> SharedVariable:
    """Return the shared variable of the learning rate."""
    rate = getattr(getattr(run.step, "optimizer", None), "learning_rate", None)
    if not isinstance(rate, SharedVariable):
        raise TypeError(
            "ReduceOnPlateau needs a step with an optimizer whose learning rate is a number or a shared variable; a "
            f"schedule sets the rate itself. Got {rate!r}"
        )
    return rate
