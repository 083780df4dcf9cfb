"""Device arrays over memory of the host, without a copy, for drivers that compute in that memory.

Two buffers over the same memory are undefined by the OpenCL standard. So a table knows the memory that is in use: what
is imported twice gets one buffer, and memory of a device array gets that array's buffer.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np
from numpy.lib.array_utils import byte_bounds

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray, MemoryOwner
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.interfaces import DeviceContext
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.device_memory import Memory
from pytensor_cl.runtime.memory.host_mapping import HostMappings, OwnedMemory, buffer_over, memory_at
from pytensor_cl.runtime.queue import Queue

_MIN_ENTRIES = 64  # entries of the table, from which those of memory that is gone are removed
_PROBE = 256  # bytes of the memory that the probe writes and reads


class _Range:
    """Memory of the host, and a weak reference to what has the buffer over it: the buffer, or an `OwnedMemory`."""

    __slots__ = ("begin", "end", "holder")

    def __init__(self, begin: int, end: int, holder: Any) -> None:
        self.begin, self.end, self.holder = begin, end, ref(holder)


class HostRanges:
    """The memory of the host that buffers of a context are over. Ranges that are in use do not overlap.

    `lock`: held by a thread that looks for a range and then adds one.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._ranges: list[_Range] = []  # in the order of their addresses
        self._limit = _MIN_ENTRIES

    def __len__(self) -> int:
        return len(self._ranges)

    def _index_after(self, begin: int) -> int:
        """Return the index of the first range that begins after an address."""
        return bisect_right(self._ranges, begin, key=lambda r: r.begin)

    def add(self, begin: int, end: int, holder: Any) -> None:
        """Note that `holder` has a buffer over these addresses, if that is not known."""
        with self.lock:
            if any(r.begin == begin and r.end == end for r, _ in self._in_use(begin, end)):
                return
            self._ranges.insert(self._index_after(begin), _Range(begin, end, holder))
            if len(self._ranges) > self._limit:
                self._ranges = [r for r in self._ranges if r.holder() is not None]
                self._limit = max(_MIN_ENTRIES, 2 * len(self._ranges))

    def _in_use(self, begin: int, end: int) -> Iterator[tuple[_Range, Any]]:
        """Yield the ranges in use that contain some of these addresses, with their holders."""
        at = self._index_after(begin)
        while at and self._ranges[at - 1].holder() is None:
            at -= 1
            del self._ranges[at]
        at = max(at - 1, 0)
        while at < len(self._ranges) and self._ranges[at].begin < end:
            found = self._ranges[at]
            holder = found.holder()
            if holder is not None and found.end > begin:
                yield found, holder
            at += 1

    def find(self, begin: int, end: int) -> Any:
        """Return the holder of a range that contains these addresses; None if nothing is there.

        Raises `BufferError`: a range contains a part of them.
        """
        with self.lock:
            found = list(self._in_use(begin, end))
        for entry, holder in found:
            if entry.begin <= begin and end <= entry.end:
                return holder
        if found:
            raise BufferError(
                "a part of the memory belongs to another array on the device, and a second buffer over it is "
                "undefined: import the whole array first, and slices of it after that, or take a copy"
            )
        return None


