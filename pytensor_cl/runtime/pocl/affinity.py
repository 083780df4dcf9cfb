"""Pins PoCL's threads: each may use one core while the cores are idle otherwise, and two while they are not.

PoCL wakes all its threads for each kernel, from one core. On virtual machines Linux does not see that other cores are
idle, because a halted virtual CPU counts as preempted. So it leaves several threads on one core for milliseconds. That
cannot happen to pinned threads. But where other programs run, a kernel waits for the thread whose core is taken: twice
as long as with two cores for each thread. Linux counts how long each thread has run, and how long it waited for a core.
"""

import os
import threading
from collections.abc import Sequence
from math import inf
from time import monotonic

REBALANCE_SECONDS = 0.3
"""Between two measurements."""
_MIN_NANOSECONDS = 10_000_000  # the least time that threads ran or waited for a meaningful ratio
_MAX_WAIT_SHARE = 0.2  # share of waiting, with a core per thread, above which each gets two
_RETRY_SECONDS = (1.0, 32.0)  # until one core for each thread is tried again: at first, and at most


def without_python_threads(threads: frozenset[int]) -> frozenset[int]:
    """Return the threads, of some threads of this process, that Python has not started."""
    return threads - {thread.native_id for thread in threading.enumerate()}


def _thread_times(files: Sequence[int]) -> tuple[int, int]:
    """Return the nanoseconds that threads have run, and those that they waited for a core, in total."""
    each = [os.pread(file, 100, 0).split() for file in files]
    return sum(int(run) for run, *_ in each), sum(int(wait) for _, wait, *_ in each)


class ThreadAffinity:
    """The cores that some threads may use, which are given by their operating-system numbers, and as many cores.

    `cores_per_thread` is how many each may use now: its own, and the next ones.
    """

    def __init__(self, threads: Sequence[int], cores: Sequence[int]) -> None:
        self._threads, self.cores = threads, tuple(cores)
        self._next_time, self._retry_time, self._retry_seconds = 0.0, 0.0, _RETRY_SECONDS[0]
        self.cores_per_thread = 0
        try:
            self._files = [os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY) for thread in threads]
            self._last_times = _thread_times(self._files)
            self._pin(1)
        except (OSError, ValueError):  # the system has no such counters
            self._last_times, self._next_time = (0, 0), inf
            self._pin(2)

    def _pin(self, count: int) -> None:
        cores = self.cores
        for i, thread in enumerate(self._threads):
            os.sched_setaffinity(thread, {cores[(i + k) % len(cores)] for k in range(count)})
        self.cores_per_thread = count

    def rebalance(self) -> None:
        """Measure how long the threads waited for cores, if the last time is a while ago; pin them accordingly."""
        now = monotonic()
        if now < self._next_time:
            return
        self._next_time = now + REBALANCE_SECONDS
        try:
            self._adjust(now)
        except (OSError, ValueError):  # the threads have ended
            self._next_time = inf

    def _adjust(self, now: float) -> None:
        times = _thread_times(self._files)
        run, wait = (new - old for new, old in zip(times, self._last_times, strict=True))
        if run + wait < _MIN_NANOSECONDS:
            return
        self._last_times = times
        if self.cores_per_thread == 1 and wait > _MAX_WAIT_SHARE * (run + wait):
            self._retry_time = now + self._retry_seconds
            self._retry_seconds = min(2 * self._retry_seconds, _RETRY_SECONDS[1])
            self._pin(2)
        elif self.cores_per_thread == 1:
            self._retry_seconds = _RETRY_SECONDS[0]
        elif now >= self._retry_time:
            self._pin(1)


_pinned: list[ThreadAffinity] = []  # one object if PoCL's threads were pinned


def pin_threads(threads: frozenset[int]) -> bool:
    """Pin PoCL's threads to cores.

    `threads`: ids of the threads that were started while the driver was loaded. Nothing is done if their number is not
    that of this process's cores (as with POCL_MAX_PTHREAD_COUNT), or if the user has set POCL_AFFINITY.
    """
    if not threads or "POCL_AFFINITY" in os.environ or not hasattr(os, "sched_setaffinity"):
        return False
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) != len(threads):
        return False
    _pinned[:] = [ThreadAffinity(sorted(threads), cores)]
    return True


def pinned_cores() -> tuple[int, ...]:
    """Return the cores to which PoCL's threads are pinned; none if they are not."""
    return tuple(core for affinity in _pinned for core in affinity.cores)


def rebalance() -> None:
    """Measure and pin PoCL's threads again if they were pinned; called after waits."""
    for affinity in _pinned:
        affinity.rebalance()
