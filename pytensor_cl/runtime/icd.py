"""The folder of ``.icd`` files, and the reason why the library that one names offers no device."""

import ctypes
import os
import sys
from pathlib import Path

__all__ = ["default_icd_folder", "icd_folder", "library_problem"]

SYSTEM_FOLDER = Path("etc/OpenCL/vendors")
"""Relative to the root folder, or to that of a conda environment."""


def default_icd_folder() -> Path:
    """Return the folder of ``.icd`` files where no variable names one; pyopencl of conda has a loader of its own."""
    prefix = Path(sys.prefix)
    is_of_conda = next((prefix / "conda-meta").glob("pyopencl-*.json"), None) is not None
    return (prefix if is_of_conda else Path("/")) / SYSTEM_FOLDER


def icd_folder() -> Path:
    """Return the folder in which the loader looks for ``.icd`` files; it may be a file, or a library."""
    named = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    return Path(named) if named else default_icd_folder()


def _platform_count(library: ctypes.CDLL) -> int:
    """Query the platforms of a driver as the loader does.

    Raises `AttributeError, ValueError`: the library is no OpenCL driver.
    """
    find = library.clGetExtensionFunctionAddress
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    address = find(b"clIcdGetPlatformIDsKHR")
    if not address:
        raise ValueError("no function clIcdGetPlatformIDsKHR")
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint))
    count = ctypes.c_uint(0)
    code = signature(address)(0, None, ctypes.byref(count))
    return count.value if code == 0 else 0


def library_problem(library: str, folder: Path) -> str | None:
    """Load a library that an ``.icd`` file of a folder names; return why it offers no device, None if it does."""
    beside = folder / library  # wheels name a library beside the .icd file and find it by its rpath
    try:
        handle = ctypes.CDLL(str(beside) if beside.is_file() else library)
    except OSError as error:
        return str(error)
    try:
        found = _platform_count(handle)
    except (AttributeError, ValueError) as error:
        return f"not an OpenCL driver: {error}"
    return None if found else "loads, but has no platform: no hardware for it, or no permission to use it"
