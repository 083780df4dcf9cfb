"""Where the user's cache folder cannot be written to, as in containers with a read-only home.

PoCL has no device then, and pyopencl raises an error at the first kernel. Both can do without the folder if they are
given the setting before they are loaded: PoCL gets a temporary one, pyopencl keeps nothing.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from pytensor_cl.codegen.rendered import user_folder

__all__ = ["configure_caches"]


def configure_caches() -> None:
    """Set the variables of PoCL and pyopencl, for this process and those it starts, if their folders are no use."""
    folder = user_folder()
    if not (_is_writable(folder / "pyopencl") and _is_writable(folder / "pytools")):
        os.environ["PYOPENCL_NO_CACHE"] = "true"
    named = os.environ.get("POCL_CACHE_DIR")
    if _is_writable(Path(named) if named else folder / "pocl" / "kcache"):
        return
    try:
        made = tempfile.mkdtemp(prefix="pocl-")
    except OSError:  # nowhere at all
        return
    os.environ["POCL_CACHE_DIR"] = made
    atexit.register(_remove, made, os.getpid())


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a fork
        shutil.rmtree(folder, ignore_errors=True)
