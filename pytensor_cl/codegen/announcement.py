"""Lines on stderr that appear once in a tree of processes.

The first process of a tree that imports this module names the tree in an environment variable, which others inherit.
A line is claimed by a folder of the tree in the folder of temporary files: making one is atomic. The first process
removes the tree's folder when it ends. If it is killed, the next tree does.
"""

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

from pytensor_cl.codegen.folders import is_own

TREE = "PYTENSOR_CL_TREE"
"""Environment variable: which tree this process belongs to."""
_PREFIX = "pytensor-cl-"


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{os.environ[TREE]}"


def _is_running(process: int) -> bool:
    if os.name == "nt":  # where `os.kill` ends the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def abandoned_trees() -> list[Path]:
    """Return this user's folders of trees whose first process has ended without removing them."""
    found = []
    with suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*"):
            number = path.name.removeprefix(_PREFIX).partition("-")[0]
            if number.isdigit() and is_own(path) and not _is_running(int(number)):
                found.append(path)
    return found


def _claim(line: str) -> None:
    """Make the folder of a line.

    Raises `FileExistsError`: a process of the tree has made it. Raises `OSError`: no folder can be made.
    """
    folder = _folder()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        for abandoned in abandoned_trees():
            shutil.rmtree(abandoned, ignore_errors=True)
    (folder / blake2s(line.encode(), digest_size=8).hexdigest()).mkdir(mode=0o700)


def _is_first(line: str) -> bool:
    """Return whether no process of the tree has written a line; true if that is unknown."""
    try:
        _claim(line)
    except FileExistsError:
        return False
    except (OSError, KeyError):
        return True
    return True


def announce(line: str, subject: str | None = None) -> None:
    """Write a line on stderr, unless a process of the same tree has; of pytest-xdist's workers the first one does.

    `line`: the line; `subject`: only the first line with a subject is written; None is the line itself.
    """
    if os.environ.get("PYTEST_XDIST_WORKER", "") in ("", "gw0") and _is_first(subject or line):
        sys.stderr.write(f"{line}\n")


def _remove(process: int) -> None:
    if os.getpid() == process:  # a forked child inherits what runs at the end
        with suppress(OSError, KeyError):
            folder = _folder()
            if folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)


if not os.environ.get(TREE):
    os.environ[TREE] = f"{os.getpid()}-{os.urandom(4).hex()}"
    atexit.register(_remove, os.getpid())
