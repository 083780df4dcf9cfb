"""Checks of arguments that every function of device arrays makes."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from pytensor_cl.runtime.array import GpuArray


def check_arrays(name: str, arrays: Iterable[Any]) -> None:
    """Raise `TypeError` if a function is called with something else than device arrays."""
    for x in arrays:
        if not isinstance(x, GpuArray):
            raise TypeError(f"{name} takes device arrays, not {type(x).__name__}: upload it, asarray(x)")


def takes_arrays[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks its first arguments: those that are annotated as `GpuArray`.

    Without it, an attribute of `GpuArray` would be missing somewhere inside, or NumPy would compute on the host.
    """
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    kinds = [p.annotation for p in signature(function).parameters.values() if p.kind in positional]
    count = next((k for k, kind in enumerate(kinds) if kind is not GpuArray), len(kinds))
    name = function.__name__

    @wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        for x in arguments[:count]:
            if type(x) is not GpuArray:
                check_arrays(name, (x,))
        return function(*arguments, **options)

    return checked
