"""Private temporary folder in place of an unusable cache folder; removed when the process ends.

A process that is killed leaves its folder. It holds a lock on a file in it as long as it runs, so the next process that
makes such a folder finds out, and removes it.
"""

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pytensor_cl.codegen.announcement import announce
from pytensor_cl.codegen.folders import free_bytes, is_own, may_be_read, problem_of

if sys.platform == "win32":
    from msvcrt import LK_NBLCK, locking
else:
    from fcntl import LOCK_EX, LOCK_NB, flock

_PREFIX = "pytensor-cl-cache-"
_LOCK, _DRAFT = "lock", "new"
_NEW_SECONDS = 60.0  # age of a folder from which its file is locked, on Windows


@dataclass
class _Made:
    """The temporary folders of this process, and the locks that it holds on them."""

    folders: list[Path] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)


_made = _Made()


@cache
def usable_folder(folder: Path) -> Path:
    """Return a folder if it can be read, else one in this process's temporary folder; a line on stderr says why."""
    problem = problem_of(folder)
    if not problem:
        return folder
    report_unusable(folder, problem)
    return folder if may_be_read(folder) else temporary_folder() / folder.name


def report_unusable(folder: Path, problem: str) -> None:
    """Write a line on a cache folder that cannot be used: one in a tree of processes, as the cause is one, usually."""
    announce(
        f"pytensor-cl: the cache folder {folder} is not used: {problem}. What is compiled is kept in a temporary "
        "folder until the process ends. XDG_CACHE_HOME names another cache folder; 'pytensor-cl doctor' lists all",
        "unusable cache folder",
    )


def temporary_folder(room: int = 0) -> Path:
    """Return a temporary folder of this process; a path where nothing can be written, if none can be made.

    `room`: bytes that can be written to it.
    """
    found = next((folder for folder in _made.folders if free_bytes(folder) >= room), None)
    if found is not None:
        return found
    for parent in _places():
        if free_bytes(parent) >= room:
            with suppress(OSError):
                return _new_folder(parent)
    return Path(os.devnull) / "cache"


def _places() -> tuple[Path, ...]:
    return Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/dev/shm")


def _new_folder(parent: Path) -> Path:
    for abandoned in abandoned_folders():
        shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    atexit.register(_remove, folder, os.getpid())
    if sys.platform == "win32":  # a file that is open cannot be renamed
        _made.locks.append(_locked(folder / _LOCK, os.O_CREAT))
    else:
        _made.locks.append(_locked(folder / _DRAFT, os.O_CREAT))
        (folder / _DRAFT).replace(folder / _LOCK)  # locked before others look for it
    _made.folders.append(folder)
    return folder


def _locked(file: Path, flags: int = 0) -> int:
    """Lock a file; return its descriptor, which keeps the lock until the process ends.

    Raises `OSError`: there is none, or a process that runs has locked it.
    """
    handle = os.open(file, os.O_RDWR | flags, 0o600)
    try:
        if sys.platform == "win32":
            locking(handle, LK_NBLCK, 1)
        else:
            flock(handle, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def abandoned_folders() -> Iterator[Path]:
    """Yield the temporary folders of this user's processes that were killed."""
    for parent in _places():
        for folder in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                is_new = time.time() - folder.stat().st_mtime < _NEW_SECONDS
                if is_own(folder) and not (is_new and sys.platform == "win32"):
                    os.close(_locked(folder / _LOCK))
                    yield folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a fork
        shutil.rmtree(folder, ignore_errors=True)
