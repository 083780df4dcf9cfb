"""The name ``cl`` of the package: pyopencl, imported when it is first used.

Registering the mode must not load OpenCL drivers, which takes time, and fails where there are none.
"""

import sys
from importlib import import_module
from typing import Any

from pytensor_cl.runtime.cache_dirs import configure_caches
from pytensor_cl.runtime.unlisted_drivers import use_unlisted_drivers

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if "pyopencl" not in sys.modules:
        configure_caches()
    use_unlisted_drivers()  # the loader looks for drivers when it is first used, which may be later
    value = getattr(import_module("pyopencl"), name)
    globals()[name] = value
    return value
