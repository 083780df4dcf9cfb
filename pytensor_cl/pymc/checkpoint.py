"""Checkpoints: the state of a run in a file, from which the same call of `sample` goes on bit for bit.

The state of an object is the state of its attributes (`state_dict`): numbers, arrays, generators, shared variables, and
other objects of this package. Compiled functions and what describes the model have none.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs, io_toposort

import pytensor_cl
from pytensor_cl.codegen.checked_files import replacing
from pytensor_cl.pymc.density import ModelDensity
from pytensor_cl.pymc.progress import warn

SECONDS = 5.0
"""Least time between two checkpoints."""
_SHARE = 20
"""The least time between two files, as a multiple of the time that the last one took."""
_HEADER = "pytensor_cl.pymc.sample"


def state_dict(thing: Any, seen: set[int] | None = None) -> dict[str, Any]:
    """Return the state of an object: the state of its attributes by name, in nested dicts and lists of plain values."""
    seen = set() if seen is None else seen
    seen.add(id(thing))
    if hasattr(thing, "state_dict"):
        state: dict[str, Any] = thing.state_dict()
        return state
    found = {}
    for name, value in vars(thing).items():
        if _is_part(value):
            if id(value) not in seen:
                found[name] = state_dict(value, seen)
        elif not _is_fixed(value):
            found[name] = _saved(value)
    return found


def load_state_dict(thing: Any, state: Mapping[str, Any]) -> None:
    """Give an object the state that `state_dict` returned for one that was made in the same way."""
    if hasattr(thing, "load_state_dict"):
        thing.load_state_dict(state)
        return
    for name, saved in state.items():
        old = getattr(thing, name)
        if _is_part(old):
            load_state_dict(old, saved)
        else:
            setattr(thing, name, _restored(old, saved))


def _is_part(value: Any) -> bool:
    """Return whether a value is an object of this package with a state of its own."""
    is_ours = type(value).__module__.startswith("pytensor_cl.pymc.")
    return is_ours and not isinstance(value, tuple | ModelDensity)


def _is_fixed(value: Any) -> bool:
    """Return whether a value is the same in each run of a call."""
    if isinstance(value, SharedVariable):
        return False
    return isinstance(value, ModelDensity | Variable | Executor | Mode | str) or callable(value)


def _saved(value: Any) -> Any:
    if isinstance(value, SharedVariable):
        return _saved(value.get_value())
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.ndarray):
        return value.copy()  # a run changes some of its arrays in place
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_saved(part) for part in value]
    if isinstance(value, set):
        return sorted(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(f"the state of a {type(value).__name__} cannot be saved")


def _restored(old: Any, saved: Any) -> Any:
    """Return what an attribute becomes; shared variables and generators stay, and get another value."""
    if isinstance(old, SharedVariable):
        value = old.get_value()
        old.set_value(_restored(value, saved) if isinstance(value, np.random.Generator) else saved)
        return old
    if isinstance(old, np.random.Generator):
        old.bit_generator.state = saved
        return old
    if isinstance(old, set):
        return set(saved)
    if isinstance(old, list) and any(isinstance(part, SharedVariable) for part in old):
        return [_restored(part, new) for part, new in zip(old, saved, strict=True)]
    if isinstance(old, tuple):
        return type(old)(*saved) if hasattr(old, "_fields") else tuple(saved)
    return saved


def model_digest(model: Any) -> str:
    """Return a digest of the Ops and constants of a model's log density, data included."""
    digest = hashlib.sha256()
    log_density, values = model.logp(), model.value_vars
    # The order of the parameters: in another model they may have changed places.
    used = [value.name for value in graph_inputs([log_density]) if value in values]
    digest.update(f"{[value.name for value in values]} {used} ".encode())
    _digest_graph([log_density], digest.update)
    return digest.hexdigest()


