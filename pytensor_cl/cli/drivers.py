"""The registered OpenCL drivers, and why one does not load."""

import os
from pathlib import Path
from typing import NamedTuple

from pytensor_cl.runtime.icd import icd_folder, library_problem
from pytensor_cl.runtime.names import bundled_folder
from pytensor_cl.runtime.unlisted_drivers import is_own_folder


class Driver(NamedTuple):
    """A driver that is registered with the OpenCL loader."""

    icd: str  # the file, or the setting, that names it
    library: str  # the shared library
    problem: str | None  # why it offers no device; None if it does


def _read(icd: Path) -> Driver:
    try:
        library = icd.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        return Driver(str(icd), "", f"cannot be read: {error}")
    if not library:
        return Driver(str(icd), "", "the file is empty: it should hold the path of a shared library")
    return Driver(str(icd), library, library_problem(library, icd.parent))


def _single(setting: str) -> list[Driver]:
    """The loader takes an OCL_ICD_VENDORS that is no folder for the one driver to load."""
    path = Path(setting)
    if path.suffix == ".icd" and path.is_file():
        return [_read(path)]
    if "/" in setting and not path.exists():
        problem: str | None = f"{setting} does not exist: the loader finds no driver, not even that of PoCL's wheel"
    else:
        problem = library_problem(setting, path.parent)
    return [Driver(f"OCL_ICD_VENDORS={setting}", setting, problem)]


def searched_places() -> list[tuple[str, str]]:
    """Return the folders that the loader searches for drivers, with their files."""
    setting = os.environ.get("OCL_ICD_VENDORS")
    if setting and not Path(setting).is_dir():
        return [(setting, "OCL_ICD_VENDORS is no folder, so it is the only driver; PoCL's wheel is not looked at")]
    places = [(icd_folder(), _reason(setting))]
    bundled = bundled_folder()
    if bundled:
        places.append((bundled, "beside pyopencl, where PoCL's wheel is"))
    return [(str(folder), f"{why}: {_contents(folder)}") for folder, why in places]


def _reason(setting: str | None) -> str:
    if setting and is_own_folder(setting):
        return "made by this package, with a file for each driver that no .icd file names"
    return "OCL_ICD_VENDORS" if setting else "OPENCL_VENDOR_PATH" if os.environ.get("OPENCL_VENDOR_PATH") else "default"


def _contents(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    return ", ".join(icd.name for icd in sorted(folder.glob("*.icd"))) or "no .icd file"


def registered_drivers() -> list[Driver]:
    """Return every registered driver, with the reason if it does not load."""
    setting = os.environ.get("OCL_ICD_VENDORS")
    if setting and not Path(setting).is_dir():
        return _single(setting)
    folders = [folder for folder in (icd_folder(), bundled_folder()) if folder and folder.is_dir()]
    return [_read(icd) for folder in folders for icd in sorted(folder.glob("*.icd"))]
