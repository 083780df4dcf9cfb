"""Lines on stderr that appear once in a tree of processes.

The first process of a tree that imports this module names the tree in an environment variable, which others inherit.
A line is claimed by a folder of the tree in the folder of temporary files: making one is atomic. The first process
removes the tree's folder when it ends.
"""

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

__all__ = ["announce"]

TREE = "PYTENSOR_CL_TREE"
"""Environment variable: which tree this process belongs to."""


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"pytensor-cl-{os.environ[TREE]}"


def _is_first(line: str) -> bool:
    """Whether no process of the tree has written a line; true if that is unknown."""
    try:
        folder = _folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / blake2s(line.encode(), digest_size=8).hexdigest()).mkdir()
    except FileExistsError:
        return False
    except (OSError, KeyError):
        return True
    return True


def announce(line: str) -> None:
    """Write a line on stderr, unless a process of the same tree has; of pytest-xdist's workers the first one does."""
    if os.environ.get("PYTEST_XDIST_WORKER", "") in ("", "gw0") and _is_first(line):
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
