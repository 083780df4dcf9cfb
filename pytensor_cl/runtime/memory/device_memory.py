"""Device memory: pools of buffers, so that steady state allocates nothing."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

from pytensor_cl.errors import OutOfDeviceMemory
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.memory.arena import Arena
from pytensor_cl.runtime.memory.pool import BufferPool
from pytensor_cl.runtime.queue import Queue

__all__ = ["Memory", "MemoryStatistics", "is_lack_of_memory"]

_T = TypeVar("_T")


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether a driver says that it has no memory for something, or none that is as large.

    pyopencl's ``MemoryError`` is CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES and CL_OUT_OF_HOST_MEMORY.
    """
    if "pyopencl" not in sys.modules or not isinstance(error, cl.Error):
        return False
    return isinstance(error, cl.MemoryError) or getattr(error, "code", 0) == cl.status_code.INVALID_BUFFER_SIZE


@dataclass(frozen=True)
class MemoryStatistics:
    """What the pools hold.

    Attributes
    ----------
    active_bytes
        In use by arrays.
    managed_bytes
        In use or held for reuse.
    active_blocks, held_blocks
        Number of buffers in use, and waiting for reuse.
    arena_bytes
        What recorded functions compute in; part of ``managed_bytes``.
    """

    active_bytes: int
    managed_bytes: int
    active_blocks: int
    held_blocks: int
    arena_bytes: int = 0


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
    fresh
        Is told of large buffers that the device has just allocated.
    """

    def __init__(
        self,
        queue: Queue,
        info: DeviceInfo,
        forget: Callable[[], None] = lambda: None,
        fresh: Callable[[Any], object] = id,
    ) -> None:
        from pyopencl.tools import ImmediateAllocator  # loading drivers waits until a context opens

        self._info = info
        self._queue = queue
        self._forget, self._fresh = forget, fresh
        self.buffers = BufferPool(queue, info.global_memory, forget, fresh, info.max_allocation)
        self._allocate = self.buffers.allocate
        self._immediate = ImmediateAllocator(queue.handle)
        self.arena = Arena(queue, info.max_allocation)
        self._users: WeakSet[Any] = WeakSet()

    def allocate(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Return a buffer of at least `nbytes` bytes; it goes back to the pool when nobody refers to it.

        Raises
        ------
        OutOfDeviceMemory
            More than the device can allocate at once, or than it has left.
        """
        self.refuse(nbytes)
        buffer = self._take(self._allocate, nbytes)
        if self._queue.capture is not None:
            self._queue.capture.note_allocation(buffer.int_ptr, nbytes)
        return buffer

    def _take(self, allocate: Callable[[int], "cl.MemoryObjectHolder"], nbytes: int) -> "cl.MemoryObjectHolder":
        try:
            return allocate(nbytes or 1)
        except cl.Error as error:
            return self.insist(lambda: allocate(nbytes or 1), error, nbytes)

    def insist(self, action: Callable[[], _T], error: Exception, nbytes: int | None = None) -> _T:
        """Do again, with more room, what the device had no memory for.

        Parameters
        ----------
        action
            What is done; returns what that returns.
        error
            What it has raised.
        nbytes
            Size of what it allocates, if that is one buffer.

        Raises
        ------
        OutOfDeviceMemory
            There is still no memory; `error` itself is raised if it is another one.
        """
        for make_room in (self.give_back, self.trim):
            if not is_lack_of_memory(error):
                raise error
            self._stop_recording()
            make_room()
            try:
                return action()
            except cl.Error as again:
                error = again
        if not is_lack_of_memory(error):
            raise error
        raise OutOfDeviceMemory(self.refusal(error if nbytes is None else nbytes)) from error

    # What recordings compute in.

    def serve(self, user: Any) -> None:
        """Note who uses parts of the arena: ``release_arena`` makes it drop them, ``clear`` forget its recordings."""
        self._users.add(user)

    def reserve(self, extents: Sequence[int]) -> None:
        """Make the arena large enough; parts of it that were handed out are void if it was not.

        Raises
        ------
        OutOfDeviceMemory
            It cannot be.
        """
        if self.arena.fits(extents):
            return
        for user in list(self._users):
            user.release_arena()
        self._forget()
        self.arena.grow(extents, lambda nbytes: self._take(self._whole, nbytes))

    def _whole(self, nbytes: int) -> "cl.Buffer":
        held = self._immediate(nbytes)
        whole = cl.Buffer.from_int_ptr(held.int_ptr, retain=True)  # has parts, which the pool's type has not
        self._fresh(whole)
        return whole

    def give_back(self) -> None:
        """Give back to the device what is held for reuse: recordings need none of it."""
        self._queue.finish_raw()
        self._forget()
        self.buffers.free_idle()

    def _stop_recording(self) -> None:
        """Recorders know buffers by handles, which the driver uses again for others."""
        if self._queue.capture is not None:
            self._queue.capture.unsupported = "the device ran out of memory"

    def _drop_arena(self) -> None:
        self._stop_recording()
        for user in list(self._users):
            user.clear()
        self.arena.free()

    def trim(self) -> None:
        """Give back to the device what no array uses."""
        self._drop_arena()
        self.give_back()

    def statistics(self) -> MemoryStatistics:
        """Return what the pools hold now."""
        pools, shared = list(self.buffers.pools()), self.arena.nbytes
        return MemoryStatistics(
            active_bytes=sum(p.active_bytes for p in pools),
            managed_bytes=sum(p.managed_bytes for p in pools) + shared,
            active_blocks=sum(p.active_blocks for p in pools),
            held_blocks=sum(p.held_blocks for p in pools),
            arena_bytes=shared,
        )

    def refuse(self, nbytes: int) -> None:
        """Raise an error if a buffer of so many bytes is larger than any can be.

        Raises
        ------
        OutOfDeviceMemory
            It is.
        """
        if nbytes > self._info.max_allocation:
            raise OutOfDeviceMemory(self.refusal(nbytes))

    def refusal(self, what: int | BaseException) -> str:
        """Say that the device has no room for so many bytes, or for what made the driver raise an error."""
        info, held = self._info, self.statistics()
        told = f"allocate {what:,} bytes" if isinstance(what, int) else f"run a command ({what})"
        return (
            f"{info.name} could not {told}: at most {info.max_allocation:,} at once, "
            f"{info.global_memory:,} in all, of which arrays use {held.active_bytes:,} in {held.active_blocks} buffers"
        )
