"""Pools of device buffers: free buffers are used again; large ones that stay idle are released."""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.queue import Queue

LARGE = 1 << 20
"""Bytes of a buffer from which it has a pool for its size; smaller buffers share one pool."""
WINDOW = 256
"""Allocations and calls in a window. At its end, large buffers that were idle during all of it are counted."""
IDLE_SHARE = 8
"""Idle buffers may take 1/8 of the device's memory when another buffer is allocated."""


class _SizeBin:
    """The large buffers of one size class.

    `idle`: buffers that were idle since the window began; `idle_windows`: consecutive windows in which some buffers
    were idle; `was_freed`: idle buffers were released. If the next allocation of the size needs one, they were released
    too early.
    """

    __slots__ = ("idle", "idle_windows", "pool", "size", "was_freed")

    def __init__(self, pool: Any, nbytes: int) -> None:
        self.pool = pool
        self.size = pool.alloc_size(pool.bin_number(nbytes))
        self.idle = self.idle_windows = 0
        self.was_freed = False

    def begin_window(self) -> int:
        """Begin a window; return the number of consecutive windows in which some buffers were idle."""
        self.idle_windows = self.idle_windows + 1 if self.idle else 0
        return self.idle_windows

    def free(self, count: int) -> None:
        """Release some of the idle buffers."""
        kept = [self.pool.allocate(self.size) for _ in range(self.pool.held_blocks - count)]
        self.pool.free_held()
        del kept
        self.idle_windows, self.was_freed = 0, True


class BufferPool:
    """Allocates buffers, and keeps free ones for a while.

    A large buffer is released when it was idle for a window of allocations. All idle buffers are released when they
    take more than a share of the memory and a new buffer is allocated. If a buffer of a released size is needed next,
    it was released too early: windows and share double. So periodic allocations of any period soon find free buffers.
    The pool reads no clock, and does nothing while nothing is allocated.

    `queue`: the context's queue; `allocator`: makes buffers that no pool has (`pyopencl.tools.ImmediateAllocator`);
    `memory`: bytes of the device's memory; `release_mappings`: releases the references to free buffers that host
    mappings hold; `on_allocation`: called with each new large buffer of the device; `largest`: largest buffer of the
    device, in bytes; `max_idle_windows`: windows for which large buffers may be idle; the share grows with it.
    """

    def __init__(
        self,
        queue: Queue,
        allocator: Callable[[int], "cl.MemoryObjectHolder"],
        memory: int,
        release_mappings: Callable[[], None],
        on_allocation: Callable[[Any], object],
        largest: int = sys.maxsize,
    ) -> None:
        self._queue, self._allocator = queue, allocator
        self._largest = largest
        self._release_mappings, self._on_allocation = release_mappings, on_allocation
        self._small = self._new_pool()
        self._allocate_small = self._small.allocate
        self._bins: dict[int, _SizeBin] = {}
        self._limit = memory // IDLE_SHARE
        self._left = WINDOW
        self.max_idle_windows = 1

    def _new_pool(self) -> Any:
        from pyopencl.tools import MemoryPool  # loading drivers waits until a context opens

        return MemoryPool(self._allocator)

    def allocate(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Return a buffer of at least `nbytes` bytes, more than 0."""
        self._left -= 1
        if self._left < 0:
            self._end_window()
        return self._allocate_small(nbytes) if nbytes < LARGE else self._allocate_large(nbytes)

    def count_calls(self, calls: int = 1) -> None:
        """Count calls as allocations: calls with small arrays may allocate nothing."""
        self._left -= calls
        if self._left < 0:
            self._end_window()

    def _allocate_large(self, nbytes: int) -> "cl.MemoryObjectHolder":
        number = self._small.bin_number(nbytes)
        if self._small.alloc_size(number) > self._largest:  # the pool would round it up to more than the device allows
            return self._allocate_unpooled(nbytes)
        size_bin = self._bins.get(number)
        if size_bin is None:
            size_bin = self._bins.setdefault(number, _SizeBin(self._new_pool(), nbytes))
        held = size_bin.pool.held_blocks
        if not held:
            self._grow(size_bin)
        elif held <= size_bin.idle:
            size_bin.idle = held - 1
        buffer = size_bin.pool.allocate(nbytes)
        if not held:
            self._on_allocation(buffer)
        return buffer

    def _allocate_unpooled(self, nbytes: int) -> "cl.MemoryObjectHolder":
        """Allocate a buffer that is released as soon as it is free."""
        self._free({s: s.pool.held_blocks for s in self._bins.values()})
        buffer = self._allocator(nbytes)
        self._on_allocation(buffer)
        return buffer

    def _grow(self, size_bin: _SizeBin) -> None:
        """Release idle buffers if they take too much memory, before the device allocates another one."""
        if size_bin.was_freed:
            self.max_idle_windows, size_bin.was_freed = 2 * self.max_idle_windows, False
        if sum(p.managed_bytes - p.active_bytes for p in self.pools()) > self._limit * self.max_idle_windows:
            self._free({s: s.pool.held_blocks for s in self._bins.values()})

    def _end_window(self) -> None:
        """End a window."""
        self._left, bins = WINDOW, list(self._bins.values())
        self._free({s: s.idle for s in bins if s.begin_window() >= self.max_idle_windows})
        for size_bin in bins:
            size_bin.idle = size_bin.pool.held_blocks

    def _free(self, counts: dict[_SizeBin, int]) -> None:
        """Release idle buffers."""
        if self._queue.capture is not None or not any(counts.values()):
            return  # a capture identifies buffers by their handles, which the driver reuses
        self._release_mappings()
        for size_bin, count in counts.items():
            if count:
                size_bin.free(count)

    def free_idle(self) -> None:
        """Release all idle buffers."""
        for pool in self.pools():
            pool.free_held()

    def pools(self) -> Iterator[Any]:
        """Yield the pools of all sizes."""
        return chain((self._small,), [size_bin.pool for size_bin in list(self._bins.values())])
