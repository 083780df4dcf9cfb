"""Drivers that are installed although no ``.icd`` file names them.

That is so in most containers that have a GPU, and with the wheel of Intel's runtime for CPUs.

The loader gets a folder with links to the ``.icd`` files that there are, and one file for each of these drivers, before
it is first used. Where the user has set ``OCL_ICD_VENDORS``, nothing is changed.
"""

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import blake2s
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import NamedTuple

from pytensor_cl.codegen.folders import default_folder, problem_of
from pytensor_cl.codegen.temporary import temporary_folder
from pytensor_cl.runtime.icd import default_icd_folder, icd_folder, library_problem

__all__ = [
    "UnlistedDriver",
    "find_unlisted",
    "is_own_folder",
    "loader_folders",
    "nvidia_problem",
    "use_unlisted_drivers",
]

LIBRARIES = {"nvidia": "libnvidia-opencl.so", "amd": "libamdocl64.so", "intel": "libigdrcl.so"}
"""Libraries of drivers for GPUs, by the name of the platform; the file names may continue with a version."""
WHEELS = {"intel-cpu": ("intel-opencl-rt", "libintelocl.so")}
"""Drivers whose wheel brings no ``.icd`` file that can be used: the distribution, and the name of the library."""
DEVICE_FILES = {
    "nvidia": ("nvidia[0-9]*", "dxg"),  # dxg: Windows' subsystem for Linux
    "amd": ("kfd",),
    "intel": ("dri/renderD*", "dxg"),
}
"""Patterns in `DEVICES` of the files by which a driver reaches its GPUs: without them it is not loaded."""
DEVICES = Path("/dev")
FOLDERS = (
    "usr/local/nvidia/lib64",  # containers
    "usr/local/nvidia/lib",
    "usr/lib/{multiarch}",
    "lib/{multiarch}",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/lib/{multiarch}/nvidia/current",  # Debian
    "usr/lib/{multiarch}/intel-opencl",
    "usr/lib64/intel-opencl",
    "usr/lib/intel-opencl",
    "opt/rocm*/lib",
    "opt/rocm*/opencl/lib",
    "opt/amdgpu*/lib/{multiarch}",
    "usr/lib/wsl/lib",  # Windows' drivers in its Linux subsystem
    "usr/lib/wsl/drivers/*",
    "run/opengl-driver/lib",  # NixOS
    "run/nvidia/driver/usr/lib/{multiarch}",  # the driver container of Kubernetes
)
"""Folders besides those that the dynamic loader knows, as patterns in the root folder."""
LOADER_CACHE = Path("/etc/ld.so.cache")
NVIDIA_MODULE = Path("/proc/driver/nvidia")  # exists where the kernel has the driver
_NAME, _DIGEST = "drivers", re.compile("[0-9a-f]{32}")
_PREFIX = "pytensor-cl-"
_MARK = "made-by-pytensor-cl"
_ELF_KIND, _ELF_MACHINE, _ELF_HEAD = slice(4, 6), slice(18, 20), 20


class UnlistedDriver(NamedTuple):
    """A driver's library that no ``.icd`` file names."""

    name: str  # key of `LIBRARIES` or `WHEELS`
    library: str  # the path

    @property
    def command(self) -> str:
        """Line for a root shell, which makes the driver known to all programs."""
        folder = default_icd_folder()
        return f"mkdir -p {folder} && echo {self.library} > {folder}/{self.name}.icd"

    def __str__(self) -> str:
        """Return what was found, and how it is made permanent."""
        return (
            f"{self.library} was found, a driver that no .icd file names, and is used by this package. "
            f"This line, as root, makes it known to all programs: {self.command}"
        )


# --- the search ---


def _loader_folders() -> Iterator[Path]:
    """Yield the folders in ``LD_LIBRARY_PATH``."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield Path(folder)


def _cached_paths(stem: str) -> Iterator[Path]:
    """Yield the paths of a library in the dynamic loader's cache, which holds them as strings that end with a zero."""
    with suppress(OSError):
        for found in re.findall(rb"/[^\0]*/" + re.escape(stem.encode()) + rb"[.\d]*(?=\0)", LOADER_CACHE.read_bytes()):
            yield Path(os.fsdecode(found))


