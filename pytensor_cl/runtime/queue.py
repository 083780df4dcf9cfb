"""The in-order queue of a context, and what must stay alive until its commands have run."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cores import review
from pytensor_cl.runtime.recorder import Recorder
from pytensor_cl.runtime.standby import Standby

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

    Attributes
    ----------
    recorder
        Who listens to what is enqueued, if anybody does.
    standby
        Work-items that wait for more to do, if there may be any.
    """

    def __init__(self, context: "cl.Context", device: "cl.Device", synchronous: bool = False) -> None:
        self.handle = cl.CommandQueue(context, device)
        self.synchronous = synchronous
        self.recorder: Recorder | None = None
        self.standby: Standby | None = None
        self._latest: object = None  # stands for what was enqueued last; and for the last that somebody has waited for
        self._over: object = None
        self._is_shared = False
        self._enqueue = cl.enqueue_nd_range_kernel
        # pyopencl's event of a host copy waits when it is destroyed: keep it until the copy is over.
        self._uploads: list[cl.Event] = []
        self._borrowed: list[np.ndarray] = []
        self._held: list[tuple[cl.Event, Any]] = []

    @property
    def pending(self) -> bool:
        """Whether something may have been enqueued that nobody has waited for."""
        return self._is_shared or self._latest is not self._over

    def enqueued(self) -> None:
        """Note that something was enqueued; whoever does so himself says it.

        Before, as a signal may come between the command and the note, and after, as another thread may have waited.
        """
        self._latest = object()
        self._dismiss()

    def share(self) -> "cl.CommandQueue":
        """Return the driver's queue for others, who do not tell when they enqueue something."""
        self._is_shared = True
        return self.handle

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
        self._uploads.append(event)
        if len(self._uploads) > _MANY:
            done = cl.command_execution_status.COMPLETE
            self._uploads = [e for e in self._uploads if e.command_execution_status != done]

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy bytes of a buffer into a contiguous host array; returns when it is there."""
        self._tell("a download")
        borrowed, self._borrowed = self._borrowed, []  # what is added meanwhile is not over yet
        held, self._held = self._held, []
        with self._away():
            cl.enqueue_copy(self.handle, array, buffer, src_offset=offset, is_blocking=True)
        self._uploads.clear()  # in order: everything before the read has run
        review()
        del borrowed, held

    def keep(self, array: np.ndarray) -> None:
        """Keep a host array that kernels read alive until somebody has waited for them."""
        self._borrowed.append(array)

    def hold(self, event: "cl.Event", what: Any) -> None:
        """Keep what a command uses and the driver does not know of until the command has run."""
        self.enqueued()
        self._held.append((event, what))
        if len(self._held) > _MANY:
            done = cl.command_execution_status.COMPLETE
            self._held = [pair for pair in self._held if pair[0].command_execution_status != done]

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
        borrowed, self._borrowed = self._borrowed, []
        held, self._held = self._held, []
        latest = self._latest  # what is enqueued meanwhile is pending; this is, too, until the wait is over
        self.drain()
        self._over = latest
        self._uploads.clear()
        review()
        del borrowed, held

    def wait(self) -> None:
        """Wait until every command has run; where all have by now, those that stand by for the next call may stay."""
        if self.pending:
            self.finish()
        else:
            self._tell("a wait")

    def drain(self) -> None:
        """Wait until nothing runs, and leave it open what anybody may forget now."""
        with self._away():
            self.handle.finish()

    def settle(self) -> None:
        """Let go of what commands needed that have run; other threads may have enqueued more."""
        if not self.pending:
            self._borrowed = []
            self._uploads.clear()
        review()

    def _away(self) -> AbstractContextManager[None]:
        return nullcontext() if self.standby is None else self.standby.away()

    def _dismiss(self) -> None:
        if self.standby is not None:
            self.standby.dismiss()

    def _tell(self, what: str) -> None:
        if self.recorder is not None:
            self.recorder.other(what)
