"""Batches made ahead by a thread."""

import queue
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from pytensor_cl import kept_threads

POLL_SECONDS = 0.1
"""Seconds between two looks of a waiting thread at whether it shall stop."""
END_SECONDS = 10.0
"""Seconds that the end of an epoch waits for the thread, whose source may wait for a disk or a network."""
QUICK_SECONDS, SLOW_BATCHES = 0.5e-3, 2
"""Seconds in which a batch is made without a thread, and the slow ones in a row that start it. A batch from the thread
costs the training 0.04 ms more (benchmarks/fit.py)."""
_END = object()


class _Raised:
    """An exception of the thread, to be raised in the training."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Prefetch:
    """Iterates over batches that a thread makes, at most `depth` ahead; with a depth of 0 there is no thread.

    If batches are `quick` to make, as parts of arrays in memory are, the thread starts when two in a row were not: to
    hand over a batch takes longer than to make a small one. `check` is called while the training waits for the thread.
    """

    def __init__(self, batches: Iterator[Any], depth: int, check: Callable[[], None], quick: bool = False) -> None:
        self._batches, self._check, self._is_quick = batches, check, quick
        self._queue: queue.Queue[Any] = queue.Queue(max(1, depth))
        self._is_closed = threading.Event()
        self._has_thread = depth > 0
        self._thread: kept_threads.Work | None = None

    def __enter__(self) -> Iterator[Any]:
        if not self._has_thread:
            return self._batches
        if self._is_quick:
            return self._all()
        self._thread = kept_threads.start(self._run, "pytensor_cl batches")
        return self._taken()

    def _all(self) -> Iterator[Any]:
        slow = 0
        while slow < SLOW_BATCHES:
            begun = perf_counter()
            batch = next(self._batches, _END)
            if batch is _END:
                return
            slow = slow + 1 if perf_counter() - begun > QUICK_SECONDS else 0
            yield batch
        self._thread = kept_threads.start(self._run, "pytensor_cl batches")
        yield from self._taken()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._is_closed.set()
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        if (
            self._thread is not None and self._thread.is_alive() and not is_interrupted
        ):  # then the checkpoint is more urgent
            self._thread.join(END_SECONDS)

    def _put(self, item: Any) -> None:
        while not self._is_closed.is_set():
            try:
                self._queue.put(item, timeout=POLL_SECONDS)
                return
            except queue.Full:
                pass

    def _run(self) -> None:
        try:
            for batch in self._batches:
                self._put(batch)
                if self._is_closed.is_set():
                    return
            self._put(_END)
        except BaseException as error:
            self._put(_Raised(error))
        finally:
            if hasattr(self._batches, "close"):  # a generator may have threads of its own
                self._batches.close()

    def _taken(self) -> Iterator[Any]:
        while True:
            try:
                item = self._queue.get(timeout=POLL_SECONDS)
            except queue.Empty:
                self._check()
                continue
            if item is _END:
                return
            if isinstance(item, _Raised):
                raise item.error
            yield item