class HostImports:
    """Makes device arrays over memory of the host, and knows which memory is in use.

    `cl_context`, `queue`, `info`, `mappings`, `memory`: those of the context.
    """

    def __init__(
        self, cl_context: "cl.Context", queue: Queue, info: DeviceInfo, mappings: HostMappings, memory: Memory
    ) -> None:
        self._cl_context, self._queue, self._info = cl_context, queue, info
        self._mappings, self._memory = mappings, memory
        self.ranges = HostRanges()
        self._is_usable: bool | None = None  # None until it is needed

    def is_usable(self) -> bool:
        """Return whether kernels can read and write memory of the host where it is."""
        if self._is_usable is None:
            self._is_usable = bool(self._info.host_alignment) and self._mappings.are_supported() and self._probe()
        return self._is_usable

    def _probe(self) -> bool:
        """Return whether the host sees what commands write to its memory, and commands what the host writes."""
        alignment = self._info.host_alignment
        memory = np.zeros(_PROBE + alignment, np.uint8)
        address = int(memory.__array_interface__["data"][0])
        skipped = -address % alignment
        part = memory[skipped : skipped + _PROBE]
        read, handle = np.zeros(_PROBE, np.uint8), self._queue.handle
        self._queue.note_unsupported("a probe")
        self._queue.mark_submitted()
        try:
            buffer = buffer_over(self._cl_context, part, address + skipped, writable=True)
            for value in (1, 2):
                cl.enqueue_fill_buffer(handle, buffer, np.uint8(value), 0, _PROBE // 2)
                self._queue.finish()
                part[_PROBE // 2 :] = 10 + value
                cl.enqueue_copy(handle, read, buffer, is_blocking=True)
                halves = part[: _PROBE // 2], read[_PROBE // 2 :]
                if not ((halves[0] == value).all() and (halves[1] == 10 + value).all()):
                    return False
        except cl.Error:  # arrays are copied
            return False
        return True

    def import_array(self, context: DeviceContext, array: np.ndarray) -> GpuArray:
        """Return a device array over the memory of a host array, read-only if that is.

        Raises `BufferError`: the device cannot use the memory where it is.
        """
        itemsize = array.dtype.itemsize
        if not self.is_usable():
            raise BufferError(f"{context.name!r} cannot use memory of the host where it is")
        if not array.dtype.isnative:
            raise BufferError(f"the byte order of {array.dtype.str!r} is not the device's")
        if not array.size:
            return context.empty(array.shape, array.dtype)
        if any(step % itemsize for step in array.strides):
            raise BufferError(f"the strides {array.strides} are no multiples of the {itemsize} bytes of an element")
        self._queue.limit_kept()
        with self.ranges.lock:
            buffer, begin, owner = self._buffer_over(array)
        offset = int(array.__array_interface__["data"][0]) - begin
        if offset % itemsize:
            raise BufferError(
                f"the array begins {offset % itemsize} bytes after an address that is a multiple of an element and of "
                f"the {self._info.host_alignment} bytes at which buffers of the device begin"
            )
        strides = tuple(step // itemsize for step in array.strides)
        layout = Layout(tuple(array.shape), strides, offset // itemsize)
        return GpuArray(context, buffer, array.dtype, layout, not array.flags.writeable, owner)

    def _buffer_over(self, array: np.ndarray) -> tuple[Any, int, MemoryOwner | None]:
        """Return a buffer over the memory of an array, the address where it begins, and its owner."""
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        own = root.base
        if isinstance(own, OwnedMemory) and own.buffer.get_info(cl.mem_info.CONTEXT) == self._cl_context:
            return own.buffer, own.address, own.owner
        begin, end = byte_bounds(root)
        if end - begin > self._info.max_allocation:
            root, (begin, end) = array, byte_bounds(array)
        holder = self.ranges.find(begin, end)
        if isinstance(holder, OwnedMemory):
            return holder.buffer, holder.address, holder.owner
        if holder is None:
            holder = self._new_buffer(root, begin, end)
            self.ranges.add(begin, end, holder)
        return holder, holder.address, holder.owner

    def _new_buffer(self, root: np.ndarray, begin: int, end: int) -> Any:
        """Return a buffer over the bytes between two addresses, which keeps the array that they belong to."""
        begin -= begin % self._info.host_alignment
        self._memory.check_size(end - begin)
        memory = memory_at(begin, end - begin, root)
        make = partial(buffer_over, self._cl_context, memory, begin, writable=True)
        try:
            buffer = make()
        except cl.Error as error:
            buffer = self._memory.retry_after_freeing(make, error, end - begin)
        buffer.owner = MemoryOwner(root)
        # Kernels may still run when nothing refers to the buffer any more. The driver keeps the buffer for them, but
        # not the memory.
        self._queue.keep_for(buffer, root)
        return buffer
