"""Which cores each of PoCL's threads may use: one while they are ours, two while others want them too.

PoCL wakes all its threads for each kernel, from one core. On virtual machines Linux does not see that other cores are
idle (a halted virtual CPU counts as preempted), and leaves several of them on one core for milliseconds. With a core
for each that cannot happen, but where other programs run, a kernel then waits for the thread whose core is taken, twice
as long as with two. Linux tells for each thread how long it has run, and how long it waited for a core.
"""

import os
import threading
from collections.abc import Sequence
from math import inf
from time import monotonic

__all__ = [
    "ThreadAffinity",
    "rebalance",
    "spread_cores",
    "spread_threads",
    "without_python_threads",
]

_INTERVAL = 0.3  # seconds between two looks
_ENOUGH = 10_000_000  # nanoseconds that threads ran or waited, from which their ratio tells something
_CROWDED = 0.2  # share of it that they wait, with a core for each, where others want the cores too
_PAUSES = (1.0, 32.0)  # seconds until one core for each is tried again: at first, and at most


def without_python_threads(threads: frozenset[int]) -> frozenset[int]:
    """Return those of some threads of this process that Python has not started."""
    return threads - {thread.native_id for thread in threading.enumerate()}


def _times(files: Sequence[int]) -> tuple[int, int]:
    """Return the nanoseconds that threads have run, and those that they waited for a core, altogether."""
    each = [os.pread(file, 100, 0).split() for file in files]
    return sum(int(run) for run, *_ in each), sum(int(wait) for _, wait, *_ in each)


class ThreadAffinity:
    """The cores that each of some threads may use.

    Parameters
    ----------
    threads
        As the system numbers them.
    cores
        As many, of this process.

    Attributes
    ----------
    cores
        Those of this process.
    count
        How many each may use now: its own, and the next ones.
    """

    def __init__(self, threads: Sequence[int], cores: Sequence[int]) -> None:
        self._threads, self.cores = threads, tuple(cores)
        self._next, self._retry, self._pause = 0.0, 0.0, _PAUSES[0]
        self.count = 0
        try:
            self._files = [os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY) for thread in threads]
            self._last = _times(self._files)
            self._tie(1)
        except (OSError, ValueError):  # a system that does not tell
            self._last, self._next = (0, 0), inf
            self._tie(2)

    def _tie(self, count: int) -> None:
        cores = self.cores
        for i, thread in enumerate(self._threads):
            os.sched_setaffinity(thread, {cores[(i + k) % len(cores)] for k in range(count)})
        self.count = count

    def rebalance(self) -> None:
        """Look how the threads fared since the last time, if that is a while ago."""
        now = monotonic()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        try:
            self._weigh(now)
        except (OSError, ValueError):  # the threads have ended
            self._next = inf

    def _weigh(self, now: float) -> None:
        times = _times(self._files)
        run, wait = (new - old for new, old in zip(times, self._last, strict=True))
        if run + wait < _ENOUGH:
            return
        self._last = times
        if self.count == 1 and wait > _CROWDED * (run + wait):
            self._retry = now + self._pause
            self._pause = min(2 * self._pause, _PAUSES[1])
            self._tie(2)
        elif self.count == 1:
            self._pause = _PAUSES[0]
        elif now >= self._retry:
            self._tie(1)


_spread: list[ThreadAffinity] = []  # PoCL's, if they were spread


def spread_threads(threads: frozenset[int]) -> bool:
    """Let each of PoCL's threads use few cores, so that they cannot all meet on one.

    Parameters
    ----------
    threads
        Those that came when the driver was loaded. Where they are fewer or more than the cores of this process (as
        with POCL_MAX_PTHREAD_COUNT), or the user set POCL_AFFINITY, nothing is done.

    Returns
    -------
    bool
        Whether it was done.
    """
    if not threads or "POCL_AFFINITY" in os.environ:
        return False
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) != len(threads):
        return False
    _spread[:] = [ThreadAffinity(sorted(threads), cores)]
    return True


def spread_cores() -> tuple[int, ...]:
    """Return the cores over which PoCL's threads are spread; none if they are not."""
    return tuple(core for cores in _spread for core in cores.cores)


def rebalance() -> None:
    """See whether PoCL's threads have the right cores, if they were spread; called after waits."""
    for cores in _spread:
        cores.rebalance()
