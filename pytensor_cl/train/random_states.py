"""States of NumPy's generators as text: integers are decimal strings, as JSON's may lose digits; arrays are tagged."""

import copy
import json
from typing import Any

import numpy as np


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return {"array": [str(int(part)) for part in value.ravel()], "dtype": str(value.dtype)}
    return str(int(value)) if isinstance(value, int | np.integer) else value


def _restored(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"array", "dtype"}:
        return np.array([int(part) for part in value["array"]], value["dtype"])
    if isinstance(value, dict):
        return {key: _restored(part) for key, part in value.items()}
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def as_text(generator: np.random.Generator) -> str:
    """Return the state of a generator as JSON."""
    return json.dumps(_plain(generator.bit_generator.state))


def kind_of(text: str) -> str:
    """Return the name of the bit generator whose state this is."""
    return str(json.loads(text)["bit_generator"])


def with_state(generator: np.random.Generator, text: str) -> np.random.Generator:
    """Return a copy of a generator with another state."""
    result = copy.deepcopy(generator)
    result.bit_generator.state = _restored(json.loads(text))
    return result
