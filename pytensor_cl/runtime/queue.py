"""The in-order queue of a context, and what must stay alive until its commands have run."""

from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.cores import review
from pytensor_cl.runtime.recorder import Recorder

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
    pending
        Whether something was enqueued that nobody has waited for.
    """

    def __init__(self, context: "cl.Context", device: "cl.Device", synchronous: bool = False) -> None:
        self.handle = cl.CommandQueue(context, device)
        self.synchronous = synchronous
        self.recorder: Recorder | None = None
        self.pending = False
        self._enqueue = cl.enqueue_nd_range_kernel
        # pyopencl's event of a host copy waits when it is destroyed: keep it until the copy is over.
        self._uploads: list[cl.Event] = []
        self._borrowed: list[np.ndarray] = []
        self._held: list[tuple[cl.Event, Any]] = []

    def launch(self, kernel: "cl.Kernel", global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> None:
        """Enqueue a kernel whose arguments are set."""
        self._enqueue(self.handle, kernel, global_size, local_size)
        self.pending = True
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
        event = cl.enqueue_copy(self.handle, buffer, array, dst_offset=offset, is_blocking=self.synchronous)
        self.pending = True
        self._uploads.append(event)
        if len(self._uploads) > _MANY:
            done = cl.command_execution_status.COMPLETE
            self._uploads = [e for e in self._uploads if e.command_execution_status != done]

    def read(self, array: np.ndarray, buffer: "cl.Buffer", offset: int = 0) -> None:
        """Copy bytes of a buffer into a contiguous host array; returns when it is there."""
        self._tell("a download")
        borrowed, self._borrowed = self._borrowed, []  # what is added meanwhile is not over yet
        held, self._held = self._held, []
        cl.enqueue_copy(self.handle, array, buffer, src_offset=offset, is_blocking=True)
        self._uploads.clear()  # in order: everything before the read has run
        review()
        del borrowed, held

    def keep(self, array: np.ndarray) -> None:
        """Keep a host array that kernels read alive until somebody has waited for them."""
        self._borrowed.append(array)

    def hold(self, event: "cl.Event", what: Any) -> None:
        """Keep what a command uses and the driver does not know of until the command has run."""
        self.pending = True
        self._held.append((event, what))
        if len(self._held) > _MANY:
            done = cl.command_execution_status.COMPLETE
            self._held = [pair for pair in self._held if pair[0].command_execution_status != done]

    def copy(
        self, target: "cl.Buffer", source: "cl.Buffer", count: int, target_offset: int = 0, source_offset: int = 0
    ) -> None:
        """Enqueue a copy of `count` bytes between two buffers of the context."""
        self._tell("a copy of a buffer")
        cl.enqueue_copy(
            self.handle, target, source, byte_count=count, dst_offset=target_offset, src_offset=source_offset
        )
        self.pending = True

    def flush(self) -> None:
        """Hand what was enqueued to the device; returns at once."""
        self.handle.flush()

    def finish(self) -> None:
        """Wait until every command has run."""
        self._tell("a wait")
        borrowed, self._borrowed = self._borrowed, []
        held, self._held = self._held, []
        self.pending = False  # what is enqueued meanwhile is
        self.handle.finish()
        self._uploads.clear()
        review()
        del borrowed, held

    def settle(self) -> None:
        """Let go of what commands needed that have run."""
        self._borrowed = []
        self._uploads.clear()
        review()

    def _tell(self, what: str) -> None:
        if self.recorder is not None:
            self.recorder.other(what)
