"""Threads that copy large host arrays: one core copies 5 to 10 GB/s, a device takes up to 55."""

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue
from threading import Thread

from pytensor_cl.runtime.host_cpu import granted_cores

MAX_THREADS = 8
"""Threads that copy, the caller's included."""


class _Job:
    """Pieces of work, which several threads do.

    `work`: called with the number of each piece.
    """

    def __init__(self, work: Callable[[int], None], pieces: int, helpers: int) -> None:
        self._work = work
        self._left = deque(range(pieces))
        self._tickets = deque(range(helpers))  # for helpers that have not begun
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def do_share(self) -> None:
        """Do pieces until none is left."""
        while self._left:
            try:
                piece = self._left.popleft()
            except IndexError:  # another thread took the last one
                return
            self._work(piece)

    def help(self) -> None:
        """Do pieces in a helper, unless the job is over."""
        try:
            self._tickets.pop()
        except IndexError:
            return
        error: BaseException | None = None
        try:
            self.do_share()
        except BaseException as raised:
            error = raised
        self._ended.put(error)

    def join(self, helpers: int) -> None:
        """Let no further helper begin, and wait for those that have; raise the first error of one."""
        self._left.clear()  # not empty after an error
        while self._tickets:
            try:
                self._tickets.pop()
            except IndexError:
                break
            helpers -= 1
        errors = [self._ended.get() for _ in range(helpers)]
        self._work = _do_nothing  # a helper may not have taken the job from the queue yet: it keeps no arrays
        error = next(filter(None, errors), None)
        if error is not None:
            raise error


def _do_nothing(piece: int) -> None:
    """Do nothing."""


@lru_cache(1)
def copying_threads() -> int:
    """Return how many threads copy a large array: half of the cores, as the others have work, too."""
    return max(1, min(MAX_THREADS, granted_cores() // 2))


@lru_cache(1)
def _jobs(helpers: int) -> "SimpleQueue[_Job]":
    """Start the helpers; return the queue from which they take jobs."""
    jobs: SimpleQueue[_Job] = SimpleQueue()

    def serve() -> None:
        while True:
            jobs.get().help()

    for number in range(helpers):
        Thread(target=serve, name=f"pytensor-cl-copy-{number}", daemon=True).start()
    return jobs


def share_work(work: Callable[[int], None], pieces: int) -> None:
    """Do `pieces` pieces of work in several threads, and wait for all; `work` is called with the number of each."""
    helpers = min(copying_threads(), pieces) - 1
    job = _Job(work, pieces, max(helpers, 0))
    if helpers > 0:
        try:
            jobs = _jobs(copying_threads() - 1)
        except RuntimeError:  # the interpreter shuts down
            job.join(helpers)
            for piece in range(pieces):
                work(piece)
            return
        for _ in range(helpers):
            jobs.put(job)
    try:
        job.do_share()
    finally:
        job.join(max(helpers, 0))
