"""Device memory: a pool of buffers, so that steady state allocates nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.queue import Queue

__all__ = ["Memory", "MemoryStatistics"]


@dataclass(frozen=True)
class MemoryStatistics:
    """What a pool holds.

    Attributes
    ----------
    active_bytes
        In use by arrays.
    managed_bytes
        In use or held for reuse.
    active_blocks, held_blocks
        Number of buffers in use, and waiting for reuse.
    scratch_bytes
        What recorded functions compute in; part of ``managed_bytes``.
    """

    active_bytes: int
    managed_bytes: int
    active_blocks: int
    held_blocks: int
    scratch_bytes: int = 0


class Memory:
    """The buffers of one context.

    Parameters
    ----------
    queue
        The context's queue; it is in order, so a buffer that was given back can be reused at once.
    info
        Facts of the device.
    forget
        Makes others let go of buffers that nobody uses.
    """

    def __init__(self, queue: Queue, info: DeviceInfo, forget: Callable[[], None] = lambda: None) -> None:
        from pyopencl.tools import ImmediateAllocator, MemoryPool  # loading drivers waits until a context opens

        self._info = info
        self._queue = queue
        self._forget = forget
        self._new_pool = lambda: MemoryPool(ImmediateAllocator(queue.handle))
        self._pool = self._new_pool()
        self._allocate = self._pool.allocate
        self._scratch = self._new_pool()
        self._users: WeakSet[Any] = WeakSet()

    def allocate(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Return a buffer of at least `nbytes` bytes; it goes back to the pool when nobody refers to it.

        Raises
        ------
        OutOfDeviceMemory
            More than the device can allocate at once, or than it has left.
        """
        if nbytes > self._info.max_allocation:
            raise OutOfDeviceMemory(self._refusal(nbytes))
        recorder = self._queue.recorder
        if recorder is not None and recorder.hears():
            buffer = self._take(self._scratch.allocate, nbytes)
            recorder.allocated(buffer.int_ptr, nbytes)
            return buffer
        return self._take(self._allocate, nbytes)

    def _take(self, allocate: Callable[[int], "cl.MemoryObjectHolder"], nbytes: int) -> "cl.MemoryObjectHolder":
        try:
            return allocate(nbytes or 1)
        except cl.MemoryError:
            self.trim()
        try:
            return allocate(nbytes or 1)
        except cl.MemoryError as error:
            raise OutOfDeviceMemory(self._refusal(nbytes)) from error

    # What recordings write to: blocks that nobody refers to between two calls, so that all recordings can share them.

    def serve(self, user: Any) -> None:
        """Note who uses the scratch blocks: its ``clear`` is called when they go."""
        self._users.add(user)

    def scratch_is_free(self) -> bool:
        """Whether no array holds a scratch block; if one does, recordings begin again with new blocks."""
        if not self._scratch.active_blocks:
            return True
        self._drop_scratch()
        return False

    def _drop_scratch(self) -> None:
        if self._queue.recorder is not None:
            self._queue.recorder.trouble = "the device ran out of memory"
        for user in list(self._users):
            user.clear()
        self._scratch.free_held()
        self._scratch = self._new_pool()

    def trim(self) -> None:
        """Give back to the device what no array uses."""
        self._drop_scratch()
        self._forget()
        self._pool.free_held()

    def statistics(self) -> MemoryStatistics:
        """Return what the pool holds now."""
        pool, scratch = self._pool, self._scratch
        return MemoryStatistics(
            active_bytes=pool.active_bytes,
            managed_bytes=pool.managed_bytes + scratch.managed_bytes,
            active_blocks=pool.active_blocks,
            held_blocks=pool.held_blocks,
            scratch_bytes=scratch.managed_bytes,
        )

    def _refusal(self, nbytes: int) -> str:
        info, held = self._info, self.statistics()
        return (
            f"{info.name} could not allocate {nbytes:,} bytes: at most {info.max_allocation:,} at once, "
            f"{info.global_memory:,} in all, of which arrays use {held.active_bytes:,} in {held.active_blocks} buffers"
        )
