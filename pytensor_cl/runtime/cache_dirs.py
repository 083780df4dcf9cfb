"""The cache folders of PoCL and pyopencl, before these are loaded.

PoCL has no device where its folder cannot be written to, and pyopencl raises an error at the first kernel. Both run
what they find there, so a folder that other users may write to is no better. Both can do without it if they are given
the setting before they are loaded: PoCL gets a temporary one, pyopencl keeps nothing.

PoCL ends the process where the disk is full. So it gets a temporary folder on another disk if there is little space
when it is loaded, and is asked to compile nothing if the space has been used up since.
"""

import os
from functools import cache
from pathlib import Path

from pytensor_cl.codegen.announcement import announce
from pytensor_cl.codegen.folders import free_bytes, problem_of, user_folder
from pytensor_cl.codegen.temporary import report_unusable, temporary_folder
from pytensor_cl.errors import OutOfDiskSpace

ROOM = 8 << 20
"""Bytes that must be free in PoCL's folder: kernels of a function take up to 2 MB, and drafts as much."""


def compiler_folder() -> Path:
    """Return the folder of PoCL's cache."""
    named = os.environ.get("POCL_CACHE_DIR")
    return Path(named) if named else user_folder() / "pocl" / "kcache"


@cache
def configure_caches() -> None:
    """Set the variables of PoCL and pyopencl, for this process and those it starts, if their folders are no use."""
    if not all(_is_usable(user_folder() / name) for name in ("pyopencl", "pytools")):
        os.environ["PYOPENCL_NO_CACHE"] = "true"
    folder = compiler_folder()
    if not _is_usable(folder):
        os.environ["POCL_CACHE_DIR"] = str(temporary_folder(ROOM) / "pocl")
    elif free_bytes(folder) < ROOM:
        instead = temporary_folder(ROOM)
        if instead.is_dir():
            announce(f"pytensor-cl: {_lack(folder)} They are kept in {instead} until the process ends")
            os.environ["POCL_CACHE_DIR"] = str(instead / "pocl")


def check_room(nbytes: int) -> None:
    """Check that PoCL can write to its folder.

    `nbytes`: bytes that it may write.

    Raises `OutOfDiskSpace`: there is less space.
    """
    folder = compiler_folder()
    if free_bytes(folder) < nbytes:
        announce(f"pytensor-cl: {_lack(folder)} With opencl__placement=auto the host computes")
        raise OutOfDiskSpace(_lack(folder))


def _lack(folder: Path) -> str:
    return (
        f"{folder}, where PoCL keeps the kernels that it compiles, has {free_bytes(folder) >> 10} KiB of space left, "
        "which is too little."
    )


def _is_usable(folder: Path) -> bool:
    problem = problem_of(folder)
    if problem:
        report_unusable(folder, problem)
    return not problem
