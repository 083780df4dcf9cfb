"""NUMBA's locks at a fork.

NUMBA compiles under a lock, and LLVM is called under another one. A child that is forked while another thread compiles
gets both as they are, locked for ever. So a fork waits for that thread. If it takes too long, for instance because it
waits for the thread that forks, the child compiles nothing with NUMBA.
"""

import sys
from importlib import import_module
from threading import RLock, local
from time import monotonic
from typing import Any

from pytensor_cl.forks import at_fork

WAIT_SECONDS = 60.0
"""Seconds for which a fork waits for other threads."""


class NumbaLockedError(NotImplementedError):
    """This process was forked while another thread of its parent compiled with NUMBA."""


class _Fork(local):
    """A fork of this thread: the locks that it holds meanwhile, and whether it has them all."""

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.has_all = True


class _State:
    """State of NUMBA in this process: `is_locked` if a fork has left its compiler locked for ever."""

    is_locked = False


_fork = _Fork()
_import_lock = RLock()


def load_numba() -> None:
    """Import NUMBA and PyTensor's implementations for it. A fork waits until that has ended."""
    if "pytensor.link.numba.dispatch.basic" not in sys.modules:
        with _import_lock:
            import_module("pytensor.link.numba.dispatch.basic")


def check_numba() -> None:
    """Check that NUMBA can compile in this process, and load it.

    Raises `NumbaLockedError`: it cannot.
    """
    if _State.is_locked:
        raise NumbaLockedError("the process was forked while another thread compiled with NUMBA")
    load_numba()


def _locks() -> list[Any]:
    """Return the locks in the order in which a compiling thread takes them; of NUMBA those that are loaded."""
    compiler = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    llvm = getattr(getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None), "_lock", None)
    found = (getattr(owner, "_lock", None) for owner in (compiler, llvm))
    return [_import_lock, *(lock for lock in found if lock is not None)]


def _before_fork() -> None:
    end = monotonic() + WAIT_SECONDS
    _fork.held, _fork.has_all = [], True
    for lock in _locks():
        if not lock.acquire(timeout=max(end - monotonic(), 0.0)):
            _fork.has_all = False
            return
        _fork.held.append(lock)


def _after_fork() -> None:
    while _fork.held:
        _fork.held.pop().release()


def _after_fork_in_child() -> None:
    _after_fork()
    _State.is_locked = _State.is_locked or not _fork.has_all


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
