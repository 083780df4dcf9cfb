"""The in-order queue of a context, and the objects that it keeps alive until its commands have run."""

from itertools import count
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.driver_hooks import DefaultQueueHooks
from pytensor_cl.runtime.interfaces import QueueHooks
from pytensor_cl.runtime.interrupts import LONG_WAIT_SECONDS, in_another_thread
from pytensor_cl.runtime.launch_capture import LaunchCapture

_MAX_KEPT = 64  # objects that are kept for commands, after which the objects of finished commands are released


class Queue:
    """An in-order command queue.

    `device`: the pyopencl device; `synchronous`: wait after each command, so that an error surfaces at the command that
    caused it; `hooks`: the driver's hooks; None: there are none; `handle`: the pyopencl queue; `capture`: the capture
    of launches that is under way; None if there is none; `may_take_long`: whether the next wait may take long: a driver
    compiles, or the last wait was long. This thread then handles signals while another one waits.
    """

    def __init__(
        self, context: "cl.Context", device: "cl.Device", synchronous: bool = False, hooks: QueueHooks | None = None
    ) -> None:
        self.handle = cl.CommandQueue(context, device)
        self.synchronous = synchronous
        self.capture: LaunchCapture | None = None
        self.hooks: QueueHooks = hooks or DefaultQueueHooks()
        # An object for the last submission, and for the last one that a thread has waited for. Two threads could get
        # the same number.
        self._submitted: object = None
        self._completed: object = None
        self._is_exposed = False
        self.may_take_long = False
        self._keeps_thread = not device.type & cl.device_type.CPU
        self._enqueue = cl.enqueue_nd_range_kernel
        # By number, so that several threads can add and remove entries, and a signal may arrive in between.
        self._numbers = count()
        # pyopencl's event of a host copy waits when it is destroyed: it is kept until the copy has ended.
        self._uploads: dict[int, cl.Event] = {}
        self._host_arrays: dict[int, tuple[ref[Any], Any]] = {}
        self._used: dict[int, tuple[cl.Event, Any]] = {}

    @property
    def has_pending(self) -> bool:
        """Whether a command may have been enqueued for which no thread has waited."""
        return self._is_exposed or self._submitted is not self._completed

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
        """Return the pyopencl queue for code that does not call `mark_submitted`."""
        self._is_exposed = True
        return self.handle

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

    # What commands use

    def keep_until_wait(self, user: Any, owner: Any) -> None:
        """Keep the owner of memory, such as a host array, until the kernels that read it have run.

        They may be enqueued as long as the user of the memory exists, a buffer or a device array. So the owner is
        released by a wait that begins after the end of the user. An earlier wait does not cover kernels that are
        enqueued later.
        """
        self._host_arrays[next(self._numbers)] = ref(user), owner

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

    def note_unsupported(self, command: str) -> None:
        """Note a command that is no launch, if launches are captured."""
        if self.capture is not None:
            self.capture.note_unsupported(command)
