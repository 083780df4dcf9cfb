"""The contexts that this process has opened, and what becomes of them in a forked child.

OpenCL drivers do not work after a fork: their threads are the parent's. A child of a process that has loaded them may
not use any device, and must not even release the parent's objects.
"""

import atexit
import gc
from ctypes import py_object, pythonapi
from typing import Any, NoReturn

from pytensor_cl.errors import ForkedProcessError
from pytensor_cl.forks import at_fork
from pytensor_cl.runtime.device import are_drivers_loaded

_opened: list[Any] = []
_inherited: list[object] = []  # not empty in a child of a process that had loaded drivers; keeps the parent's objects


def note_opened(context: Any) -> None:
    """Note a context that was opened."""
    _opened.append(context)


def opened_contexts() -> list[Any]:
    """Return all contexts that this process, or its parent before a fork, has opened."""
    return list(_opened)


def is_forked() -> bool:
    """Return whether this process is a fork of one that had loaded the drivers, so that it cannot use any."""
    return bool(_inherited)


def forked_error() -> ForkedProcessError:
    """Return the error for a use of OpenCL in such a process."""
    return ForkedProcessError(
        "this process was forked from one that had loaded the OpenCL drivers, and these do not work after a fork "
        "(PoCL hangs). Start workers with the 'spawn' or 'forkserver' method: "
        "multiprocessing.set_start_method('spawn'), or in PyMC pm.sample(..., mp_ctx='forkserver') or cores=1"
    )


class _ForkedStub:
    """Replaces an object of a context that a forked child has inherited."""

    def __getattr__(self, name: str) -> NoReturn:
        raise forked_error()


def _keep_for_ever() -> None:
    """Let the interpreter's end release no object with a handle of the driver: it waits for commands, for example."""
    gc.disable()
    gc.unfreeze()
    kept = [o for o in gc.get_objects() if str(type(o).__module__).startswith(("pytensor_cl.", "pyopencl"))]
    pythonapi.Py_IncRef(py_object(kept))


def _after_fork() -> None:
    if are_drivers_loaded():
        _inherited.append("drivers")
        gc.freeze()  # the parent's garbage is not collected here, as it may have handles of the driver
        atexit.register(_keep_for_ever)
    for context in _opened:
        # The parent's objects are kept: to release them in the child can hang as well.
        _inherited.extend((context.queue, context.memory, context.programs, context.mappings, context.staging))
        context.queue = context.memory = context.programs = context.mappings = context.staging = _ForkedStub()


at_fork(after_in_child=_after_fork)
