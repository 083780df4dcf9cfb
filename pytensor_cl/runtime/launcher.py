"""Launch sequences by the OpenCL standard: each kernel is enqueued on its own."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.program import Kernel, ProgramCache
from pytensor_cl.runtime.queue import Queue


class _EnqueuedKernel:
    """A kernel object that a sequence enqueues.

    `kernel`: kernel object of the same function, with arguments of its own.
    """

    def __init__(self, launch: Launch, kernel: Kernel) -> None:
        self.launch = launch._replace(kernel=kernel.handle)
        self._kernel = kernel
        kernel.null_trailing_arguments(len(launch.arguments))
        for index, argument in enumerate(launch.arguments):
            if isinstance(argument, bytes | np.generic):
                kernel.set_bytes(index, argument)

    @property
    def access_modes(self) -> str:
        """All pointers may be written: OpenCL has no query for it."""
        return "".join("v" if isinstance(a, bytes | np.generic) else "w" for a in self.launch.arguments)

    def bind(self, index: int, buffer: Any) -> None:
        """Set a pointer argument that stays the same in all runs."""
        self._kernel.set_buffer(index, buffer)

    @property
    def set_buffer(self) -> Callable[[int, Any], None]:
        """Sets a pointer argument."""
        return self._kernel.set_buffer

    @property
    def set_bytes(self) -> Callable[[int, Any], None]:
        """Sets an argument that is passed by value."""
        return self._kernel.set_bytes

    def argument_word(self, index: int) -> None:
        """Return None: arguments are buffers, not addresses."""


class EnqueueSequence:
    """Kernels that are enqueued one after the other.

    `queue`: the in-order queue of their context.
    """

    def __init__(self, queue: Queue, kernels: Sequence[_EnqueuedKernel]) -> None:
        self._queue, self._kernels = queue, list(kernels)
        self._enqueues = [(k.launch.kernel, k.launch.global_size, k.launch.local_size) for k in kernels]
        self.launches = len(kernels)

    def __len__(self) -> int:
        return len(self._enqueues)

    def submit(self, keep: Sequence[Any], buffers: Sequence[Any]) -> None:
        """Enqueue the kernels; the driver keeps their buffers."""
        enqueue, queue = cl.enqueue_nd_range_kernel, self._queue
        queue.mark_submitted()
        try:
            for kernel, global_size, local_size in self._enqueues:
                enqueue(queue.handle, kernel, global_size, local_size)
        finally:
            queue.mark_submitted()

    def run_and_wait(self) -> None:
        """Enqueue the kernels, and wait for all that was enqueued."""
        self.submit((), ())
        self._queue.finish()


class EnqueueLauncher:
    """Makes and runs sequences in which each kernel is enqueued on its own; works with every driver."""

    uses_addresses = False

    def __init__(self, programs: ProgramCache, queue: Queue) -> None:
        self._programs, self._queue = programs, queue

    def begin(self, launches: Sequence[Launch], is_waited_for: bool) -> "EnqueueLauncher":
        """Return the launcher itself."""
        return self

    def add(self, launch: Launch) -> _EnqueuedKernel:
        """Return a new kernel for a launch, with the launch's by-value arguments and no buffers."""
        return _EnqueuedKernel(launch, self._programs.clone(launch.kernel))

    def finish(self, kernels: Sequence[_EnqueuedKernel], depends_on: Sequence[int]) -> EnqueueSequence:
        """Return a sequence; the queue is in order, so dependencies do not matter."""
        return EnqueueSequence(self._queue, kernels)
