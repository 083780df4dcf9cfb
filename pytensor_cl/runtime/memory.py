"""Device memory: a pool of buffers, so that steady state allocates nothing."""

from dataclasses import dataclass

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
    """

    active_bytes: int
    managed_bytes: int
    active_blocks: int
    held_blocks: int


class Memory:
    """The buffers of one context.

    Parameters
    ----------
    queue
        The context's queue; it is in order, so a buffer that was given back can be reused at once.
    info
        Facts of the device.
    """

    def __init__(self, queue: Queue, info: DeviceInfo) -> None:
        from pyopencl.tools import ImmediateAllocator, MemoryPool  # loading drivers waits until a context opens

        self._info = info
        self._pool = MemoryPool(ImmediateAllocator(queue.handle))
        self._allocate = self._pool.allocate

    def allocate(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Return a buffer of at least `nbytes` bytes; it goes back to the pool when nobody refers to it.

        Raises
        ------
        OutOfDeviceMemory
            More than the device can allocate at once, or than it has left.
        """
        if nbytes > self._info.max_allocation:
            raise OutOfDeviceMemory(self._refusal(nbytes))
        try:
            return self._allocate(nbytes or 1)
        except cl.MemoryError:
            self.trim()
        try:
            return self._allocate(nbytes or 1)
        except cl.MemoryError as error:
            raise OutOfDeviceMemory(self._refusal(nbytes)) from error

    def trim(self) -> None:
        """Give back to the device what no array uses."""
        self._pool.free_held()

    def statistics(self) -> MemoryStatistics:
        """Return what the pool holds now."""
        pool = self._pool
        return MemoryStatistics(pool.active_bytes, pool.managed_bytes, pool.active_blocks, pool.held_blocks)

    def _refusal(self, nbytes: int) -> str:
        info, held = self._info, self.statistics()
        return (
            f"{info.name} could not allocate {nbytes:,} bytes: at most {info.max_allocation:,} at once, "
            f"{info.global_memory:,} in all, of which arrays use {held.active_bytes:,} in {held.active_blocks} buffers"
        )
