"""Pools of device buffers: what comes back is used again, and what nobody needs any more goes back to the device."""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.queue import Queue

__all__ = ["BufferPool"]

LARGE = 1 << 20
"""Bytes: smaller buffers share one pool."""
WINDOW = 256
"""Allocations, or calls, after which is looked for large buffers that were idle all the time."""
SHARE = 8
"""An eighth of the device's memory may be idle when more of it is needed."""


class _SizeBin:
    """The large buffers of about one size.

    Attributes
    ----------
    spare
        How many were idle all the time since the window began.
    windows
        How many windows in a row left some idle.
    was_emptied
        Idle buffers went back to the device: if more are needed next, that was too soon.
    """

    __slots__ = ("pool", "size", "spare", "was_emptied", "windows")

    def __init__(self, pool: Any, nbytes: int) -> None:
        self.pool = pool
        self.size = pool.alloc_size(pool.bin_number(nbytes))
        self.spare = self.windows = 0
        self.was_emptied = False

    def begin(self) -> int:
        """Begin a window; return how many windows in a row have left some buffers idle."""
        self.windows = self.windows + 1 if self.spare else 0
        return self.windows

    def free(self, count: int) -> None:
        """Give some of the idle buffers back to the device."""
        kept = [self.pool.allocate(self.size) for _ in range(self.pool.held_blocks - count)]
        self.pool.free_held()
        del kept
        self.windows, self.was_emptied = 0, True


class BufferPool:
    """Allocates buffers, and keeps those that come back for a while.

    Large buffers go back to the device when they were idle through a window of allocations; and all that are idle when
    they are more than a share of the memory and the device is asked for yet another one. If one of their size is needed
    next, that was too soon: from then on windows and share are twice as large. So functions that are called in any
    rhythm soon find what they need. No clock is read, and nothing happens while nobody allocates.

    Parameters
    ----------
    queue
        The context's queue.
    memory
        Bytes of the device.
    forget
        Makes others let go of buffers that nobody uses.
    fresh
        Is told of large buffers that the device has just allocated.
    largest
        Bytes that the device allocates at once.

    Attributes
    ----------
    patience
        Windows through which large buffers may be idle; the share grows with it.
    """

    def __init__(
        self,
        queue: Queue,
        memory: int,
        forget: Callable[[], None],
        fresh: Callable[[Any], object],
        largest: int = sys.maxsize,
    ) -> None:
        self._queue = queue
        self._largest = largest
        self._forget, self._fresh = forget, fresh
        self._small = self._new_pool()
        self._allocate_small = self._small.allocate
        self._shelves: dict[int, _SizeBin] = {}
        self._limit = memory // SHARE
        self._left = WINDOW
        self.patience = 1

    def _new_pool(self) -> Any:
        from pyopencl.tools import ImmediateAllocator, MemoryPool  # loading drivers waits until a context opens

        return MemoryPool(ImmediateAllocator(self._queue.handle))

    def allocate(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Return a buffer of at least `nbytes` bytes, more than 0."""
        self._left -= 1
        if self._left < 0:
            self._tidy()
        return self._allocate_small(nbytes) if nbytes < LARGE else self._allocate_large(nbytes)

    def tick(self, calls: int = 1) -> None:
        """Count calls as allocations: of small arrays they may make none."""
        self._left -= calls
        if self._left < 0:
            self._tidy()

    def _allocate_large(self, nbytes: int) -> "cl.MemoryObjectHolder":
        number = self._small.bin_number(nbytes)
        if self._small.alloc_size(number) > self._largest:  # the pool would round it up to more than there can be
            return self._allocate_apart(nbytes)
        shelf = self._shelves.get(number)
        if shelf is None:
            shelf = self._shelves.setdefault(number, _SizeBin(self._new_pool(), nbytes))
        held = shelf.pool.held_blocks
        if not held:
            self._grow(shelf)
        elif held <= shelf.spare:
            shelf.spare = held - 1
        buffer = shelf.pool.allocate(nbytes)
        if not held:
            self._fresh(buffer)
        return buffer

    def _allocate_apart(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Allocate a buffer that goes back to the device at once when nobody needs it."""
        from pyopencl.tools import ImmediateAllocator

        self._give_back({s: s.pool.held_blocks for s in self._shelves.values()})
        buffer = ImmediateAllocator(self._queue.handle)(nbytes)
        self._fresh(buffer)
        return buffer

    def _grow(self, shelf: _SizeBin) -> None:
        """Prepare for asking the device for one more buffer."""
        if shelf.was_emptied:
            self.patience, shelf.was_emptied = 2 * self.patience, False
        if sum(p.managed_bytes - p.active_bytes for p in self.pools()) > self._limit * self.patience:
            self._give_back({s: s.pool.held_blocks for s in self._shelves.values()})

    def _tidy(self) -> None:
        """End a window."""
        self._left, shelves = WINDOW, list(self._shelves.values())
        self._give_back({s: s.spare for s in shelves if s.begin() >= self.patience})
        for shelf in shelves:
            shelf.spare = shelf.pool.held_blocks

    def _give_back(self, counts: dict[_SizeBin, int]) -> None:
        """Give idle buffers back to the device."""
        if self._queue.capture is not None or not any(counts.values()):
            return  # recorders know buffers by their handles, which the driver uses again
        self._forget()
        for shelf, count in counts.items():
            if count:
                shelf.free(count)

    def free_idle(self) -> None:
        """Give all idle buffers back to the device."""
        for pool in self.pools():
            pool.free_held()

    def pools(self) -> Iterator[Any]:
        """Yield the pools."""
        return chain((self._small,), [shelf.pool for shelf in list(self._shelves.values())])
