"""The step of a replay that runs kernels."""

from collections.abc import Sequence
from threading import active_count
from typing import Any

from pytensor_cl.linker.replay.buffer_bindings import BufferBinding
from pytensor_cl.runtime.interfaces import LaunchSequence
from pytensor_cl.runtime.queue import Queue

__all__ = ["SequenceStep"]


class SequenceStep:
    """Runs a launch sequence.

    Parameters
    ----------
    queue
        Of the context.
    sequence
        Kernels whose arguments are set.
    bindings
        Of the buffers that the kernels use, where the driver does not know of them.
    keep
        Objects that must stay until the kernels have run.

    Attributes
    ----------
    is_waited_for
        Whether the kernels have run when the step ends.
    writes_shared
        Whether they may write the memory of a shared variable: kernels of other threads must come before or after them.
    """

    def __init__(
        self, queue: Queue, sequence: LaunchSequence, bindings: Sequence[BufferBinding], keep: Sequence[Any]
    ) -> None:
        self.sequence = sequence
        self._queue, self._bindings, self._keep = queue, bindings, keep
        self.is_waited_for = self.writes_shared = False

    def __len__(self) -> int:
        return len(self.sequence)

    @property
    def launches(self) -> int:
        """Number of OpenCL launches."""
        return self.sequence.launches

    def __call__(self) -> None:
        if self.is_waited_for and not (self.writes_shared and active_count() > 1):
            self.sequence.run_and_wait()
            return
        self.sequence.submit(self._keep, [binding.buffer for binding in self._bindings])
        if self.is_waited_for:
            self._queue.finish()
