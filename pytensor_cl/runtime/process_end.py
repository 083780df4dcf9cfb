"""The end of the process: no thread is in a driver any more, and no command is under way.

The interpreter does not wait for daemon threads. One that is in a driver then goes on while the C library ends the
driver, or is ended by the interpreter inside a function of C++: both end the process by a fault.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime import queue
from pytensor_cl.runtime.fork import is_forked, opened_contexts
from pytensor_cl.runtime.memory import host_mapping, staging

PATIENCE_SECONDS = 30.0
"""Seconds that the end of the process waits for calls of the driver by daemon threads."""
_POLL_SECONDS = 0.01
_OF_QUEUES = "finish_raw", "launch", "read", "start_read", "start_write", "write"
_CALLERS = queue.__file__, host_mapping.__file__, staging.__file__
_OF_PROGRAMS = "build", "build_own", "build_text"


def _for_main_thread(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in which every thread but the main one waits for ever."""

    def checked(*arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            threading.Event().wait()
        return call(*arguments, **options)

    return checked


def _is_any_thread_in_driver() -> bool:
    """Return whether another thread may be in a function of a driver: its last Python function is one that calls it."""
    places = (*_CALLERS, *sys.modules["pyopencl"].__path__)
    frames = (frame for number, frame in sys._current_frames().items() if number != threading.get_ident())
    return any(frame.f_code.co_filename.startswith(places) for frame in frames)


def end_calls() -> None:
    """Let daemon threads call the drivers no more, and wait for their calls and for all commands."""
    contexts = [] if is_forked() else opened_contexts()
    if contexts and threading.active_count() > 1:
        for context in contexts:
            for owner, names in ((context.queue, _OF_QUEUES), (context.programs, _OF_PROGRAMS)):
                vars(owner).update({name: _for_main_thread(getattr(owner, name)) for name in names})
        latest = monotonic() + PATIENCE_SECONDS
        while _is_any_thread_in_driver() and monotonic() < latest:
            sleep(_POLL_SECONDS)
    for context in contexts:
        with suppress(cl.Error):  # a command has failed, and nobody has asked for its result
            context.queue.finish_raw()
