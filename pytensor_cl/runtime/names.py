"""Names of platforms that do not change when another driver is installed; a changed device of a name is reported.

The driver loader numbers platforms, in an order that differs even between runs. A name is a driver's (``pocl``,
``intel``, ...). PoCL can be installed several times: the name ``pocl`` means the wheel on which this package
depends, any other PoCL is named with its version (``pocl-3.1``). Platforms with the same name number their
devices on, the newest version first.
"""

import ctypes
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytensor_cl.codegen.checked_files import write_whole
from pytensor_cl.codegen.folders import default_folder, remove_stale
from pytensor_cl.codegen.temporary import usable_folder
from pytensor_cl.runtime import opencl as cl

# Names, and the parts of a platform's own name or vendor by which they are recognised, in lower case.
PLATFORM_NAMES: dict[str, tuple[str, ...]] = {
    "pocl": ("portable computing language",),
    "intel": ("intel",),
    "nvidia": ("nvidia",),
    "amd": ("amd", "advanced micro devices"),
    "apple": ("apple",),
    "rusticl": ("rusticl",),
}
_NUMBERS = re.compile(r"\d+")
_VERSIONED = re.compile(r"(pocl)-([\d.]+)")


@dataclass(frozen=True)
class PlatformName:
    """The name of a platform, and the properties by which platforms of one name are ordered.

    `reported_name`, `version`, `library`: the platform's name and version, and the file of its driver; empty if
    unknown.
    """

    name: str
    reported_name: str = ""
    version: str = ""
    library: str = ""

    @property
    def rank(self) -> tuple[Any, ...]:
        """Key to sort platforms of one name: the newest version first."""
        return (self.reported_name, [-n for n in _version_numbers(self.version)], self.version, self.library)


def _version_numbers(text: str) -> list[int]:
    """Return the driver's numbers in a platform's version, ``OpenCL <version> <what the driver adds>``."""
    own = text.split(maxsplit=2)[2:]
    return [int(n) for n in _NUMBERS.findall(own[0] if own else text)]


# --- the shared library of a platform's driver ---


class _Symbol(ctypes.Structure):
    """The struct ``Dl_info`` that the C function ``dladdr`` fills in."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _pointer_at(address: int) -> int:
    """Return the pointer at an address of this process.

    Raises `OSError`: nothing is mapped there.
    """
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    try:
        return int.from_bytes(os.pread(memory, ctypes.sizeof(ctypes.c_void_p), address), sys.byteorder)
    finally:
        os.close(memory)


def library_of(platform: "cl.Platform") -> str:
    """Return the path of the shared library that a platform's driver is; empty if unknown.

    By the extension ``cl_khr_icd`` an object of a driver begins with a pointer to a table of the driver's
    functions. ``dladdr`` returns the library of the first of these. This works on Linux only.
    """
    if not sys.platform.startswith("linux"):
        return ""
    try:
        function = _pointer_at(_pointer_at(platform.int_ptr))
        symbol = _Symbol()
        found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(function), ctypes.byref(symbol))
    except (OSError, OverflowError, AttributeError):
        return ""
    return os.fsdecode(symbol.file) if found and symbol.file else ""


def bundled_folder() -> Path | None:
    """Return the folder for drivers inside pyopencl, where PoCL's wheel goes; found without importing pyopencl."""
    package = find_spec("pyopencl")
    return Path(package.origin).parent / ".libs" if package and package.origin else None


def _is_from_wheel(platform_version: str, library: str) -> bool:
    """Return whether a PoCL is the wheel's: by its file, or by its version where the file is not known."""
    folder = bundled_folder()
    if library:
        return folder is not None and Path(library).resolve().is_relative_to(folder.resolve())
    try:
        wheel = version("pocl-binary-distribution")
    except PackageNotFoundError:
        return False
    return _NUMBERS.findall(wheel)[:2] == _NUMBERS.findall(_pocl_version(platform_version))[:2]


def _pocl_version(platform_version: str) -> str:
    found = re.search(r"pocl (\d+(?:\.\d+)*)", platform_version, re.IGNORECASE)
    return found[1] if found else "unknown"


def platform_name(platform: "cl.Platform") -> PlatformName:
    """Return the name of a platform."""
    reported_name, vendor, text = platform.name.strip(), platform.vendor, platform.version.strip()
    words = ((name, word) for name, many in PLATFORM_NAMES.items() for word in many)
    fallback = re.sub(r"\W+", "-", reported_name.lower()).strip("-")
    name = next((name for name, word in words if word in f"{reported_name} {vendor}".lower()), fallback)
    library = library_of(platform)
    if name == "pocl" and not _is_from_wheel(text, library):
        name = f"pocl-{_pocl_version(text)}"
    return PlatformName(name, reported_name, text, library)


def unversioned_name(name: str) -> str:
    """Return a platform's name without its version: ``pocl`` of ``pocl-3.1``."""
    found = _VERSIONED.fullmatch(name)
    return found[1] if found else name


def sort_key(name: str) -> tuple[str, bool, list[int]]:
    """Return a key to sort names: alphabetically; of one driver the name without a version first, then the newest."""
    found = _VERSIONED.fullmatch(name)
    return unversioned_name(name), found is not None, [-int(n) for n in _NUMBERS.findall(found[2])] if found else []


# --- the device of each name in the user's last run ---


def _devices_file() -> Path:
    return default_folder() / "names.json"


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


def _write(file: Path, devices: dict[str, str]) -> None:
    with suppress(OSError):  # without a file no change is reported
        write_whole(file, json.dumps(devices, indent=1, sort_keys=True).encode())
        remove_stale(file.parent, f"{file.name}.*.tmp")


@cache
def report_change_of_device(spec: str, device: str) -> None:
    """Write a line to stderr if a name refers to another device or driver than in the user's last run.

    `spec`: ``opencl`` or ``opencl:<name>...``; numbers are the loader's; `device`: the device to which it refers now,
    and its driver.
    """
    file = _devices_file()
    if usable_folder(file.parent) != file.parent:
        return
    known = _read(file)
    before = known.get(spec)
    if before == device:
        return
    _write(file, {**known, spec: device})
    if before is not None:
        sys.stderr.write(f"pytensor-cl: {spec} is now {device}; when you last used the name it was {before}\n")


def first_device_numbers(names: Sequence[PlatformName], counts: Sequence[int]) -> list[int]:
    """Return the number of each platform's first device among the platforms of the same name."""
    first = [0] * len(names)
    taken: dict[str, int] = {}
    for k in sorted(range(len(names)), key=lambda k: names[k].rank):
        first[k] = taken.get(names[k].name, 0)
        taken[names[k].name] = first[k] + counts[k]
    return first
