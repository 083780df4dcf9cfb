"""Time stamps of device commands: a profiling queue replaces a context's queue for a block of code."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import active_count, get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.queue import Queue

KERNEL, COPY, UPLOAD, DOWNLOAD = "kernel", "copy", "upload", "download"


class Command(NamedTuple):
    """A command of the device; times are on the clock of the host's ``perf_counter_ns``.

    `kind`: KERNEL, COPY, UPLOAD or DOWNLOAD; `name`: name of the kernel; `nbytes`: bytes of a transfer; `step`: number
    of the step that enqueued it (`CommandLog.step`); `enqueued`, `start`, `end`: when the host enqueued it, and when
    the device ran it.
    """

    kind: str
    name: str
    nbytes: int
    context: str
    step: int
    enqueued: int
    start: int
    end: int


class _Pending(NamedTuple):
    """An enqueued command, and the host's clock before and after."""

    kind: str
    kernel: Any
    nbytes: int
    step: int
    before: int
    after: int
    event: Any


class CommandLog:
    """The commands that one thread enqueues on a context while it is timed.

    `thread`: the thread that made the log; `step`: number of the step that enqueues commands now; the caller sets it;
    `pending`: commands whose time stamps have not been read; `waited`: when a wait for all commands ended.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.thread = get_ident()
        self.step = 0
        self.pending: list[_Pending] = []
        self.waited = 0


class _ProfilingQueue(Queue):
    """An in-order queue of a context that logs every command.

    `like`: the queue that it replaces; `log`: receives the commands.
    """

    def __init__(self, like: Queue, log: CommandLog) -> None:
        context = log.context
        super().__init__(context.cl_context, context.device, like.synchronous)
        stamps = cl.command_queue_properties.PROFILING_ENABLE
        self.handle = cl.CommandQueue(context.cl_context, context.device, properties=stamps)
        self.log = log

    def _log_command(self, kind: str, kernel: Any, nbytes: int, before: int, event: Any) -> None:
        log = self.log
        log.context.queue.mark_submitted()
        if not log.context.info.features.profiling:
            event.wait()  # the host's clock is read when it has run
        if get_ident() == log.thread:
            log.pending.append(_Pending(kind, kernel, nbytes, log.step, before, perf_counter_ns(), event))
        if self.synchronous:
            self.finish()

    def launch(self, kernel: "cl.Kernel", global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
        """Enqueue a kernel whose arguments are set."""
        before = perf_counter_ns()
        self._log_command(KERNEL, kernel, 0, before, self._enqueue(self.handle, kernel, global_size, local_size))

    def write(self, buffer: "cl.Buffer", array: np.ndarray, offset: int = 0) -> None:
        """Enqueue a copy to the device; the event keeps the array alive."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(self.handle, buffer, array, dst_offset=offset, is_blocking=False)
        self._log_command(UPLOAD, None, array.nbytes, before, event)

    def start_write(self, buffer: "cl.Buffer", memory: np.ndarray, offset: int = 0) -> "cl.Event":
        """Enqueue a copy to the device; the caller keeps the event."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(self.handle, buffer, memory, dst_offset=offset, is_blocking=False)
        self._log_command(UPLOAD, None, memory.nbytes, before, event)
        return event

    def start_read(self, memory: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> "cl.Event":
        """Enqueue a copy to the host; the caller keeps the event."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(self.handle, memory, buffer, src_offset=offset, is_blocking=False)
        self._log_command(DOWNLOAD, None, memory.nbytes, before, event)
        return event

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy to the host; returns when it is there."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(self.handle, array, buffer, src_offset=offset, is_blocking=True)
        self._log_command(DOWNLOAD, None, array.nbytes, before, event)

    def copy(
        self, target: "cl.Buffer", source: "cl.Buffer", count: int, target_offset: int = 0, source_offset: int = 0
    ) -> None:
        """Enqueue a copy between two buffers."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(
            self.handle, target, source, byte_count=count, dst_offset=target_offset, src_offset=source_offset
        )
        self._log_command(COPY, None, count, before, event)


_REPLACED = ("handle", "launch", "write", "start_write", "start_read", "read", "copy")
_queues: dict[Context, _ProfilingQueue] = {}  # queues of contexts that were timed before


def _order_after(first: "cl.CommandQueue", then: "cl.CommandQueue") -> None:
    """Make later commands of one queue wait for the commands of another one."""
    if active_count() == 1:  # a single thread finishes each queue before it uses the other; a marker takes PoCL 50 us
        return
    cl.enqueue_barrier(then, wait_for=[cl.enqueue_marker(first)])
    first.flush()


@contextmanager
def _replaced(queue: Queue, profiling: _ProfilingQueue) -> Iterator[None]:
    """Give a queue, to which other objects may refer, the methods of a profiling queue.

    Another thread may enqueue on one of the two queues and wait on the other. So at each replacement the commands of
    each queue wait for those of the other.
    """
    own = {name: vars(queue)[name] for name in _REPLACED if name in vars(queue)}
    plain = queue.handle
    _order_after(plain, profiling.handle)
    vars(queue).update({name: getattr(profiling, name) for name in _REPLACED})
    _order_after(plain, profiling.handle)
    try:
        yield
    finally:
        _order_after(profiling.handle, plain)
        for name in _REPLACED:
            del vars(queue)[name]
        vars(queue).update(own)
        _order_after(profiling.handle, plain)


@contextmanager
def _timed_context(context: Context) -> Iterator[CommandLog]:
    """Log the commands of a context's queue. The queue is empty before and after."""
    queue = context.queue
    profiling = _queues.get(context) or _queues.setdefault(context, _ProfilingQueue(queue, CommandLog(context)))
    outer, log = profiling.log, CommandLog(context)
    queue.finish()
    with _replaced(queue, profiling):
        queue.finish()
        profiling.log = log
        try:
            yield log
        finally:
            queue.finish()
            log.waited = perf_counter_ns()
            profiling.log = outer


@contextmanager
def timed(contexts: Sequence[Context]) -> Iterator[list[CommandLog]]:
    """Time the commands of some contexts; wait for these at both ends.

    `contexts`: their commands inside a nested block of this kind belong only to the nested block.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(_timed_context(context)) for context in contexts]


def _shift(stamps: Sequence[tuple[int, ...]], pending: Sequence[_Pending], waited: int) -> int:
    """Return the difference between the host's clock and the device's.

    A command is queued between the two readings of the host's clock, and has run before the wait ends. These bounds
    give an interval; its middle is used.
    """
    pairs = list(zip(stamps, pending, strict=True))
    low = max(p.before - queued for (queued, _, _), p in pairs)
    high = min(min(p.after - queued for (queued, _, _), p in pairs), waited - max(end for _, _, end in stamps))
    return (low + max(low, high)) // 2


def read_commands(log: CommandLog) -> list[Command]:
    """Read the time stamps of a log's commands, in the order of enqueueing, and clear the log."""
    pending, log.pending = log.pending, []
    if not pending:
        return []
    name, shift = log.context.name, 0
    if log.context.info.features.profiling:
        profiles = [p.event.profile for p in pending]
        stamps = [(profile.queued, profile.start, profile.end) for profile in profiles]
        shift = _shift(stamps, pending, log.waited)
    else:
        stamps = [(p.before, p.before, p.after) for p in pending]
    return [
        Command(
            p.kind,
            p.kernel.function_name if p.kernel else "",
            p.nbytes,
            name,
            p.step,
            p.before,
            start + shift,
            end + shift,
        )
        for (_, start, end), p in zip(stamps, pending, strict=True)
    ]
