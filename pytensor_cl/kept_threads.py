"""Threads that are kept when their work is done, and do the next one, as soon as there is a GPU.

Any thread may be the one that collects garbage, and then it releases objects of a driver. Where a thread ends that has
called a driver, the driver releases what it has for the thread; NVIDIA's may fail if another thread calls it meanwhile.
"""

import atexit
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from typing import Any

from pytensor_cl.forks import at_fork

__all__ = ["Timer", "Work", "keep_threads", "pool", "start"]


class Work:
    """Work of a thread, with methods of `threading.Thread`. `is_awaited`: the process does not end before."""

    def __init__(self, run: Callable[[], Any], name: str, is_awaited: bool) -> None:
        self.run, self.name, self.is_awaited = run, name, is_awaited
        self.ended = threading.Event()

    def is_alive(self) -> bool:
        """Return whether the work goes on."""
        return not self.ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the work has ended."""
        self.ended.wait(timeout)


_idle: list[SimpleQueue[Work]] = []
"""The queues of threads that have no work."""
_under_way: set[Work] = set()
_keeps = False


def keep_threads() -> None:
    """Let no thread end from now on."""
    global _keeps
    _keeps = True


def _serve(works: SimpleQueue[Work]) -> None:
    """Do the works of a queue, one after the other."""
    is_kept = True
    while is_kept:
        work = works.get()
        threading.current_thread().name = work.name
        try:
            work.run()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        finally:
            is_kept = _keeps
            if is_kept:
                threading.current_thread().name = "pytensor-cl idle"
                _idle.append(works)
            _under_way.discard(work)
            work.ended.set()
            del work  # and what it refers to


def start(run: Callable[[], Any], name: str, is_awaited: bool = False) -> Work:
    """Call a function in a thread.

    `name`: of the thread meanwhile; `is_awaited`: the process does not end before the work does; other work ends with
    the process. Raises `RuntimeError`: there can be no new thread, as the interpreter shuts down.
    """
    work = Work(run, name, is_awaited)
    try:
        works = _idle.pop()  # whole or not at all: other threads do it as well
    except IndexError:
        works = SimpleQueue()
        threading.Thread(target=_serve, args=(works,), name=name, daemon=True).start()
    _under_way.add(work)
    works.put(work)
    return work


class Timer:
    """Calls a function after some seconds, unless it is cancelled; with methods of `threading.Timer`.

    `work`: that of its thread; None before `start`.
    """

    def __init__(self, seconds: float, function: Callable[[], Any]) -> None:
        self._seconds, self._function = seconds, function
        self._is_cancelled = threading.Event()
        self.work: Work | None = None

    def start(self) -> None:
        """Begin to wait. Raises `RuntimeError`: there can be no new thread, as the interpreter shuts down."""
        self.work = start(self._run, "pytensor-cl timer")

    def cancel(self) -> None:
        """Call nothing, unless that has begun."""
        self._is_cancelled.set()

    def _run(self) -> None:
        if not self._is_cancelled.wait(self._seconds):
            self._function()


@cache
def pool(count: int, name: str) -> ThreadPoolExecutor:
    """Return the executor of so many threads for one purpose, which end with the process."""
    return ThreadPoolExecutor(count, name)


def _wait() -> None:
    for work in list(_under_way):
        if work.is_awaited:
            work.join()


def _after_fork() -> None:
    """A forked process has only the thread that forked."""
    pool.cache_clear()
    _idle.clear()
    for work in _under_way:
        work.ended = threading.Event()  # another thread may have held the lock in it
        work.ended.set()
    _under_way.clear()


atexit.register(_wait)
at_fork(after_in_child=_after_fork)
