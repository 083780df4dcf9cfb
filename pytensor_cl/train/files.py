"""Variables, optimizers and states of random numbers in safetensors files.

A file is written beside the old one and then takes its name, so that a process that is killed leaves the old file.
Everything is checked before the first value is set.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import RandomGeneratorType

import pytensor_cl
from pytensor_cl.codegen.checked_files import replacing
from pytensor_cl.optimizers.base import Optimizer
from pytensor_cl.optimizers.state import differing_names, mismatches, refuse, value_of
from pytensor_cl.train import random_states

FORMAT = 1
"""The highest version of the files that this package can read."""
_DTYPES = {
    "BOOL": "bool",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "C64": "complex64",
}
CALLBACK = "callback/"
"""The beginning of the names of callbacks' states."""
_STATES = ("optimizer/", "ema/", CALLBACK)
"""The beginnings of names of states, not of parameters; a caller who loads none of a kind leaves it in the file."""
_RNG = "rng/"


def _safetensors() -> Any:
    try:
        import safetensors.numpy as library
    except ImportError as error:
        raise ImportError("files need safetensors: pip install 'pytensor-cl[train]'") from error
    return library


def _named(what: Any) -> Iterator[tuple[str | None, SharedVariable]]:
    """Yield the names in the file, and the variables, of what is saved or loaded."""
    if isinstance(what, SharedVariable):
        yield what.name, what
    elif isinstance(what, Optimizer):
        yield from ((f"optimizer/{name}", variable) for name, variable in what.state.items())
    elif isinstance(what, Mapping):
        yield from what.items()
    elif hasattr(what, "variables"):
        yield from _named(what.variables)
    elif isinstance(what, Iterable) and not isinstance(what, str | bytes | Variable):
        for part in what:
            yield from _named(part)
    else:
        raise TypeError(f"shared variables, optimizers, dicts and lists of them can be in a file; got {what!r}")


def _collect(what: Any) -> tuple[dict[str, SharedVariable], dict[str, SharedVariable]]:
    """Return arrays and generators by name; a variable that occurs twice has one name."""
    arrays: dict[str, SharedVariable] = {}
    generators: dict[str, SharedVariable] = {}
    for name, variable in _named(what):
        if not isinstance(variable, SharedVariable):
            raise TypeError(f"shared variables can be in a file; got {variable!r} for {name!r}")
        if not name:
            raise ValueError(f"a variable has no name, which is its key in the file: {variable!r} of {variable.type}")
        target = generators if isinstance(variable.type, RandomGeneratorType) else arrays
        if target.setdefault(name, variable) is not variable:
            raise ValueError(f"two variables are named {name!r}, which is the key in the file")
    return arrays, generators


def save_keys(what: Any) -> list[str]:
    """Return the names that variables have in a file, after the checks of `save`."""
    return [name for part in _collect(what) for name in part]


