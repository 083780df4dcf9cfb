"""Copies of whole stretches of memory."""

from threading import Lock

import numpy as np

from pytensor_cl.codegen.template import kernel_source, render
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.program import Kernel, ProgramCache
from pytensor_cl.runtime.queue import Queue

PAST_CACHE = 24 << 20
"""Bytes read and written from which results are stored past the cache: little of them would stay there."""

_WORTH_A_KERNEL = 1 << 20  # bytes


class Copies:
    """Copies between buffers of a context.

    A CPU driver's own copy may be a ``memcpy`` by one thread (PoCL), half as fast as all threads together: there a
    kernel copies what is large.
    """

    def __init__(self, queue: Queue, programs: ProgramCache, info: DeviceInfo) -> None:
        self._queue, self._programs = queue, programs
        self._smallest = _WORTH_A_KERNEL if info.schedule == "cpu" else info.global_memory
        self._work_items = 4 * info.compute_units
        self._kernel: Kernel | None = None
        self._lock = Lock()  # a kernel holds its arguments between two calls of the driver

    def start(self, target: "cl.Buffer", source: "cl.Buffer", begin: int, count: int) -> None:
        """Enqueue a copy of `count` bytes of `source`, from byte `begin`, to the beginning of another buffer."""
        if count < self._smallest:
            self._queue.copy(target, source, count, 0, begin)
            return
        is_large = np.int32(2 * count >= PAST_CACHE)
        with self._lock:
            if self._kernel is None:
                self._kernel = self._programs.kernel(
                    kernel_source("runtime/copy_bytes", preambles=(render("common/non_temporal"),))
                )
            arguments = target, source, np.int64(begin), np.int64(count), is_large
            self._kernel.launch(self._queue, (self._work_items,), (1,), *arguments)
