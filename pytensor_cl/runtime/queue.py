"""The in-order queue of a context, and the objects that it keeps alive until its commands have run."""

from collections.abc import Callable, Sequence
from itertools import count
from sys import getrefcount
from time import perf_counter
from typing import Any
from weakref import finalize, ref

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.driver_hooks import DefaultQueueHooks
from pytensor_cl.runtime.interfaces import QueueHooks
from pytensor_cl.runtime.interrupts import LONG_WAIT_SECONDS, in_another_thread
from pytensor_cl.runtime.launch_capture import LaunchCapture

_MAX_KEPT = 64  # objects that are kept for commands, after which the objects of finished commands are released


class _Exposure:
    """The pyopencl queue that code outside this package enqueues on, if it has a reference to it.

    `may_be_held`: false if it had no reference when that was last asked, and has got none since.
    """

    __slots__ = ("handle", "may_be_held")

    def __init__(self, handle: object) -> None:
        self.handle = handle
        self.may_be_held = True

    def is_held(self) -> bool:
        """Return whether other code has a reference."""
        return getrefcount(self.handle) > _UNSHARED

    def end(self) -> None:
        """Note that other code has no reference any more."""
        self.may_be_held = False
        if self.is_held():  # another thread has got one meanwhile
            self.may_be_held = True

    def hand_out(self) -> Any:
        """Return the queue for other code."""
        handle = self.handle  # a reference first, and then the note: another thread may ask in between
        self.may_be_held = True
        return handle


def _count_unshared() -> int:
    """Return the reference count of an object that an attribute alone refers to, as `is_held` sees it."""
    example = _Exposure(object())
    return getrefcount(example.handle)


_UNSHARED = _count_unshared()


def _gone() -> None:
    """Weak reference to an object that is gone."""