def _usual_folders() -> Iterator[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    for pattern in FOLDERS:
        relative = pattern.format(multiarch=multiarch).lstrip("/")
        if "*" in relative:
            yield from sorted(Path("/").glob(relative), reverse=True)
        else:
            yield Path("/") / relative


def _version(path: Path) -> tuple[bool, list[int]]:
    """Sorts the files of a library: the one that programs load, ``.so.1``, and the newest version behind it."""
    return path.name.endswith(".so.1"), [int(n) for n in re.findall(r"\d+", path.name.partition(".so")[2])]


def _in_folder(folder: Path, stem: str) -> list[Path]:
    """Return the files of a library in a folder, the best first."""
    with suppress(OSError):
        fitting = (path for path in folder.glob(f"{stem}*") if re.fullmatch(r"[.\d]*", path.name.removeprefix(stem)))
        return sorted(fitting, key=_version, reverse=True)
    return []


def _is_for_this_process(path: Path) -> bool:
    """Return whether a library is for the architecture of the interpreter."""
    try:
        with path.open("rb") as library, Path(sys.executable).open("rb") as own:
            head, wanted = library.read(_ELF_HEAD), own.read(_ELF_HEAD)
    except OSError:
        return False
    return all(head[part] == wanted[part] for part in (_ELF_KIND, _ELF_MACHINE))


def _candidates(stem: str) -> Iterator[Path]:
    for folder in _loader_folders():
        yield from _in_folder(folder, stem)
    yield from sorted(_cached_paths(stem), key=_version, reverse=True)
    for folder in _usual_folders():
        yield from _in_folder(folder, stem)


def _find_library(stem: str) -> Path | None:
    return next((path for path in _candidates(stem) if _is_for_this_process(path)), None)


def _has_file(library: str, folder: Path) -> bool:
    """Return whether the loader finds the library that an ``.icd`` file in a folder names."""
    if "/" in library:
        return Path(library).exists()
    stem = library.partition(".so")[0] + ".so"
    paths = (*_cached_paths(stem), *(place / library for place in (*_loader_folders(), folder)))
    return any(path.name == library and path.exists() for path in paths)


def _from_wheels() -> dict[str, Path]:
    """Return the libraries of `WHEELS` that are installed for this interpreter, by the name of the driver."""
    found = {}
    for name, (distribution, library) in WHEELS.items():
        with suppress(PackageNotFoundError, OSError):
            paths = (Path(file.locate()) for file in files(distribution) or () if file.name == library)
            path = next((path for path in paths if _is_for_this_process(path)), None)
            if path is not None:
                found[name] = path.parent.resolve() / library
    return found


def _device_files(name: str) -> list[Path]:
    with suppress(OSError):
        return [path for pattern in DEVICE_FILES[name] for path in DEVICES.glob(pattern)]
    return []


def _icd_files(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.glob("*.icd"))
    return []


def _listed(folder: Path) -> set[str]:
    """Return the names of the file of each library that an ``.icd`` file names, and that is there."""
    found = set()
    for icd in _icd_files(folder):
        with suppress(OSError, UnicodeDecodeError):
            library = icd.read_text().strip()
            if library and _has_file(library, folder):
                found.add(Path(library).name)
    return found


def find_unlisted(folder: Path) -> list[UnlistedDriver]:
    """Return the drivers of this machine's GPUs, and of `WHEELS`, that no ``.icd`` file of a folder names."""
    present = {name: stem for name, stem in LIBRARIES.items() if _device_files(name)}
    wheels = _from_wheels()
    listed = _listed(folder) if present or wheels else set()

    def is_listed(stem: str) -> bool:
        return any(name.startswith(stem) for name in listed)

    libraries = {name: _find_library(stem) for name, stem in present.items() if not is_listed(stem)}
    libraries |= {name: library for name, library in wheels.items() if not is_listed(library.name)}
    return [UnlistedDriver(name, str(library)) for name, library in libraries.items() if library is not None]


# --- the folder for the loader ---


def loader_folders() -> Path:
    """Return the folder with the folders that are made for the loader, each named by a digest."""
    return default_folder() / _NAME


def is_own_folder(setting: str | Path) -> bool:
    """Return whether a folder is one that this package made; child processes inherit the setting.

    The folder may be gone, after ``pytensor-cl cache clear``.
    """
    folder = Path(setting)
    is_gone = folder.parent.name == _NAME and _DIGEST.fullmatch(folder.name) is not None and not folder.exists()
    return is_gone or (folder / _MARK).is_file()


def _entries(folder: Path, found: list[UnlistedDriver]) -> dict[str, tuple[str, bool]]:
    """Return the text of each file by its name, and whether it is a link."""
    links = {icd.name: (str(icd.resolve()), True) for icd in _icd_files(folder)}
    return {**links, **{f"{_PREFIX}{driver.name}.icd": (f"{driver.library}\n", False) for driver in found}}


def _make_folder(base: Path, found: list[UnlistedDriver]) -> Path:
    """Return the folder for the loader, named by what is in it.

    Raises `OSError`: it cannot be made.
    """
    entries = _entries(base, found)
    parent = loader_folders()
    if problem_of(parent):
        parent = temporary_folder() / _NAME
        parent.mkdir(mode=0o700, exist_ok=True)
    folder = parent / blake2s(repr(sorted(entries.items())).encode(), digest_size=16).hexdigest()
    if (folder / _MARK).is_file():
        return folder
    draft = Path(tempfile.mkdtemp(prefix="new-", dir=parent))
    for name, (text, is_link) in entries.items():
        if is_link:
            (draft / name).symlink_to(text)
        else:
            (draft / name).write_text(text)
    (draft / _MARK).touch()
    try:
        draft.rename(folder)
    except OSError:  # another process made it
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _drivers_of(folder: Path) -> tuple[UnlistedDriver, ...]:
    """Return the drivers that a folder of this package adds; none if a library is gone."""
    icds = {name: folder / f"{_PREFIX}{name}.icd" for name in (*LIBRARIES, *WHEELS)}
    found = [UnlistedDriver(name, icd.read_text().strip()) for name, icd in icds.items() if icd.exists()]
    return tuple(found) if all(Path(driver.library).exists() for driver in found) else ()


@cache
def use_unlisted_drivers() -> tuple[UnlistedDriver, ...]:
    """Have the loader use the drivers that no ``.icd`` file names, and return them; before the loader is first used."""
    if sys.platform != "linux":
        return ()
    setting = os.environ.get("OCL_ICD_VENDORS", "")
    if setting and not is_own_folder(setting):
        return ()
    if setting:  # inherited from a parent process, whose drivers have the same numbers
        inherited = _drivers_of(Path(setting))
        if inherited:
            return inherited
        del os.environ["OCL_ICD_VENDORS"]
    base = icd_folder()
    found = find_unlisted(base)
    if not found:
        return ()
    try:
        os.environ["OCL_ICD_VENDORS"] = str(_make_folder(base, found))
    except OSError:
        return ()
    return tuple(found)


# --- a GPU that no platform has ---


def _nvidia_files() -> list[Path]:
    return [path for path in _device_files("nvidia") if path.name != "dxg"]


def nvidia_problem() -> str:
    """Return why a machine with an NVIDIA card has no platform of NVIDIA's; empty if it has no such card."""
    if not (NVIDIA_MODULE.exists() or _nvidia_files()):
        return ""
    return f"this machine has an NVIDIA GPU, but no OpenCL platform for it: {_why_no_platform()}"


def _why_no_platform() -> str:
    if not _nvidia_files():
        return "there is no /dev/nvidia0; a container has it if it is started with the GPU (docker run --gpus all)"
    library, setting = _find_library(LIBRARIES["nvidia"]), os.environ.get("OCL_ICD_VENDORS", "")
    if library is None:
        return (
            f"no {LIBRARIES['nvidia']}.1 was found. It belongs to the display driver; a container has it if its "
            "environment has NVIDIA_DRIVER_CAPABILITIES=compute,utility when it is started"
        )
    if setting and not is_own_folder(setting):
        return f"OCL_ICD_VENDORS={setting} does not name {library}; without this variable the driver is used"
    problem = library_problem(str(library), library.parent)
    if problem:
        return f"{library}: {problem}"
    return f"{library} works, but OpenCL was used in this process before pytensor_cl could name it to the loader"
