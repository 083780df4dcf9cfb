"""Run PyTensor graphs on any OpenCL device.

Importing the package registers the mode ``"OPENCL"``. Nothing here loads an OpenCL driver: the first function that is
compiled for a device does.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pytensor_cl import _autoload

if TYPE_CHECKING:  # the same names as in _PUBLIC, for type checkers and editors
    from pytensor_cl.errors import OpenCLError
    from pytensor_cl.linker.reports.explain import explain
    from pytensor_cl.linker.reports.profile import profile
    from pytensor_cl.mode import devices, shared, use
    from pytensor_cl.ops.transfer import gpu_from_host, host_from_gpu
    from pytensor_cl.runtime.array import GpuArray
    from pytensor_cl.runtime.registry import sync
    from pytensor_cl.type import GpuArrayType
    from pytensor_cl.variable import GpuArrayVariable

__version__ = "0.1.0"

# Public name -> the module that holds it. Loaded on first use: this package is imported wherever PyTensor is.
_PUBLIC = {
    "GpuArray": "pytensor_cl.runtime.array",
    "GpuArrayType": "pytensor_cl.type",
    "GpuArrayVariable": "pytensor_cl.variable",
    "OpenCLError": "pytensor_cl.errors",
    "devices": "pytensor_cl.mode",
    "explain": "pytensor_cl.linker.reports.explain",
    "gpu_from_host": "pytensor_cl.ops.transfer",
    "host_from_gpu": "pytensor_cl.ops.transfer",
    "profile": "pytensor_cl.linker.reports.profile",
    "shared": "pytensor_cl.mode",
    "sync": "pytensor_cl.runtime.registry",
    "use": "pytensor_cl.mode",
}

__all__ = [
    "GpuArray",
    "GpuArrayType",
    "GpuArrayVariable",
    "OpenCLError",
    "__version__",
    "devices",
    "explain",
    "gpu_from_host",
    "host_from_gpu",
    "profile",
    "shared",
    "sync",
    "use",
]


if not TYPE_CHECKING:  # a checker would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)


_autoload.install()