class Queue:
    """An in-order command queue.

    `device`: the pyopencl device; `synchronous`: wait after each command, so that an error surfaces at the command that
    caused it; `hooks`: the driver's hooks; None: there are none; `handle`: the pyopencl queue; `capture`: the capture
    of launches that is under way; None if there is none; `may_take_long`: whether the next wait may take long: a driver
    compiles, or the last wait was long. This thread then handles signals while another one waits. `adopted`: the user's
    pyopencl queue, which becomes the context's; None makes one.
    """

    def __init__(
        self,
        context: "cl.Context",
        device: "cl.Device",
        synchronous: bool = False,
        hooks: QueueHooks | None = None,
        adopted: "cl.CommandQueue | None" = None,
    ) -> None:
        if adopted is None:
            self.handle = cl.CommandQueue(context, device)
        else:
            self.handle = cl.CommandQueue.from_int_ptr(adopted.int_ptr, retain=True)
        self.synchronous = synchronous
        self.capture: LaunchCapture | None = None
        self.hooks: QueueHooks = hooks or DefaultQueueHooks()
        # An object for the last submission, and for the last one that a thread has waited for. Two threads could get
        # the same number.
        self._submitted: object = None
        self._completed: object = None
        self._exposure = None if adopted is None else _Exposure(adopted)
        self._own_handle = self.handle  # `handle` is another queue while a call is profiled
        self.may_take_long = False
        self._keeps_thread = not device.type & cl.device_type.CPU
        self._enqueue = cl.enqueue_nd_range_kernel
        # By number, so that several threads can add and remove entries, and a signal may arrive in between.
        self._numbers = count()
        # pyopencl's event of a host copy waits when it is destroyed: it is kept until the copy has ended.
        self._uploads: dict[int, cl.Event] = {}
        self._host_arrays: dict[int, tuple[Callable[[], Any], Any]] = {}
        self._used: dict[int, tuple[cl.Event, Any]] = {}

    @property
    def has_pending(self) -> bool:
        """Whether a command may have been enqueued for which no thread has waited."""
        if self._submitted is not self._completed:
            return True
        exposure = self._exposure
        if exposure is None or not exposure.may_be_held:
            return False
        if not exposure.is_held():
            exposure.end()
            self._submitted = object()  # what it has enqueued before
        return True

    @property
    def last_submission(self) -> object:
        """An object that another one replaces with each command."""
        return self._submitted

    def mark_submitted(self) -> None:
        """Note that a command was enqueued. Code that enqueues without this class calls it, twice.

        Before the command, as a signal may arrive between the command and the note. After it, as another thread may
        have waited meanwhile.
        """
        self._submitted = object()
        self.hooks.on_submit()

    def expose_handle(self) -> "cl.CommandQueue":
        """Return the pyopencl queue for code that does not call `mark_submitted`.

        As long as that code has a reference to it, in an array of pyopencl for example, each wait is a real one.
        """
        if self._exposure is None:
            self._exposure = _Exposure(cl.CommandQueue.from_int_ptr(self._own_handle.int_ptr, retain=True))
        self.hooks.on_submit()
        return self._exposure.hand_out()

    def is_same(self, queue: "cl.CommandQueue") -> bool:
        """Return whether a pyopencl queue is this one."""
        return bool(queue.int_ptr == self._own_handle.int_ptr)

    def wait_for_queue(self, other: "cl.CommandQueue | None", events: "Sequence[cl.Event]" = ()) -> None:
        """Let commands that are enqueued from now on run after those of another queue of the context, and events."""
        marks = list(events)
        if other is not None and not self.is_same(other):
            marks.append(cl.enqueue_marker(other))
            other.flush()
        if marks:
            self.note_unsupported("a barrier")
            self.mark_submitted()
            try:
                cl.enqueue_barrier(self.handle, wait_for=marks)
            finally:
                self.mark_submitted()

    def order_before(self, other: "cl.CommandQueue") -> None:
        """Let commands that another queue of the context gets from now on run after those of this one."""
        if not self.is_same(other):
            mark = cl.enqueue_marker(self.handle)
            self.handle.flush()
            cl.enqueue_barrier(other, wait_for=[mark])

    def expect_long_wait(self) -> None:
        """Note that the next wait may take long: a kernel may be compiled, or the last wait was long."""
        self.may_take_long = True

    def launch(self, kernel: "cl.Kernel", global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
        """Enqueue a kernel whose arguments are set."""
        self.mark_submitted()
        try:
            self._enqueue(self.handle, kernel, global_size, local_size)
        finally:
            self.mark_submitted()
        if self.synchronous:
            self.finish()

    def write(self, buffer: "cl.Buffer", array: np.ndarray, offset: int = 0) -> None:
        """Enqueue a copy of a contiguous host array into a buffer; keeps the array until the copy has ended.

        `buffer`: destination; `array`: must not change until the copy has ended; `offset`: first byte of the
        destination.
        """
        self.note_unsupported("an upload")
        self.mark_submitted()
        try:
            event = cl.enqueue_copy(self.handle, buffer, array, dst_offset=offset, is_blocking=self.synchronous)
        finally:
            self.mark_submitted()
        self._uploads[next(self._numbers)] = event
        if len(self._uploads) > _MAX_KEPT:
            for number, upload in list(self._uploads.items()):
                if upload.command_execution_status == cl.command_execution_status.COMPLETE:
                    self._uploads.pop(number, None)

    def start_write(self, buffer: "cl.Buffer", memory: np.ndarray, offset: int = 0) -> "cl.Event":
        """Enqueue a copy of host memory into a buffer; the caller keeps the event until the copy has ended."""
        self.note_unsupported("an upload")
        self.mark_submitted()
        try:
            return cl.enqueue_copy(self.handle, buffer, memory, dst_offset=offset, is_blocking=self.synchronous)
        finally:
            self.mark_submitted()

    def start_read(self, memory: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> "cl.Event":
        """Enqueue a copy of a buffer into host memory; the caller keeps the event until the copy has ended."""
        self.note_unsupported("a download")
        self.mark_submitted()
        try:
            return cl.enqueue_copy(self.handle, memory, buffer, src_offset=offset, is_blocking=False)
        finally:
            self.mark_submitted()

    def finish_for_download(self) -> None:
        """Wait until every command has run, before parts of a buffer are read by `start_read`."""
        self.note_unsupported("a download")
        self.finish()

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy bytes of a buffer into a contiguous host array; wait for it."""
        self.note_unsupported("a download")
        used = self._used_by_now() if self._host_arrays or self._used or self._uploads else []
        with self.hooks.exclusive_wait():
            if self.may_take_long:
                self._finish_in_another_thread()
            began = perf_counter()
            cl.enqueue_copy(self.handle, array, buffer, src_offset=offset, is_blocking=True)
        if perf_counter() - began > LONG_WAIT_SECONDS:
            self.may_take_long = True
        self._release(used)  # the queue is in order: everything before the read has run
        self.hooks.after_wait()

    def copy(
        self, target: "cl.Buffer", source: "cl.Buffer", count: int, target_offset: int = 0, source_offset: int = 0
    ) -> None:
        """Enqueue a copy of `count` bytes between two buffers of the context."""
        self.note_unsupported("a copy of a buffer")
        offsets = {"dst_offset": target_offset, "src_offset": source_offset}
        self.mark_submitted()
        try:
            cl.enqueue_copy(self.handle, target, source, byte_count=count, **offsets)
        finally:
            self.mark_submitted()

    # Objects that commands use

    def keep_until_wait(self, user: Any, owner: Any) -> None:
        """Keep the owner of memory, such as a host array, until the kernels that read it have run.

        They may be enqueued as long as the user of the memory exists, a buffer or a device array. So the owner is
        released by a wait that begins after the end of the user. An earlier wait does not cover kernels that are
        enqueued later.
        """
        self._host_arrays[next(self._numbers)] = ref(user), owner

    def keep_for(self, user: Any, owner: Any) -> None:
        """Keep the owner of memory as long as its user, and then until the commands enqueued before have run.

        Unlike that of `keep_until_wait` the user may live for long: waits do not look at it.
        """
        finalize(user, self._keep_after, owner).atexit = False

    def _keep_after(self, owner: Any) -> None:
        if self.has_pending:
            self._host_arrays[next(self._numbers)] = _gone, owner

    def limit_kept(self) -> None:
        """Keep what ended users of `keep_for` have left until a marker has run, if it is much."""
        ended = [number for number, (user, _) in list(self._host_arrays.items()) if user is _gone]
        if len(ended) > _MAX_KEPT:
            kept = [self._host_arrays.pop(number, None) for number in ended]
            self.keep_until_event(cl.enqueue_marker(self._own_handle), kept)
            self._own_handle.flush()

    def keep_until_event(self, event: "cl.Event", what: Any) -> None:
        """Keep an object that a command uses without a reference of the driver until the command has run."""
        self.mark_submitted()
        self._used[next(self._numbers)] = event, what
        if len(self._used) > _MAX_KEPT:
            for number, (other, _) in list(self._used.items()):
                if other.command_execution_status == cl.command_execution_status.COMPLETE:
                    self._used.pop(number, None)

    def _used_by_now(self) -> list[tuple[dict[int, Any], list[int]]]:
        """Return the objects that only commands enqueued so far use."""
        ended = [number for number, (buffer, _) in list(self._host_arrays.items()) if buffer() is None]
        return [(self._host_arrays, ended), (self._used, list(self._used)), (self._uploads, list(self._uploads))]

    @staticmethod
    def _release(used: "list[tuple[dict[int, Any], list[int]]]") -> None:
        """Release what commands have used; another thread may have done so already."""
        for kept, numbers in used:
            for number in numbers:
                kept.pop(number, None)

    def release_done(self) -> None:
        """Release what commands have used, if none is pending."""
        if self._host_arrays or self._uploads:
            arrays, _, uploads = self._used_by_now()
            if not self.has_pending:
                self._release([arrays, uploads])

    # Waits

    def flush(self) -> None:
        """Hand enqueued commands to the device; do not wait."""
        self.handle.flush()

    def finish(self) -> None:
        """Wait until every command has run."""
        self.note_unsupported("a wait")
        used = self._used_by_now() if self._host_arrays or self._used or self._uploads else []
        submitted = self._submitted  # commands that other threads enqueue meanwhile stay pending
        self.finish_raw()
        self._completed = submitted
        self._release(used)
        self.hooks.after_wait()

    def wait(self) -> None:
        """Wait until every command has run, if one may be pending."""
        if self.has_pending:
            self.finish()
        else:
            self.note_unsupported("a wait")

    def finish_raw(self) -> None:
        """Wait until every command has run; release nothing, and note nothing."""
        with self.hooks.exclusive_wait():
            if self.may_take_long:
                self._finish_in_another_thread()
                return
            began = perf_counter()
            self._finish()
            if perf_counter() - began > LONG_WAIT_SECONDS:
                self.may_take_long = True

    def _finish(self) -> None:
        self.handle.finish()

    def _finish_in_another_thread(self) -> None:
        """Wait in another thread: this one handles signals meanwhile."""
        began = perf_counter()
        in_another_thread(self._finish, self._keeps_thread)
        self.may_take_long = perf_counter() - began > LONG_WAIT_SECONDS

    def end_wait(self) -> None:
        """The caller has waited by other means: release what commands have used."""
        if self._host_arrays or self._uploads:
            self.release_done()
        self.hooks.after_wait()

    def is_captured(self) -> bool:
        """Return whether commands of the calling thread are captured."""
        return self.capture is not None and self.capture.is_active()

    def note_unsupported(self, command: str) -> None:
        """Note a command that is no launch, if launches are captured."""
        if self.capture is not None:
            self.capture.note_unsupported(command)
