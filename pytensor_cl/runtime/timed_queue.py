"""Device time: a queue whose commands carry time stamps, for as long as somebody asks."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import active_count, get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.queue import Queue

__all__ = ["COPY", "DOWNLOAD", "KERNEL", "UPLOAD", "Command", "CommandLog", "stamp", "timed"]

KERNEL, COPY, UPLOAD, DOWNLOAD = "kernel", "copy", "upload", "download"


class Command(NamedTuple):
    """Something that the device did; times are the host's ``perf_counter_ns``.

    Attributes
    ----------
    kind
        KERNEL, COPY, UPLOAD or DOWNLOAD.
    name
        Of the kernel.
    nbytes
        That a transfer moves.
    context
        Name of the context.
    owner
        On whose behalf: what `CommandLog.owner` was.
    enqueued, start, end
        When the host handed it over, and when the device ran it.
    """

    kind: str
    name: str
    nbytes: int
    context: str
    owner: int
    enqueued: int
    start: int
    end: int


class _Pending(NamedTuple):
    """A command as it was enqueued, between two readings of the host's clock."""

    kind: str
    kernel: Any
    nbytes: int
    owner: int
    before: int
    after: int
    event: Any


class CommandLog:
    """What the thread that made it enqueued on one context while it was timed.

    Parameters
    ----------
    context
        The context.

    Attributes
    ----------
    thread
        That thread.
    owner
        Number of whoever enqueues now.
    pending
        Commands whose stamps nobody has read.
    waited
        When the host knew that all had run.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.thread = get_ident()
        self.owner = 0
        self.pending: list[_Pending] = []
        self.waited = 0


class _ProfilingQueue(Queue):
    """An in-order queue of a context that notes every command.

    Parameters
    ----------
    like
        The queue that it stands in for.
    watch
        Where to note.
    """

    def __init__(self, like: Queue, watch: CommandLog) -> None:
        context = watch.context
        super().__init__(context.cl_context, context.device, like.synchronous)
        stamps = cl.command_queue_properties.PROFILING_ENABLE
        self.handle = cl.CommandQueue(context.cl_context, context.device, properties=stamps)
        self.watch = watch

    def _note(self, kind: str, kernel: Any, nbytes: int, before: int, event: Any) -> None:
        watch = self.watch
        watch.context.queue.mark_submitted()
        if not watch.context.info.features.profiling:
            event.wait()  # the host's clock tells when it had run
        if get_ident() == watch.thread:
            watch.pending.append(_Pending(kind, kernel, nbytes, watch.owner, before, perf_counter_ns(), event))
        if self.synchronous:
            self.finish()

    def launch(self, kernel: "cl.Kernel", global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
        """Enqueue a kernel whose arguments are set."""
        before = perf_counter_ns()
        self._note(KERNEL, kernel, 0, before, self._enqueue(self.handle, kernel, global_size, local_size))

    def write(self, buffer: "cl.Buffer", array: np.ndarray, offset: int = 0) -> None:
        """Enqueue a copy to the device; the event keeps the array alive."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(self.handle, buffer, array, dst_offset=offset, is_blocking=False)
        self._note(UPLOAD, None, array.nbytes, before, event)

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy to the host; returns when it is there."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(self.handle, array, buffer, src_offset=offset, is_blocking=True)
        self._note(DOWNLOAD, None, array.nbytes, before, event)

    def copy(
        self, target: "cl.Buffer", source: "cl.Buffer", count: int, target_offset: int = 0, source_offset: int = 0
    ) -> None:
        """Enqueue a copy between two buffers."""
        before = perf_counter_ns()
        event = cl.enqueue_copy(
            self.handle, target, source, byte_count=count, dst_offset=target_offset, src_offset=source_offset
        )
        self._note(COPY, None, count, before, event)


_REPLACED = ("handle", "launch", "write", "read", "copy")
_queues: dict[Context, _ProfilingQueue] = {}  # of contexts that were timed before


def _follow(first: "cl.CommandQueue", then: "cl.CommandQueue") -> None:
    """Make what is enqueued on a queue from now on wait for what another one holds."""
    if active_count() == 1:  # a thread that is alone finishes each before it goes on with the other: PoCL needs 50 us
        return
    cl.enqueue_barrier(then, wait_for=[cl.enqueue_marker(first)])
    first.flush()


@contextmanager
def _replaced(queue: Queue, noting: _ProfilingQueue) -> Iterator[None]:
    """Make a queue, which others may hold, do what one does that notes.

    Other threads may enqueue on one of the two and wait for it on the other: where they change, each waits for what the
    one before holds.
    """
    own = {name: vars(queue)[name] for name in _REPLACED if name in vars(queue)}
    plain = queue.handle
    _follow(plain, noting.handle)
    vars(queue).update({name: getattr(noting, name) for name in _REPLACED})
    _follow(plain, noting.handle)
    try:
        yield
    finally:
        _follow(noting.handle, plain)
        for name in _REPLACED:
            del vars(queue)[name]
        vars(queue).update(own)
        _follow(noting.handle, plain)


@contextmanager
def _timed(context: Context) -> Iterator[CommandLog]:
    """Note what a context's queue does; it is empty before and after."""
    queue = context.queue
    noting = _queues.get(context) or _queues.setdefault(context, _ProfilingQueue(queue, CommandLog(context)))
    outer, watch = noting.watch, CommandLog(context)
    queue.finish()
    with _replaced(queue, noting):
        queue.finish()
        noting.watch = watch
        try:
            yield watch
        finally:
            queue.finish()
            watch.waited = perf_counter_ns()
            noting.watch = outer


@contextmanager
def timed(contexts: Sequence[Context]) -> Iterator[list[CommandLog]]:
    """Time what is enqueued on some contexts; waits for them at both ends.

    Parameters
    ----------
    contexts
        What is timed inside another such block is missing there.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(_timed(context)) for context in contexts]


def _shift(stamps: Sequence[tuple[int, ...]], pending: Sequence[_Pending], waited: int) -> int:
    """Return what to add to the device's clock to get the host's.

    A command was queued between the two readings of the host's clock about its enqueueing, and had run before the
    host knew that it had. The middle of what these bounds leave is taken.
    """
    pairs = list(zip(stamps, pending, strict=True))
    low = max(p.before - queued for (queued, _, _), p in pairs)
    high = min(min(p.after - queued for (queued, _, _), p in pairs), waited - max(end for _, _, end in stamps))
    return (low + max(low, high)) // 2


def stamp(watch: CommandLog) -> list[Command]:
    """Read the time stamps of what was enqueued, in the order in which it was enqueued, and forget it."""
    pending, watch.pending = watch.pending, []
    if not pending:
        return []
    name, shift = watch.context.name, 0
    if watch.context.info.features.profiling:
        profiles = [p.event.profile for p in pending]
        stamps = [(profile.queued, profile.start, profile.end) for profile in profiles]
        shift = _shift(stamps, pending, watch.waited)
    else:
        stamps = [(p.before, p.before, p.after) for p in pending]
    return [
        Command(
            p.kind,
            p.kernel.function_name if p.kernel else "",
            p.nbytes,
            name,
            p.owner,
            p.before,
            start + shift,
            end + shift,
        )
        for (_, start, end), p in zip(stamps, pending, strict=True)
    ]