def save(path: str | os.PathLike[str], what: Any, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write variables to a safetensors file, at once or not at all.

    The names of variables are the keys; the state of an optimizer has ``optimizer/`` before its names; states of random
    numbers are in the metadata. A variable that is used in two places is written once.

    Parameters
    ----------
    path
        The file. It is replaced when all has been written; until then the old one is there.
    what
        Shared variables, optimizers, the averages of `ema`, random generators; alone, in lists, or in a dict by name;
        or an object whose attribute ``variables`` is such a thing.
    metadata
        Further texts by name.

    Raises
    ------
    ValueError
        If names are missing or occur twice.
    TypeError
        If a dtype has no place in such a file, as complex128.
    """
    check_folder(path)
    arrays, generators = _collect(what)
    library = _safetensors()
    # ascontiguousarray would make () to (1,); the writer takes the memory as it lies, so the order must be C.
    values = {name: np.asarray(value_of(variable), order="C") for name, variable in arrays.items()}
    unknown = [f"{name} is {value.dtype}" for name, value in values.items() if str(value.dtype) not in _DTYPES.values()]
    if unknown:
        raise TypeError(f"safetensors files have no such dtypes: {', '.join(unknown)}")
    texts = {
        "pytensor_cl.format": str(FORMAT),
        "kind": "state" if generators or any(name.startswith(_STATES) for name in arrays) else "weights",
        "pytensor_cl": pytensor_cl.__version__,
        "pytensor": pytensor.__version__,
        "numpy": np.__version__,
        "safetensors": version("safetensors"),
    }
    texts |= {f"{_RNG}{name}": random_states.as_text(variable.get_value()) for name, variable in generators.items()}
    taken = sorted(set(texts) & set(metadata or {}))
    if taken:
        raise ValueError(f"these names of metadata are taken: {', '.join(taken)}")
    with replacing(Path(path), is_durable=True) as draft:
        library.save_file(values, draft, texts | dict(metadata or {}))
        _sort_texts(draft)
        if set(_header(draft)) != set(values):
            raise OSError(f"{draft} is not what was written")


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise FileNotFoundError if the folder of a file that will be written is not there."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} for {Path(path).name}")


def _sort_texts(path: Path) -> None:
    """Put the metadata in the order of their names, so that equal content makes equal files.

    The library writes them in an order that differs from file to file. The header stays as long as it is.
    """
    header, begin = _entries(path)
    texts = header.pop("__metadata__")
    text = json.dumps(
        {"__metadata__": dict(sorted(texts.items())), **header}, ensure_ascii=False, separators=(",", ":")
    )
    encoded = text.encode().ljust(begin - 8)
    if len(encoded) == begin - 8:
        with path.open("rb+") as file:
            file.seek(8)
            file.write(encoded)


def _entries(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a file, and where the data begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= path.stat().st_size:
            raise ValueError(f"{path} is no safetensors file")
        text = file.read(size)
    try:
        header = json.loads(text)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is no safetensors file") from None
    if 8 + size + max(ends, default=0) != path.stat().st_size:
        raise ValueError(f"{path} is cut off, or longer than its header says")
    return header, 8 + size


def _header(path: Path) -> dict[str, Any]:
    """Return dtype and shape of each array in a file."""
    return {name: entry for name, entry in _entries(path)[0].items() if name != "__metadata__"}


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the texts in the header of a safetensors file.

    Parameters
    ----------
    path
        The file.
    """
    return dict(_entries(Path(path))[0].get("__metadata__", {}))


def _widened(path: Path, name: str) -> np.ndarray:
    """Return an array of bfloat16, which NumPy does not have, as float32: its upper 16 bits."""
    header, begin = _entries(path)
    first, last = header[name]["data_offsets"]
    halves = np.fromfile(path, "<u2", (last - first) // 2, offset=begin + first)
    return (halves.astype("uint32") << 16).view("float32").reshape(header[name]["shape"])


def _kind(name: str) -> str:
    """Return how the names of a kind begin; parameters have an empty beginning."""
    return next((beginning for beginning in _STATES if name.startswith(beginning)), "")


def _is_asked_for(name: str, wanted: Iterable[str]) -> bool:
    """Return whether a name in the file that nothing here has is a difference."""
    if name.rpartition(".")[2] == "num_batches_tracked":  # PyTorch counts batches, which nothing here needs
        return False
    return _kind(name) in map(_kind, wanted)


def _problems_of(variable: SharedVariable, name: str, entry: Mapping[str, Any], turned: bool, cast: bool) -> list[str]:
    """Return what keeps an array of the file from being a variable's value."""
    shape, dtype = tuple(entry["shape"]), _DTYPES.get(entry["dtype"], entry["dtype"])
    if turned and len(shape) != 2:
        return [f"{name} has shape {shape} and cannot be transposed"]
    own = variable.type.dtype
    is_close = dtype == "bfloat16" and own in ("float32", "float64")
    if is_close or (cast and dtype.startswith(("float", "bfloat")) and own.startswith("float")):
        dtype = own
    return mismatches(variable, name, shape[::-1] if turned else shape, dtype)


def _check_format(path: Path, texts: Mapping[str, str]) -> None:
    found = texts.get("pytensor_cl.format", "1")
    if not found.isdecimal() or int(found) > FORMAT:
        raise ValueError(f"{path} has format {found}; this version reads formats up to {FORMAT}")


def load(
    path: str | os.PathLike[str],
    what: Any,
    *,
    names: Mapping[str, str] | None = None,
    transpose: Iterable[str] = (),
    strict: bool = True,
    cast: bool = False,
) -> None:
    """Set variables to the values in a safetensors file, all of them or none.

    Files of PyTorch load with `names`. Arrays of bfloat16 are widened to float32, exactly. What is asked for decides
    what is read: weights alone load from the file of a whole training.

    Parameters
    ----------
    path
        The file.
    what
        The same as for `save`.
    names
        Our names to those in the file; others are the same in both.
    transpose
        Our names of matrices that are transposed in the file, as weights of ``torch.nn.Linear`` for ``x @ w``.
    strict
        Whether names that the file does not have, and parameters that only the file has, are errors.
    cast
        Whether a floating-point dtype may become another one.

    Raises
    ------
    ValueError
        If names, shapes, dtypes or kinds of generators differ. The text lists all differences; nothing has been
        changed.
    """
    path = Path(path)
    arrays, generators = _collect(what)
    names, turned = dict(names or {}), set(transpose)
    unknown = sorted((set(names) - set(arrays) - set(generators)) | (turned - set(arrays)))
    if unknown:
        raise ValueError(f"names and transpose have what is not loaded: {', '.join(unknown)}")
    header, texts = _header(path), read_metadata(path)
    _check_format(path, texts)
    keys = {name: names.get(name, name) for name in arrays}
    sources = {name: f"{_RNG}{names.get(name, name)}" for name in generators}
    problems = []
    if strict:
        there = [key for key in header if key in keys.values() or _is_asked_for(key, arrays)]
        problems += differing_names([*keys.values(), *sources.values()], [*there, *(texts.keys() & sources.values())])
    for name, key in keys.items():
        if key in header:
            problems += _problems_of(arrays[name], key, header[key], name in turned, cast)
    for name, key in sources.items():
        own = type(generators[name].get_value().bit_generator).__name__
        if key in texts and random_states.kind_of(texts[key]) != own:
            problems.append(f"{key} is of {random_states.kind_of(texts[key])}, the variable of {own}")
    refuse(str(path), problems)
    values = _read(path, {name: key for name, key in keys.items() if key in header}, header)
    for name, value in values.items():
        value = value.T if name in turned else value
        arrays[name].set_value(np.array(value, arrays[name].type.dtype, order="C"))
    for name, key in sources.items():
        if key in texts:
            generators[name].set_value(random_states.with_state(generators[name].get_value(), texts[key]))


def read_arrays(path: str | os.PathLike[str], beginning: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file whose names begin so."""
    header = _header(Path(path))
    return _read(Path(path), {name: name for name in header if name.startswith(beginning)}, header)


def _read(path: Path, keys: Mapping[str, str], header: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return arrays of a file by our names."""
    with _safetensors().safe_open(path, framework="np") as file:
        return {
            name: _widened(path, key) if header[key]["dtype"] == "BF16" else file.get_tensor(key)
            for name, key in keys.items()
        }
