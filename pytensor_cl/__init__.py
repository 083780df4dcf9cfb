"""Run PyTensor graphs on any OpenCL device.

Importing the package registers the mode ``"OPENCL"``. Nothing here loads an OpenCL driver: the first function that is
compiled for a device does.
"""

from importlib import import_module

from pytensor_cl import _autoload

__version__ = "0.1.0"

# Public name -> the module that holds it. Loaded on first use: this package is imported wherever PyTensor is. Type
# checkers find the names in __init__.pyi.
_PUBLIC = {
    "ElementwiseKernel": "pytensor_cl.user_kernels.elementwise",
    "ReductionKernel": "pytensor_cl.user_kernels.reduction",
    "GpuArray": "pytensor_cl.runtime.array",
    "GpuArrayType": "pytensor_cl.type",
    "GpuArrayVariable": "pytensor_cl.variable",
    "LocalMemory": "pytensor_cl.user_kernels.arguments",
    "OpenCLError": "pytensor_cl.errors",
    "RawKernel": "pytensor_cl.user_kernels.raw",
    "RawModule": "pytensor_cl.user_kernels.module",
    "as_op": "pytensor_cl.ops.user_kernels.as_op",
    "devices": "pytensor_cl.mode",
    "draw": "pytensor_cl.linker.reports.drawing.draw",
    "from_buffer": "pytensor_cl.runtime.interchange",
    "from_dlpack": "pytensor_cl.runtime.interchange",
    "from_pyopencl": "pytensor_cl.runtime.interchange",
    "queue": "pytensor_cl.runtime.interchange",
    "explain": "pytensor_cl.linker.reports.explain",
    "free_memory": "pytensor_cl.runtime.registry",
    "gpu_from_host": "pytensor_cl.ops.transfer",
    "host_from_gpu": "pytensor_cl.ops.transfer",
    "memory_info": "pytensor_cl.runtime.registry",
    "profile": "pytensor_cl.linker.reports.profile",
    "shared": "pytensor_cl.mode",
    "sync": "pytensor_cl.runtime.registry",
    "use": "pytensor_cl.mode",
}

__all__ = ["__version__", *_PUBLIC]
_PACKAGES = ("array", "nn", "optimizers", "pymc", "train")  # imported by their own names, or on first use


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_autoload.install()
