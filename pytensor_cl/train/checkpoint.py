"""A training in one file: variables, the place in the data, sums of the running epoch, callbacks, history."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable

from pytensor_cl.train.files import CALLBACK, load, read_arrays, read_metadata, save
from pytensor_cl.train.run import Run


def callback_names(callbacks: Sequence[Any]) -> dict[str, Any]:
    """Return callbacks by class, with a number from the second one of a class on."""
    named: dict[str, Any] = {}
    for callback in callbacks:
        name = same = type(callback).__name__
        count = 1
        while name in named:
            count += 1
            name = f"{same}.{count}"
        named[name] = callback
    return named


def _states(callbacks: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, SharedVariable]]:
    """Return the states of callbacks: numbers and texts, and the arrays by their names in the file."""
    texts: dict[str, Any] = {}
    arrays: dict[str, SharedVariable] = {}
    for name, callback in callbacks.items():
        if hasattr(callback, "state_dict"):
            state = callback.state_dict()
            held = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
            arrays |= {f"{CALLBACK}{name}/{key}": pytensor.shared(value) for key, value in held.items()}
            texts[name] = {key: value for key, value in state.items() if key not in held}
    return texts, arrays


class CheckpointFile:
    """The file of a training.

    Parameters
    ----------
    path
        The file.
    settings
        Values that the training that wrote the file and the one that continues it must have in common.
    callbacks
        The callbacks by name.
    """

    def __init__(self, path: Any, settings: Mapping[str, Any], callbacks: Mapping[str, Any]) -> None:
        self._path, self._settings, self._callbacks = Path(path), dict(settings), callbacks

    def write(self, run: Run) -> None:
        """Replace the file by the present state."""
        run.read()
        run.pull()
        texts, arrays = _states(self._callbacks)
        loop = {"settings": self._settings, **run.state_dict(), "callbacks": texts}
        save(self._path, [run.variables, arrays], metadata={"loop": json.dumps(loop)})

    def resume(self, run: Run) -> bool:
        """Set variables, callbacks and the run to what is in the file; return False if there is none."""
        if not self._path.exists():
            return False
        loop = json.loads(read_metadata(self._path).get("loop", "null"))
        if loop is None:
            raise ValueError(f"{self._path} is no checkpoint of fit; load it with train.load, and name another file")
        self._compare(loop["settings"])
        load(self._path, run.variables)
        run.push()
        arrays = read_arrays(self._path, CALLBACK)
        for name, callback in self._callbacks.items():
            if name in loop["callbacks"]:
                beginning = f"{CALLBACK}{name}/"
                own = {key.removeprefix(beginning): v for key, v in arrays.items() if key.startswith(beginning)}
                callback.load_state_dict({**loop["callbacks"][name], **own})
        run.load_state_dict(loop)
        return True

    def _compare(self, found: Mapping[str, Any]) -> None:
        own = json.loads(json.dumps(self._settings))
        differing = [
            f"{name} was {found.get(name)!r}, now {own.get(name)!r}"
            for name in dict.fromkeys([*found, *own])
            if found.get(name) != own.get(name)
        ]
        if differing:
            raise ValueError(
                f"{self._path} is the checkpoint of another training: {'; '.join(differing)}. "
                "Use the same values, or another file"
            )
