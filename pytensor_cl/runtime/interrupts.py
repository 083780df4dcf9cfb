"""KeyboardInterrupt arrives though code of others runs: a driver that compiles, or compilers that call back from C.

Python handles a signal in the main thread, between two instructions of Python. A driver's compiler lets it wait for
seconds. And if the first Python code after the signal is a function that C has called, the exception ends there:
`ctypes` prints it, and continues. LLVM calls such functions of NUMBA when it has compiled a module.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

from pytensor_cl import kept_threads
from pytensor_cl.forks import at_fork

LONG_WAIT_SECONDS = 0.25
"""Seconds of a wait for a device after which the next wait is expected to be long as well."""
PAUSE = 0.4
"""Seconds after which a signal is sent again whose exception has not arrived."""


class _Handler:
    """Handles SIGINT as before, and sends the signal again until `end`.

    `before`: the handler until now.
    """

    def __init__(self, before: Callable[..., Any]) -> None:
        self.before = before
        self.raised: BaseException | None = None
        self._has_ended = threading.Event()
        self._sending = threading.Lock()

    def __call__(self, number: int, frame: Any) -> None:
        try:
            self.before(number, frame)
        except BaseException as error:
            if self.raised is None and not self._has_ended.is_set():
                self.raised = error
                kept_threads.start(partial(self._send_again, number), "pytensor-cl signals")
            raise

    def _send_again(self, number: int) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._has_ended.wait(PAUSE):
            with self._sending:
                if not self._has_ended.is_set():
                    signal.pthread_kill(main, number)

    def end(self) -> None:
        """Send nothing any more."""
        with self._sending:
            self._has_ended.set()


@contextmanager
def reraising_interrupts() -> Iterator[None]:
    """Raise the exception of SIGINT's handler at the end of the block at the latest, even if it was caught inside."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before) or not hasattr(signal, "pthread_kill"):
        yield
        return
    handler = _Handler(before)
    try:
        signal.signal(signal.SIGINT, handler)
        yield
    except Exception as error:
        if handler.raised is not None:  # the interrupt made a compiler fail
            raise handler.raised from error
        raise
    finally:
        try:
            handler.end()
        finally:
            signal.signal(signal.SIGINT, before)
    if handler.raised is not None:
        raise handler.raised


_idle: list[ThreadPoolExecutor] = []
"""Executors of one thread each that have no work. Their threads live as long as the process.

Where a thread ends that has called a driver, the driver releases what it has for the thread. NVIDIA's may fail if
another thread calls it meanwhile.
"""
at_fork(after_in_child=_idle.clear)  # a forked process has only the thread that forked


def in_another_thread[Result](work: Callable[[], Result], keeps_thread: bool) -> Result:
    """Run C code that takes long, so that this thread can handle signals meanwhile.

    After an interrupt the work continues; the process ends when it has ended.

    `work`: is called once; `keeps_thread`: whether the thread does other work afterwards, instead of ending.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    # There is no idle one at first, and while work continues after an interrupt. Only the main thread takes one.
    executor = _idle.pop() if keeps_thread and _idle else ThreadPoolExecutor(1, "pytensor-cl-wait")
    try:
        future = executor.submit(work)
    except RuntimeError:  # the interpreter shuts down
        return work()
    future.add_done_callback(lambda _: _idle.append(executor) if keeps_thread else executor.shutdown(wait=False))
    while not wait((future,), timeout=1.0).done:
        pass
    return future.result()
