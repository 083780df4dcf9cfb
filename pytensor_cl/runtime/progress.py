"""Messages about compilations of more than half a second: a line on stderr, and in the log.

Where stderr is no terminal, as in a log file, the line comes after five seconds.

A thread that runs during a compilation writes the line. It never keeps the process alive, and writes nothing in a
forked child. Drivers compile when a program is built, or (PoCL) when a kernel is launched first: so the first use of a
kernel in a call may be a compilation too, until the call ends.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, local
from time import monotonic
from typing import Any

from pytensor_cl.kept_threads import Timer

_log = logging.getLogger("pytensor_cl.progress")
MIN_PAUSE_SECONDS, MIN_SILENT_SECONDS = 0.5, 5.0
"""Seconds of a pause after which a line is written, to a terminal and elsewhere."""


class _Settings:
    """Settings: the flag sets `mode`; tests replace the others."""

    mode: Callable[[], str] = staticmethod(lambda: "auto")
    clock: Callable[[], float] = staticmethod(monotonic)
    timer: Callable[..., Timer] = Timer
    stream: Callable[[], Any] = staticmethod(lambda: sys.stderr)


class _ThreadState(local):
    """The state of a thread: calls and compilations under way."""

    label: str | None = None
    """Name of the function that is called."""
    depth = 0
    """Number of nested calls."""
    pause: "_Pause | None" = None
    """The compilation under way; None if there is none."""
    is_call = False
    """Whether the pause ends with the call."""


_thread_state = _ThreadState()


def choose(mode: Callable[[], str]) -> None:
    """Set the function that returns where lines are written.

    `mode`: returns ``"auto"`` (later, if stderr is no terminal), ``"always"`` or ``"never"``.
    """
    _Settings.mode = staticmethod(mode)


def _is_shown() -> bool:
    return _Settings.mode() != "never"


def _is_terminal() -> bool:
    try:
        return bool(_Settings.stream().isatty())
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


class _Pause:
    """Something that compiles."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._begin = _Settings.clock()
        self._owner = os.getpid()
        self._lock = Lock()
        self._is_over = self._is_printed = False
        self._is_shown = _is_shown()
        # To a terminal the time is added to the line; elsewhere other lines may come between.
        self._is_line_open = self._is_shown and (_Settings.mode() == "always" or _is_terminal())
        is_early = self._is_line_open or not self._is_shown
        self._timer: Timer | None = None
        if self._is_shown or _log.isEnabledFor(logging.INFO):
            seconds = MIN_PAUSE_SECONDS if is_early else MIN_SILENT_SECONDS
            self._timer = _Settings.timer(seconds, self._print_line)
            try:
                self._timer.start()
            except RuntimeError:  # no new threads while the interpreter shuts down
                self._timer = None

    def _print_line(self) -> None:
        with self._lock:
            if self._is_over or os.getpid() != self._owner:
                return
            self._is_printed = True
            _log.info("compiling %s", self._description)
            self._write(f"pytensor-cl: compiling {self._description}...{'' if self._is_line_open else chr(10)}")

    def end(self) -> None:
        """Write how long it took, if a line was written."""
        if self._timer is None or os.getpid() != self._owner:
            return
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._is_printed:
                seconds = _Settings.clock() - self._begin
                _log.info("compiled %s in %.1f s", self._description, seconds)
                if self._is_line_open:
                    self._write(f" {seconds:.1f} s\n")

    def _write(self, text: str) -> None:
        if self._is_shown:
            try:
                _Settings.stream().write(text)
                _Settings.stream().flush()
            except (AttributeError, OSError, ValueError):  # the stream is closed
                self._is_shown = False


def _described(description: str, driver: str) -> str:
    label = _thread_state.label
    return f"{description}{f' for {label}' if label else ''} ({driver})"


@contextmanager
def compiling(description: str, driver: str, label: str | None = None) -> Iterator[None]:
    """Report a pause while the block runs; compilations inside it are part of it.

    `driver`: name of the compiler: a driver or a backend; `label`: name of the function for which it is done; None is
    that of the call.
    """
    if _thread_state.pause is not None:
        yield
        return
    before = _thread_state.label
    _thread_state.label = label or before
    _thread_state.pause = _Pause(_described(description, driver))
    try:
        yield
    finally:
        _thread_state.label = before
        _end()


def _end() -> None:
    pause, _thread_state.pause, _thread_state.is_call = _thread_state.pause, None, False
    if pause is not None:
        pause.end()


@contextmanager
def calling(label: str | None) -> Iterator[None]:
    """Mark a call of a function: until it ends, the first use of a kernel may be a pause.

    `label`: name of the function; None if it has none.
    """
    before = _thread_state.label
    _thread_state.label = label or before
    _thread_state.depth += 1
    try:
        yield
    finally:
        _thread_state.depth -= 1
        _thread_state.label = before
        if not _thread_state.depth and _thread_state.is_call:
            _end()


def kernel_is_new(driver: str) -> None:
    """Note that a kernel was created: its first launch, in this call, may compile it.

    `driver`: whose kernel it is.
    """
    if _thread_state.depth and _thread_state.pause is None:
        _thread_state.is_call = True
        _thread_state.pause = _Pause(_described("kernels", driver))
