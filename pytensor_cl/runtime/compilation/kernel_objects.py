"""Create kernel objects, also where pyopencl's cache on disk is damaged.

pyopencl generates Python code for each kernel that is created, and keeps it in an SQLite database below the user's
cache folder. If that file is damaged, no kernel can be created in any process, and pyopencl does not make it anew.
"""

import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from pytensor_cl.codegen.folders import user_folder
from pytensor_cl.runtime import opencl as cl

INVOKER_FILES = "pdict-*-pyopencl-invoker-cache-*.sqlite*"
"""Names of the databases, one for each version of Python."""
_log = logging.getLogger("pytensor_cl.cache")


def invoker_folder() -> Path:
    """Return the folder of the databases."""
    return user_folder() / "pytools"


def new_kernel(program: "cl.Program", name: str) -> "cl.Kernel":
    """Return a new kernel object.

    If pyopencl's database is damaged, it is removed, and this process continues without it.

    `program`: a program that was built; `name`: name of the kernel function.

    Raises `pyopencl.Error`: the program has no such kernel.
    """
    # pyopencl reads this attribute, which programs from binaries and those of `get_info` lack: it would ask the driver
    # for a kernel of that name.
    vars(program).setdefault("_source", None)
    try:
        return cl.Kernel(program, name)
    except cl.Error:
        raise
    except Exception as error:  # a damaged file raises errors of SQLite, of pickle, or any other
        _log.debug("pyopencl's cache is not used: %s: %s", type(error).__name__, error)
        if not isinstance(error, sqlite3.OperationalError):  # another process has locked it, for instance
            _remove_databases()
        _switch_off()
    return cl.Kernel(program, name)


def _remove_databases() -> None:
    for file in invoker_folder().glob(INVOKER_FILES):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _switch_off() -> None:
    """Let pyopencl keep nothing: in this process, where it has read the variable already, and in those it starts."""
    os.environ["PYOPENCL_NO_CACHE"] = "true"
    import pyopencl

    pyopencl._PYOPENCL_NO_CACHE = True
