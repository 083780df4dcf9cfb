"""The cache folders of PoCL and pyopencl, before these are loaded.

PoCL has no device where its folder cannot be written to, and pyopencl raises an error at the first kernel. Both run
what they find there, so a folder that other users may write to is no better. Both can do without it if they are given
the setting before they are loaded: PoCL gets a temporary one, pyopencl keeps nothing.
"""

import os
from functools import cache
from pathlib import Path

from pytensor_cl.codegen.folders import problem_of, user_folder
from pytensor_cl.codegen.temporary import report_unusable, temporary_folder

__all__ = ["ROOM", "compiler_folder", "configure_caches", "foreign_folders"]

ROOM = 8 << 20
"""Bytes that must be free in PoCL's folder: kernels of a function take up to 2 MB, and drafts as much."""


def compiler_folder() -> Path:
    """Return the folder of PoCL's cache."""
    named = os.environ.get("POCL_CACHE_DIR")
    return Path(named) if named else user_folder() / "pocl" / "kcache"


def foreign_folders() -> tuple[Path, ...]:
    """Return the folders of pyopencl's caches, of programs and of Python code."""
    return user_folder() / "pyopencl", user_folder() / "pytools"


@cache
def configure_caches() -> None:
    """Set the variables of PoCL and pyopencl, for this process and those it starts, if their folders are no use."""
    if not all(map(_is_usable, foreign_folders())):
        os.environ["PYOPENCL_NO_CACHE"] = "true"
    folder = compiler_folder()
    if not _is_usable(folder):
        os.environ["POCL_CACHE_DIR"] = str(temporary_folder() / "pocl")


def _is_usable(folder: Path) -> bool:
    problem = problem_of(folder)
    if problem:
        report_unusable(folder, problem)
    return not problem
