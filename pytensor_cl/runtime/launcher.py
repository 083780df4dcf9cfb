"""Launch sequences by the OpenCL standard: each kernel is enqueued on its own, or merged with others."""

import logging
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from pytensor_cl.errors import CompilationError
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.launch_capture import Launch
from pytensor_cl.runtime.merged_kernels import Part, access_modes, merged_source, ndrange, part_of
from pytensor_cl.runtime.program import Kernel, ProgramCache
from pytensor_cl.runtime.queue import Queue

_log = logging.getLogger("pytensor_cl")


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


class _MergeableKernel(_EnqueuedKernel):
    """A kernel that may become a part of a merged one, which then has its arguments."""

    def __init__(self, launch: Launch, kernel: Kernel, part: Part) -> None:
        super().__init__(launch, kernel)
        self.part = part
        self._first = 0  # index of its first argument
        self._constants: dict[int, Any] = {}

    def bind(self, index: int, buffer: Any) -> None:
        """Set a pointer argument that stays the same in all runs."""
        self._constants[index] = buffer
        self._set_buffer(index, buffer)

    @property
    def set_buffer(self) -> Callable[[int, Any], None]:
        """Sets a pointer argument."""
        return self._set_buffer

    @property
    def set_bytes(self) -> Callable[[int, Any], None]:
        """Sets an argument that is passed by value."""
        return self._set_bytes

    def _set_buffer(self, index: int, buffer: Any) -> None:
        self._kernel.set_buffer(self._first + index, buffer)

    def _set_bytes(self, index: int, value: Any) -> None:
        self._kernel.set_bytes(self._first + index, value)

    def move_to(self, merged: Kernel, first: int) -> int:
        """Take the arguments of a merged kernel from number `first` on; return the number after them."""
        self._kernel, self._first = merged, first
        for index, argument in enumerate(self.launch.arguments):
            if isinstance(argument, bytes | np.generic):
                self._set_bytes(index, argument)
        for index, buffer in self._constants.items():
            self._set_buffer(index, buffer)
        merged.set_bytes(first + len(self.launch.arguments), self.part.grid)
        return first + len(self.launch.arguments) + 1


Enqueue = tuple["cl.Kernel", tuple[int, ...], tuple[int, ...] | None]
"""A kernel and its NDRange."""


class EnqueueSequence:
    """Kernels that are enqueued one after the other.

    `queue`: the in-order queue of their context; `enqueues`: what is enqueued, fewer than the kernels if some are
    merged.
    """

    def __init__(self, queue: Queue, kernels: Sequence[_EnqueuedKernel], enqueues: Sequence[Enqueue]) -> None:
        self._queue, self._kernels, self._enqueues = queue, list(kernels), list(enqueues)
        self.launches = len(enqueues)

    def __len__(self) -> int:
        return len(self._kernels)

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
    """Makes and runs sequences in which each kernel is enqueued on its own, or merged with others.

    Works with every driver. `merges`: whether small kernels may be merged; `device`: runs them.
    """

    uses_addresses = False

    def __init__(self, programs: ProgramCache, queue: Queue, device: "cl.Device", merges: bool) -> None:
        self._programs, self._queue, self._device, self.merges = programs, queue, device, merges

    def begin(self, launches: Sequence[Launch], is_waited_for: bool) -> "EnqueueLauncher":
        """Return the launcher itself."""
        return self

    def access_modes(self, launch: Launch) -> str:
        """Return the access modes of a launch's arguments; pointers may be written if the text is not known."""
        source = self._programs.source_of(launch.kernel)
        modes = None if source is None else access_modes(source, launch.kernel.function_name)
        if modes is not None and len(modes) == len(launch.arguments):
            return modes
        return "".join("v" if isinstance(a, bytes | np.generic) else "w" for a in launch.arguments)

    def part_of(self, launch: Launch) -> Part | None:
        """Return a launch as a part of a merged one; None if it cannot be one."""
        source = self._programs.source_of(launch.kernel) if self.merges else None
        return None if source is None else part_of(launch, source, launch.kernel.function_name)

    def add(self, launch: Launch) -> _EnqueuedKernel:
        """Return a new kernel for a launch, with the launch's by-value arguments and no buffers."""
        kernel, part = self._programs.clone(launch.kernel), self.part_of(launch)
        return _EnqueuedKernel(launch, kernel) if part is None else _MergeableKernel(launch, kernel, part)

    def finish(
        self,
        kernels: Sequence[_EnqueuedKernel],
        depends_on: Sequence[int],
        groups: Sequence[Sequence[int]] | None = None,
    ) -> EnqueueSequence:
        """Return a sequence; the queue is in order, so dependencies do not matter.

        `groups`: indices of the kernels in the order in which they run; those of a group are merged. None: each kernel
        is enqueued on its own.
        """
        found = [[kernels[k] for k in group] for group in groups or [[k] for k in range(len(kernels))]]
        several = [group for group in found if len(group) > 1]
        merged = dict(zip(map(id, several), self._merged(several), strict=True))
        enqueues: list[Enqueue] = []
        for group in found:
            one = merged.get(id(group))
            launches = (k.launch for k in group)
            enqueues += [(k.kernel, k.global_size, k.local_size) for k in launches] if one is None else [one]
        return EnqueueSequence(self._queue, kernels, enqueues)

    def _merged(self, groups: Sequence[Sequence[Any]]) -> list[Enqueue | None]:
        """Return merged kernels with the arguments of their parts; None where the driver cannot build one."""
        sources = [merged_source([kernel.part for kernel in group]) for group in groups]
        try:
            self._programs.build(sources)
            built = [self._programs.kernel(source) for source in sources]
        except CompilationError:
            _log.warning("merged kernels were not built; they run one by one", exc_info=True)
            return [None] * len(groups)
        found: list[Enqueue | None] = []
        for group, kernel in zip(groups, built, strict=True):
            global_size, local_size = ndrange([part.part for part in group])
            if kernel.max_work_group_size(self._device) < prod(local_size):
                found.append(None)
                continue
            first = 0
            for part in group:
                first = part.move_to(kernel, first)
            kernel.null_trailing_arguments(first)
            found.append((kernel.handle, global_size, local_size))
        return found
