"""The folders in which results are kept on disk: where they are, and whether they can be used.

Compiled kernels are run as they are found, so a folder that somebody else owns or may write to is not used.
"""

import os
import shutil
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import platformdirs

_STALE_SECONDS = 3_600.0


def user_folder() -> Path:
    """Return the user's cache folder, such as ``~/.cache``."""
    nowhere = Path(os.devnull) / "cache"  # nothing can be kept there
    try:
        folder = platformdirs.user_cache_path()
    except RuntimeError:  # a user without a name and a home, as containers may have
        return nowhere
    return nowhere if folder.parts[:1] == ("~",) else folder  # older versions of platformdirs return "~/..."


def default_folder(cache_dir: str | Path | None = None) -> Path:
    """Return the package's cache folder according to a setting; None is that of the user."""
    return Path(cache_dir).expanduser() if cache_dir else user_folder() / "pytensor_cl"


def is_own(path: Path) -> bool:
    """Return whether a path belongs to this user; links do not count."""
    return _is_own(path.lstat())


def _is_own(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, whatever the process's umask.

    Raises `OSError`: it cannot be made.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process made it
            path.mkdir(mode=0o700)
            path.chmod(0o700)


def problem_of(folder: Path) -> str:
    """Return why nothing can be kept in a folder, which is made if it is missing; empty if it can be used."""
    try:
        make_private(folder)
        problem = _reading_problem(folder)
        if not problem:
            with tempfile.TemporaryFile(dir=folder):
                return ""
    except OSError as error:
        return error.strerror or str(error)
    return problem


def expected_problem(folder: Path) -> str:
    """Return the result of `problem_of`, without making or writing anything."""
    try:
        if folder.exists():
            problem = _reading_problem(folder)
        else:
            problem, folder = "", next(path for path in folder.parents if path.exists())
    except OSError as error:
        return error.strerror or str(error)
    return problem or ("" if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written to")


def may_be_read(folder: Path) -> bool:
    """Return whether the files of a folder can be used, even if none can be added, as in a container's image."""
    try:
        return not _reading_problem(folder)
    except OSError:
        return False


def _is_of_one_user(group: int) -> bool:
    """Return whether a group is that of this user alone, which has the user's name, as where the umask is 002."""
    from grp import getgrgid  # Windows has neither
    from pwd import getpwuid

    try:
        name, found = getpwuid(os.geteuid()).pw_name, getgrgid(group)
    except KeyError:  # a user or a group without a name
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}


def _reading_problem(folder: Path) -> str:
    status = folder.stat()
    if not _is_own(status):
        return "it belongs to another user"
    # On Windows the bits say nothing; the folders of a user are private there.
    mode = status.st_mode if hasattr(os, "geteuid") else 0
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_of_one_user(status.st_gid)):
        return f"other users may write to it (mode {stat.S_IMODE(status.st_mode):04o}; chmod 700 makes it private)"
    with os.scandir(folder):
        return ""


def remove_stale(folder: Path, pattern: str) -> None:
    """Remove the drafts in a folder that a process which ended has left: those of more than an hour."""
    with suppress(OSError):
        for draft in folder.glob(pattern):
            with suppress(OSError):  # another process removed it
                if time.time() - draft.lstat().st_mtime > _STALE_SECONDS:
                    draft.unlink()


def free_bytes(folder: Path) -> int:
    """Return the bytes that can be added to a folder, or to the nearest that exists above it.

    It is 0 for a folder that cannot be looked at, and the largest integer where the file system does not tell.
    """
    with suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not hasattr(os, "statvfs"):  # Windows
            return shutil.disk_usage(folder).free
        status = os.statvfs(folder)
        if not status.f_blocks:
            return sys.maxsize
        if status.f_files and not status.f_favail:
            return 0
        return status.f_bavail * status.f_frsize
    return 0
