"""The in-order queue of a context, and what must stay alive until its commands have run."""

from itertools import count
from typing import Any
from weakref import ref

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.driver_hooks import DefaultQueueHooks
from pytensor_cl.runtime.interfaces import QueueHooks
from pytensor_cl.runtime.interrupts import in_another_thread
from pytensor_cl.runtime.launch_capture import LaunchCapture

__all__ = ["Queue"]

_MANY = 64  # pending uploads after which those that have finished are forgotten


class Queue:
    """An in-order command queue.

    Parameters
    ----------
    context
        The pyopencl context.
    device
        The pyopencl device.
    synchronous
        Wait after each command, so that an error surfaces at the command that caused it.
    hooks
        What the driver does where the queue is used; None does nothing.

    Attributes
    ----------
    recorder
        Who listens to what is enqueued, if anybody does.
    hooks
        What the driver does where the queue is used.
    """

    def __init__(
        self, context: "cl.Context", device: "cl.Device", synchronous: bool = False, hooks: QueueHooks | None = None
    ) -> None:
        self.handle = cl.CommandQueue(context, device)
        self.synchronous = synchronous
        self.recorder: LaunchCapture | None = None
        self.hooks: QueueHooks = hooks or DefaultQueueHooks()
        self._latest: object = None  # stands for what was enqueued last; and for the last that somebody has waited for
        self._over: object = None
        self._is_shared = False
        self._may_compile = False
        self._enqueue = cl.enqueue_nd_range_kernel
        # By numbers, so that several threads can add and remove entries, and a signal comes between two of these steps.
        self._numbers = count()
        # pyopencl's event of a host copy waits when it is destroyed: keep it until the copy is over.
        self._uploads: dict[int, cl.Event] = {}
        self._borrowed: dict[int, tuple[ref[cl.Buffer], np.ndarray]] = {}
        self._held: dict[int, tuple[cl.Event, Any]] = {}

    @property
    def pending(self) -> bool:
        """Whether something may have been enqueued that nobody has waited for."""
        return self._is_shared or self._latest is not self._over

    def enqueued(self) -> None:
        """Note that something was enqueued; whoever does so himself says it.

        Before, as a signal may come between the command and the note, and after, as another thread may have waited.
        """
        self._latest = object()
        self.hooks.on_submit()

    def share(self) -> "cl.CommandQueue":
        """Return the driver's queue for others, who do not tell when they enqueue something."""
        self._is_shared = True
        return self.handle

    def expect_compilation(self) -> None:
        """Note that a kernel is launched for the first time: a driver may compile it before the next wait ends."""
        self._may_compile = True

    def launch(self, kernel: "cl.Kernel", global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
        """Enqueue a kernel whose arguments are set."""
        self.enqueued()
        try:
            self._enqueue(self.handle, kernel, global_size, local_size)
        finally:
            self.enqueued()
        if self.synchronous:
            self.finish()

    def write(self, buffer: "cl.Buffer", array: np.ndarray, offset: int = 0) -> None:
        """Enqueue a copy of a contiguous host array into a buffer; keeps the array alive until it is over.

        Parameters
        ----------
        buffer
            Destination.
        array
            Must not change until the copy is over.
        offset
            First byte of the destination.
        """
        self._tell("an upload")
        self.enqueued()
        try:
            event = cl.enqueue_copy(self.handle, buffer, array, dst_offset=offset, is_blocking=self.synchronous)
        finally:
            self.enqueued()
        self._uploads[next(self._numbers)] = event
        if len(self._uploads) > _MANY:
            for number, upload in list(self._uploads.items()):
                if upload.command_execution_status == cl.command_execution_status.COMPLETE:
                    self._uploads.pop(number, None)

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy bytes of a buffer into a contiguous host array; returns when it is there."""
        self._tell("a download")
        over = self._used_before()
        with self.hooks.exclusive_wait():
            if self._may_compile:
                self._finish_new_kernels()
            cl.enqueue_copy(self.handle, array, buffer, src_offset=offset, is_blocking=True)
        self._drop(over)  # in order: everything before the read has run
        self.hooks.after_wait()

    def keep(self, buffer: "cl.Buffer", array: np.ndarray) -> None:
        """Keep a host array that is the memory of a buffer until the kernels that read it have run.

        They may be enqueued as long as there is the buffer, so a wait drops the array if it began after the end of
        the buffer: others, of this thread or another one, tell nothing about kernels that are enqueued later.
        """
        self._borrowed[next(self._numbers)] = ref(buffer), array

    def hold(self, event: "cl.Event", what: Any) -> None:
        """Keep what a command uses and the driver does not know of until the command has run."""
        self.enqueued()
        self._held[next(self._numbers)] = event, what
        if len(self._held) > _MANY:
            for number, (other, _) in list(self._held.items()):
                if other.command_execution_status == cl.command_execution_status.COMPLETE:
                    self._held.pop(number, None)

    def _used_before(self) -> list[tuple[dict[int, Any], list[int]]]:
        """Return what only those commands use that have been enqueued by now."""
        ended = [number for number, (buffer, _) in list(self._borrowed.items()) if buffer() is None]
        return [(self._borrowed, ended), (self._held, list(self._held)), (self._uploads, list(self._uploads))]

    @staticmethod
    def _drop(used: "list[tuple[dict[int, Any], list[int]]]") -> None:
        """Let go of what commands have used; another thread may have done so already."""
        for kept, numbers in used:
            for number in numbers:
                kept.pop(number, None)

    def copy(
        self, target: "cl.Buffer", source: "cl.Buffer", count: int, target_offset: int = 0, source_offset: int = 0
    ) -> None:
        """Enqueue a copy of `count` bytes between two buffers of the context."""
        self._tell("a copy of a buffer")
        offsets = {"dst_offset": target_offset, "src_offset": source_offset}
        self.enqueued()
        try:
            cl.enqueue_copy(self.handle, target, source, byte_count=count, **offsets)
        finally:
            self.enqueued()

    def flush(self) -> None:
        """Hand what was enqueued to the device; returns at once."""
        self.handle.flush()

    def finish(self) -> None:
        """Wait until every command has run."""
        self._tell("a wait")
        over = self._used_before()
        latest = self._latest  # what is enqueued meanwhile is pending; this is, too, until the wait is over
        self.drain()
        self._over = latest
        self._drop(over)
        self.hooks.after_wait()

    def wait(self) -> None:
        """Wait until every command has run; where all have by now, those that stand by for the next call may stay."""
        if self.pending:
            self.finish()
        else:
            self._tell("a wait")

    def drain(self) -> None:
        """Wait until nothing runs, and leave it open what anybody may forget now."""
        with self.hooks.exclusive_wait():
            if self._may_compile:
                self._finish_new_kernels()
            else:
                self._finish()

    def _finish(self) -> None:
        self.handle.finish()

    def _finish_new_kernels(self) -> None:
        """Wait in another thread: this one handles signals while the driver compiles."""
        in_another_thread(self._finish)
        self._may_compile = False

    def settle(self) -> None:
        """End a wait of another kind: let go of what commands needed that have run."""
        self.drop_used()
        self.hooks.after_wait()

    def drop_used(self) -> None:
        """Let go of what commands needed if nothing is pending."""
        if self._borrowed or self._uploads:
            borrowed, _, uploads = self._used_before()
            if not self.pending:
                self._drop([borrowed, uploads])

    def _tell(self, what: str) -> None:
        if self.recorder is not None:
            self.recorder.other(what)
