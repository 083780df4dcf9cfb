"""The registered OpenCL drivers, and why one does not load."""

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

from pytensor_cl.runtime.device import icd_folders
from pytensor_cl.runtime.names import bundled_folder


class Driver(NamedTuple):
    """A driver that is registered with the OpenCL loader."""

    icd: str  # the file, or the setting, that names it
    library: str  # the shared library
    problem: str | None  # why it offers no device; None if it does


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


def _problem(library: str, folder: Path) -> str | None:
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


def _read(icd: Path) -> Driver:
    try:
        library = icd.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        return Driver(str(icd), "", f"cannot be read: {error}")
    if not library:
        return Driver(str(icd), "", "the file is empty: it should hold the path of a shared library")
    return Driver(str(icd), library, _problem(library, icd.parent))


def _single(setting: str) -> list[Driver]:
    """The loader takes an OCL_ICD_VENDORS that is no folder for the one driver to load."""
    path = Path(setting)
    if path.suffix == ".icd" and path.is_file():
        return [_read(path)]
    if "/" in setting and not path.exists():
        problem: str | None = f"{setting} does not exist: the loader finds no driver, not even that of PoCL's wheel"
    else:
        problem = _problem(setting, path.parent)
    return [Driver(f"OCL_ICD_VENDORS={setting}", setting, problem)]


def searched_places() -> list[tuple[str, str]]:
    """Return the folders that the loader searches for drivers, with their files."""
    setting = os.environ.get("OCL_ICD_VENDORS")
    if setting and not Path(setting).is_dir():
        return [(setting, "OCL_ICD_VENDORS is no folder, so it is the only driver; PoCL's wheel is not looked at")]
    reason = (
        "OCL_ICD_VENDORS" if setting else "OPENCL_VENDOR_PATH" if os.environ.get("OPENCL_VENDOR_PATH") else "default"
    )
    places = [(folder, reason) for folder in icd_folders()]
    bundled = bundled_folder()
    if bundled:
        places.append((bundled, "beside pyopencl, where PoCL's wheel is"))
    return [(str(folder), f"{why}: {_contents(folder)}") for folder, why in places]


def _contents(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(icd.name for icd in sorted(folder.glob("*.icd"))) or "no .icd file"


def registered_drivers() -> list[Driver]:
    """Return every registered driver, with the reason if it does not load."""
    setting = os.environ.get("OCL_ICD_VENDORS")
    if setting and not Path(setting).is_dir():
        return _single(setting)
    folders = [folder for folder in (*icd_folders(), bundled_folder()) if folder and folder.is_dir()]
    return [_read(icd) for folder in folders for icd in sorted(folder.glob("*.icd"))]
