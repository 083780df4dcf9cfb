"""A device that is told to have a memory of its own, as graphics cards have, on a driver that computes on the CPU."""

import dataclasses
from contextlib import contextmanager
from functools import cache

from pytensor_cl.runtime.context import Context, Settings
from pytensor_cl.runtime.device import resolve
from pytensor_cl.runtime.registry import _registry, add_context, default_context
from tests.conftest import DRIVERS

NAME = "apart"


def device_apart(**changes):
    """The facts of a GPU, with a CPU behind them if there is no GPU; `changes` are further facts."""
    entry = resolve(f"opencl:{DRIVERS[0]}")
    info = dataclasses.replace(entry.info, kind="gpu", shares_host_memory=False, **changes)
    return dataclasses.replace(entry, info=info)


@cache
def _open(features):
    entry = device_apart()
    settings = Settings(
        quiet=True, parallel_compile=False, features=dataclasses.replace(entry.info.features, **dict(features))
    )
    return Context(NAME, entry, settings)


@contextmanager
def context_apart(**features):
    """Yield a context of such a device; functions that are compiled meanwhile run on it. `features`: of the driver."""
    context = _open(tuple(features.items()))
    add_context(NAME, "opencl:apart")
    _registry.contexts[NAME] = context
    try:
        with default_context(NAME):
            yield context
    finally:
        _registry.specs.pop(NAME, None)
        _registry.contexts.pop(NAME, None)
