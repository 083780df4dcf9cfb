"""The name ``cl`` of the package: pyopencl, imported when it is first used.

Registering the mode must not pay for loading OpenCL drivers, nor fail where there are none.
"""

from importlib import import_module
from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(import_module("pyopencl"), name)
    globals()[name] = value
    return value