def _digest_graph(outputs: Sequence[Any], update: Callable[[bytes], None]) -> None:
    """Digest the Ops of a graph, which of them are connected, and its data."""
    inputs = list(dict.fromkeys(graph_inputs(outputs)))
    for variable in inputs:
        update(f"{type(variable).__name__} {variable.type} ".encode())
        data: Any = variable.get_value(borrow=True) if isinstance(variable, SharedVariable) else None
        data = variable.data if isinstance(variable, Constant) else data
        parts = [data.data, data.indices, data.indptr] if hasattr(data, "indptr") else [data]  # a sparse matrix
        for part in parts:
            if isinstance(part, np.ndarray | np.generic | int | float):
                update(np.ascontiguousarray(part).tobytes())
    number = {variable: i for i, variable in enumerate(inputs)}
    for node in io_toposort(inputs, outputs):
        scalar_op = type(getattr(node.op, "scalar_op", None)).__name__
        places = [number.setdefault(variable, len(number)) for variable in (*node.inputs, *node.outputs)]
        options = [_plain(getattr(node.op, name, None)) for name in getattr(node.op, "__props__", None) or ()]
        update(f"{type(node.op).__name__} {scalar_op} {options} {places} ".encode())
        inner = getattr(node.op, "fgraph", None)
        if inner is not None:
            _digest_graph(inner.outputs, update)


def _plain(option: Any) -> Any:
    """Return an option of an Op, such as an axis, without what may be other text in another process."""
    if isinstance(option, tuple | list):
        return [_plain(part) for part in option]
    return option if option is None or isinstance(option, bool | int | float | str) else type(option).__name__


def _json_value(value: Any) -> Any:
    """Return a number of NumPy as one of Python, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint cannot say whether an argument of a later call is the same as {value!r}")


class Checkpoint:
    """A file with the state of a run."""

    def __init__(self, path: Any, arguments: Mapping[str, Any]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"no folder {str(self.path.parent)!r} for the checkpoint")
        named = {"version": pytensor_cl.__version__, **arguments}
        self._arguments = json.loads(json.dumps(named, default=_json_value))
        self._next = perf_counter() + SECONDS
        self._has_failed = False

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed for another checkpoint."""
        return perf_counter() >= self._next

    def load(self) -> dict[str, Any] | None:
        """Return the state in the file, or None if there is no file."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                arrays = [file[f"array{i}"] for i in range(header["arrays"])]
            if header["kind"] != _HEADER:
                raise KeyError(header["kind"])
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{str(self.path)!r} is no checkpoint of pytensor_cl.pymc.sample: {error}") from error
        there, here = header["arguments"], self._arguments
        others = [name for name in {**there, **here} if there.get(name) != here.get(name)]
        if others:
            differences = "; ".join(_difference(name, there.get(name), here.get(name)) for name in others)
            raise ValueError(
                f"the checkpoint {str(self.path)!r} belongs to another call: {differences}. Remove the file to begin "
                "anew, or take another path"
            )
        state: dict[str, Any] = _decoded(header["state"], arrays)
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the file; what was there is replaced at once or not at all."""
        begun = perf_counter()
        arrays: list[np.ndarray] = []
        tree = _encoded(state, arrays)
        header = {"kind": _HEADER, "arguments": self._arguments, "arrays": len(arrays), "state": tree}
        try:
            self._write(json.dumps(header), arrays)
        except OSError as error:
            if not self._has_failed:
                warn(f"the checkpoint {str(self.path)!r} cannot be written: {error}")
            self._has_failed = True
        now = perf_counter()
        self._next = now + max(SECONDS, _SHARE * (now - begun))

    def _write(self, header: str, arrays: list[np.ndarray]) -> None:
        named: Any = {f"array{i}": array for i, array in enumerate(arrays)}
        with replacing(self.path, is_durable=True) as draft, draft.open("wb") as file:
            np.savez(file, header=np.array(header), **named)


def _difference(name: str, there: Any, here: Any) -> str:
    if name == "model":
        return "the model, or its data, are others"
    return f"{name} was {there!r} and is {here!r}"


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return a value for JSON; arrays are put in a list, and numbered."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, Mapping):
        return {"dict": {name: _encoded(part, arrays) for name, part in value.items()}}
    if isinstance(value, list):
        return [_encoded(part, arrays) for part in value]
    return value


def _decoded(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decoded(part, arrays) for part in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    return {name: _decoded(part, arrays) for name, part in value["dict"].items()}
