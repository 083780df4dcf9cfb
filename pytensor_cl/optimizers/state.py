"""Values of shared variables by name: read, checked, and set."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable


def value_of(variable: SharedVariable) -> np.ndarray:
    """Return a copy of a variable's value; JAX may have stored another dtype."""
    return np.asarray(variable.get_value(), dtype=variable.type.dtype)


def mismatches(variable: SharedVariable, name: str, shape: Iterable[int], dtype: str) -> list[str]:
    """Return what keeps a value of a shape and dtype from being stored in a variable."""
    found, own, shape = [], variable.get_value().shape, tuple(shape)
    if shape != own:
        found.append(f"{name} has shape {shape}, the variable {own}")
    if dtype != variable.type.dtype:
        found.append(f"{name} is {dtype}, the variable {variable.type.dtype}")
    return found


def differing_names(wanted: Iterable[str], given: Iterable[str]) -> list[str]:
    """Return which names are missing, and which are too many."""
    wanted, given = set(wanted), set(given)
    found = [f"{name} is missing" for name in sorted(wanted - given)]
    return found + [f"{name} is not known" for name in sorted(given - wanted)]


def refuse(what: str, problems: list[str]) -> None:
    """Raise one error that lists all problems, if there are any."""
    if problems:
        raise ValueError(f"{what} cannot be loaded, and nothing was changed:\n  " + "\n  ".join(problems))


def load_values(variables: Mapping[str, SharedVariable], values: Mapping[str, Any], what: str) -> None:
    """Set the values of variables by name, or none of them."""
    arrays = {name: np.asarray(value) for name, value in values.items()}
    problems = differing_names(variables, arrays)
    for name, variable in variables.items():
        if name in arrays:
            problems += mismatches(variable, name, arrays[name].shape, str(arrays[name].dtype))
    refuse(what, problems)
    for name, variable in variables.items():
        variable.set_value(np.array(arrays[name]))
