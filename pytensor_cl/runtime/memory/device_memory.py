"""Device memory: pools of buffers, so that repeated calls allocate nothing."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from weakref import WeakSet

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.memory.arena import Arena
from pytensor_cl.runtime.memory.pool import BufferPool
from pytensor_cl.runtime.queue import Queue

_T = TypeVar("_T")

MANY_PARTS = 4096
"""Parts of the arena, a kilobyte each, that may be left of graphs that are gone."""


def is_lack_of_memory(error: BaseException) -> bool:
    """Return whether an error of a driver says that memory is lacking, or that a buffer is too large.

    pyopencl's ``MemoryError`` is CL_MEM_OBJECT_ALLOCATION_FAILURE only.
    """
    if "pyopencl" not in sys.modules or not isinstance(error, cl.Error):
        return False
    return isinstance(error, cl.MemoryError) or getattr(error, "code", 0) in _lacks()


@cache
def _lacks() -> tuple[int, ...]:
    codes = cl.status_code
    return codes.INVALID_BUFFER_SIZE, codes.OUT_OF_RESOURCES, codes.OUT_OF_HOST_MEMORY


@dataclass(frozen=True)
class MemoryStatistics:
    """Statistics of the pools."""

    active_bytes: int
    managed_bytes: int  # in use, or free and kept for reuse
    # active_blocks, held_blocks: number of buffers in use, and of free ones kept for reuse
    active_blocks: int
    held_blocks: int
    arena_bytes: int = 0  # memory of captured graphs; part of ``managed_bytes``


@dataclass(frozen=True)
class MemoryInfo:
    """The memory of a device, and what this process has of it.

    Attributes
    ----------
    device_bytes
        Memory of the device in all; of a CPU, what its driver grants of the host's memory.
    largest_bytes
        Bytes of the largest array that the device can hold.
    array_bytes
        Bytes of the arrays that exist: results, shared variables, and intermediate results of a running function.
    graph_bytes
        Bytes that captured graphs keep for their intermediate results.
    idle_bytes
        Bytes of freed arrays that are kept for new ones.
    """

    device_bytes: int
    largest_bytes: int
    array_bytes: int
    graph_bytes: int
    idle_bytes: int


class Memory:
    """The buffers of one context.

    `queue`: the context's queue. It is in order, so a free buffer can be reused at once. `flags`: ``CL_MEM_...`` of the
    buffers besides ``READ_WRITE``.
    """

    def __init__(
        self,
        queue: Queue,
        info: DeviceInfo,
        release_mappings: Callable[[], None] = lambda: None,
        on_allocation: Callable[[Any], object] = id,
        flags: int = 0,
    ) -> None:
        from pyopencl.tools import ImmediateAllocator  # loading drivers waits until a context opens

        self._info = info
        self._queue = queue
        self._release_mappings, self._on_allocation = release_mappings, on_allocation
        self._immediate = ImmediateAllocator(queue.handle, cl.mem_flags.READ_WRITE | flags)
        self.buffers = BufferPool(
            self._queue, self._immediate, info.global_memory, release_mappings, on_allocation, info.max_allocation
        )
        self._allocate = self.buffers.allocate
        self.arena = Arena(queue, info.max_allocation)
        self._users: WeakSet[Any] = WeakSet()

    def allocate(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Return a buffer of at least `nbytes` bytes. It returns to the pool with its last reference.

        Raises `OutOfDeviceMemory`: `nbytes` is more than the largest buffer of the device, or than the memory left.
        """
        self.check_size(nbytes)
        buffer = self._try_to_allocate(self._allocate, nbytes)
        if self._queue.capture is not None:
            self._queue.capture.note_allocation(buffer.int_ptr, nbytes)
        return buffer

    def _try_to_allocate(
        self, allocate: Callable[[int], "cl.MemoryObjectHolder"], nbytes: int
    ) -> "cl.MemoryObjectHolder":
        try:
            return allocate(nbytes or 1)
        except cl.Error as error:
            return self.retry_after_freeing(lambda: allocate(nbytes or 1), error, nbytes)

    def retry_after_freeing(self, action: Callable[[], _T], error: Exception, nbytes: int | None = None) -> _T:
        """Free memory and repeat an action that failed for lack of it.

        Raises `OutOfDeviceMemory`: the action fails also when all idle memory is released.
        """
        for free in (self.free_idle, self.trim):
            if not is_lack_of_memory(error):
                raise error
            self._end_capture()
            free()
            try:
                return action()
            except cl.Error as again:
                error = again
        if not is_lack_of_memory(error):
            raise error
        raise OutOfDeviceMemory(self.describe_failure(error if nbytes is None else nbytes)) from error

    # The arena

    def add_arena_user(self, user: Any) -> None:
        """Add an object with captured graphs in the arena.

        Its ``release_arena`` is called before the arena's buffers change, and its ``clear``, which drops the captured
        graphs, before they are released. Its ``range_count`` is the number of parts that its graphs use.
        """
        self._users.add(user)

    def reserve(self, extents: Sequence[int]) -> None:
        """Make the arena's buffers at least as large as `extents`. If they change, earlier parts are invalid.

        They change also where most of their parts are of graphs that are gone.

        Raises `OutOfDeviceMemory`: the device has not enough memory.
        """
        if self.arena.fits(extents) and not self._has_idle_parts():
            return
        for user in list(self._users):
            user.release_arena()
        self._release_mappings()
        self.arena.grow(extents, lambda nbytes: self._try_to_allocate(self._allocate_divisible, nbytes))

    def _has_idle_parts(self) -> bool:
        """Return whether most of many parts of the arena are used by no graph."""
        count = self.arena.part_count
        return count > MANY_PARTS and count > 2 * sum(user.range_count for user in list(self._users))

    def _allocate_divisible(self, nbytes: int) -> "cl.Buffer":
        held = self._immediate(nbytes)
        buffer = cl.Buffer.from_int_ptr(held.int_ptr, retain=True)  # the pool's type has no sub-buffers
        self._on_allocation(buffer)
        return buffer

    def allocate_divisible(self, nbytes: int) -> "cl.Buffer":
        """Return a buffer outside the pools, which may have sub-buffers.

        Raises `OutOfDeviceMemory`: the device has not enough memory.
        """
        return self._try_to_allocate(self._allocate_divisible, nbytes)

    def free_idle(self) -> None:
        """Release the free buffers that are kept for reuse. Captured graphs use none of them."""
        self._queue.finish_raw()
        self._release_mappings()
        self.buffers.free_idle()

    def _end_capture(self) -> None:
        """Make the present capture invalid: it identifies buffers by handles, which the driver reuses."""
        if self._queue.capture is not None:
            self._queue.capture.unsupported = "the device ran out of memory"

    def _free_arena(self) -> None:
        self._end_capture()
        for user in list(self._users):
            user.clear()
        self.arena.free()

    def trim(self) -> None:
        """Release all memory that no array uses, the arena too."""
        self._free_arena()
        self.free_idle()

    def statistics(self) -> MemoryStatistics:
        """Return the statistics of the pools."""
        pools, shared = list(self.buffers.pools()), self.arena.nbytes
        return MemoryStatistics(
            active_bytes=sum(p.active_bytes for p in pools),
            managed_bytes=sum(p.managed_bytes for p in pools) + shared,
            active_blocks=sum(p.active_blocks for p in pools),
            held_blocks=sum(p.held_blocks for p in pools),
            arena_bytes=shared,
        )

    def info(self) -> MemoryInfo:
        """Return what users are told of the memory."""
        held = self.statistics()
        return MemoryInfo(
            device_bytes=self._info.global_memory,
            largest_bytes=self._info.max_allocation,
            array_bytes=held.active_bytes,
            graph_bytes=held.arena_bytes,
            idle_bytes=held.managed_bytes - held.active_bytes - held.arena_bytes,
        )

    def check_size(self, nbytes: int) -> None:
        """Check a size against the largest buffer of the device.

        Raises `OutOfDeviceMemory`: the size is larger.
        """
        if nbytes > self._info.max_allocation:
            raise OutOfDeviceMemory(self.describe_failure(nbytes))

    def describe_failure(self, what: int | BaseException) -> str:
        """Return the message for a failed allocation of `what` bytes, or for the driver's error `what`."""
        info, held = self._info, self.statistics()
        action = f"allocate {what:,} bytes" if isinstance(what, int) else f"run a command ({what})"
        return (
            f"{info.name} could not {action}: at most {info.max_allocation:,} at once, "
            f"{info.global_memory:,} in all, of which arrays use {held.active_bytes:,} in {held.active_blocks} buffers"
        )
