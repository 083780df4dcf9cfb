"""Zero-copy access between NumPy arrays and buffers, for drivers that compute in the host's memory."""

import sys
from contextlib import suppress
from ctypes import addressof, c_char
from functools import cache
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.runtime.memory.huge_pages import PAGE, advise_huge_pages
from pytensor_cl.runtime.queue import Queue

_MIN_BYTES = 1 << 16
"""Bytes of a result from which its buffer becomes the NumPy array's memory; a smaller one is copied in less time."""
_MIN_HUGE = 2 * PAGE  # bytes of a buffer that contains a huge page at any alignment
_PROBE = 64  # bytes of the buffer that `_probe` fills and reads


def _references(array: Any) -> int:
    """Count the references to an array's buffer, including temporary ones of this function."""
    return sys.getrefcount(array.buffer)


class _Example:
    """An array whose buffer has one reference."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = object()


_SOLE_REFERENCE = _references(_Example())
"""The count for a buffer that only one array refers to; it differs between versions of Python."""


def is_worthwhile(layout: Layout, dtype: np.dtype, nbytes: int) -> bool:
    """Return whether a result in a buffer of `nbytes` bytes should become a NumPy array without a copy.

    It should if it is large, contiguous, and at least half of its buffer.
    """
    used = layout.size * dtype.itemsize
    return used >= _MIN_BYTES and layout.is_contiguous and 2 * used >= nbytes


def address_of(array: np.ndarray) -> int:
    """Return the address of the first element of a contiguous array."""
    try:
        return addressof(c_char.from_buffer(array))  # half the time of __array_interface__
    except (TypeError, ValueError, BufferError):  # it is read-only, or empty
        return int(array.__array_interface__["data"][0])


def with_preceding_bytes(array: np.ndarray, nbytes: int) -> np.ndarray:
    """Return the bytes of a contiguous array and the `nbytes` before it, which must be in the same page of memory."""
    address = address_of(array)
    data = {"data": (address - nbytes, True), "shape": (nbytes + array.nbytes,), "typestr": "|u1", "version": 3}
    return np.asarray(HeldMemory(array, data))


@cache
def _host_buffer_type() -> Any:
    """Return the class of buffers that use an array's memory. A function, as it loads the drivers."""

    class HostBuffer(cl.Buffer):
        """A buffer with the attribute `address`."""

    return HostBuffer


def memory_at(address: int, nbytes: int, owner: Any) -> np.ndarray:
    """Return the bytes at an address as an array that may be written, with a reference to the owner of the memory."""
    data = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
    return np.asarray(HeldMemory(owner, data))


def buffer_over(context: "cl.Context", array: np.ndarray, address: int, *, writable: bool = False) -> "cl.Buffer":
    """Return a buffer that uses an array's memory (CL_MEM_USE_HOST_PTR) and keeps a reference to the array.

    `address` is the first element's; `writable`: kernels may write it.
    """
    access = cl.mem_flags.READ_WRITE if writable else cl.mem_flags.READ_ONLY
    flags = access | cl.mem_flags.USE_HOST_PTR
    buffer = _host_buffer_type()(context, flags, hostbuf=array)
    buffer.address = address
    return buffer


class HeldMemory:
    """Memory for `numpy.asarray`, with a reference to its owner."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self._owner = owner
        self.__array_interface__ = interface


class OwnedMemory:
    """Memory for `numpy.ndarray` (buffer protocol), with references to its buffer and to the buffer's owner."""

    __slots__ = ("__weakref__", "_memory", "buffer", "owner")

    def __init__(self, memory: np.ndarray, buffer: Any, owner: Any = None) -> None:
        self._memory, self.buffer, self.owner = memory, buffer, owner

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return address_of(self._memory)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return self._memory.nbytes

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self._memory)


class HostMappings:
    """Host addresses of a context's buffers.

    `clEnqueueMapBuffer` returns the address of a buffer. The standard requires a map for each access, but drivers of
    CPUs never move a buffer. A probe checks that; then each buffer is mapped once. With PoCL a map takes 60 us, a wait
    10 us.

    `queue`: the context's queue; `info`: properties of the device.
    """

    def __init__(self, queue: Queue, info: DeviceInfo) -> None:
        self._queue = queue
        self._may_be_supported = info.kind == "cpu" and info.shares_host_memory and info.features.maps
        self._are_supported: bool | None = None
        # By handle. The references keep the driver from reusing a handle for another buffer.
        self._mappings: dict[int, tuple[cl.Buffer, np.ndarray]] = {}
        self._addresses: dict[int, int] = {}  # addresses of the mappings, by the same keys

    def view(self, array: GpuArray) -> np.ndarray | None:
        """Return a NumPy array over the memory of an array from the pool; None if that is not supported.

        The caller waits for the device before it reads, and keeps a reference to `array`.
        """
        memory = self._memory(array.buffer)
        return None if memory is None else strided_array(memory, array.dtype, array.layout)

    def part(self, buffer: "cl.Buffer", offset: int, dtype: np.dtype, layout: Layout) -> np.ndarray | None:
        """Return a NumPy array over a part of a buffer from byte `offset` on; the buffer is kept until `clear`."""
        memory = self.map(buffer)
        return None if memory is None else strided_array(memory[offset:], dtype, layout)

    def take(self, array: GpuArray) -> np.ndarray | None:
        """Return a NumPy array that owns the memory of a large device array; wait for the device.

        None if there are other references to the buffer, or if a copy is better (`is_worthwhile`).
        """
        if self._queue.capture is not None or _references(array) > _SOLE_REFERENCE:
            return None
        if not is_worthwhile(array.layout, array.dtype, array.buffer.size) or self._memory(array.buffer) is None:
            return None
        self._queue.wait()
        return self.to_numpy(array)

    def to_numpy(self, array: GpuArray) -> np.ndarray:
        """Return a NumPy array over the memory of a device array, with a reference to its buffer.

        The device must have finished, and no other code may use the array.
        """
        memory, (shape, _, offset), dtype = self._memory(array.buffer), array.layout, array.dtype
        memory = self.memory_of(array.buffer) if memory is None else memory  # not from the pool
        return np.ndarray(shape, dtype, OwnedMemory(memory, array.buffer, array.owner), offset * dtype.itemsize)

    def address(self, buffer: "cl.MemoryObjectHolder") -> int:
        """Return the address of a buffer or sub-buffer. Only the addresses of the pool's buffers are kept."""
        address = getattr(buffer, "address", None) or self._addresses.get(buffer.int_ptr)
        if address is not None:
            return int(address)
        if not isinstance(buffer, cl.Buffer):
            return self._mapped_address(buffer)
        whole = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
        if whole is None:
            return self._address(buffer)
        return self._base_address(whole) + buffer.get_info(cl.mem_info.OFFSET)

    def _base_address(self, whole: "cl.Buffer") -> int:
        """Return the address of a buffer with sub-buffers, if possible without a map, which may wait for commands."""
        address = self._addresses.get(whole.int_ptr)
        if address is not None:
            return address
        flags = whole.get_info(cl.mem_info.FLAGS)
        if flags & cl.mem_flags.USE_HOST_PTR:
            return int(whole.get_host_array((1,), np.uint8).__array_interface__["data"][0])
        if flags & cl.mem_flags.COPY_HOST_PTR:
            return self._address(whole)
        return self._mapped_address(whole)  # a buffer of the pool, or of the arena

    def _mapped_address(self, buffer: "cl.MemoryObjectHolder") -> int:
        """Return the address of a buffer that is kept until `clear`. Another thread may call `clear` meanwhile."""
        memory = self.map(buffer)
        assert memory is not None
        return int(memory.__array_interface__["data"][0])

    def retain(self, buffer: "cl.MemoryObjectHolder | np.ndarray") -> "cl.Buffer | np.ndarray":
        """Return an object that keeps the memory of a buffer allocated, as a driver does for kernel arguments."""
        if isinstance(buffer, cl.Buffer | np.ndarray):
            return buffer
        known = self._mappings.get(buffer.int_ptr)
        return cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True) if known is None else known[0]

    def memory_of(self, buffer: "cl.Buffer") -> np.ndarray:
        """Return the bytes of a buffer. The caller keeps a reference to the buffer."""
        return _bytes_at(self._address(buffer), buffer.size)

    def owned_memory(self, array: GpuArray) -> OwnedMemory:
        """Return the memory of a device array's buffer, which it keeps. The caller has asked `are_supported`."""
        buffer = array.buffer
        return OwnedMemory(_bytes_at(self.address(buffer), buffer.size), buffer, array.owner)

    def are_supported(self) -> bool:
        """Return whether the host can access the pool's buffers at addresses that do not change."""
        if self._are_supported is None:
            self._are_supported = self._may_be_supported and self._probe()
        return self._are_supported

    def advise_huge_pages(self, buffer: "cl.MemoryObjectHolder") -> None:
        """Request huge pages for a new large buffer, if it is in the host's memory."""
        if self._may_be_supported and buffer.size >= _MIN_HUGE:
            with suppress(cl.Error):  # huge pages are optional
                advise_huge_pages(self._address(buffer), buffer.size)

    def clear(self) -> None:
        """Drop the references to all buffers, so that they can be released."""
        self._mappings.clear()
        self._addresses.clear()

    def _memory(self, buffer: "cl.MemoryObjectHolder") -> np.ndarray | None:
        if not self._may_be_supported:
            return None
        if buffer.int_ptr in self._mappings:
            return self._mappings[buffer.int_ptr][1]
        # The pool's buffers have a class of their own. A reference to another buffer would keep it allocated.
        return None if isinstance(buffer, cl.Buffer) else self.map(buffer)

    def map(self, buffer: "cl.MemoryObjectHolder") -> np.ndarray | None:
        """Return the memory of a buffer, and keep a reference to the buffer until `clear`; None if not supported."""
        known = self._mappings.get(buffer.int_ptr)
        if known is not None:
            return known[1]
        return self._map(buffer) if self.are_supported() else None

    def _map(self, buffer: "cl.MemoryObjectHolder") -> np.ndarray:
        handle = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)
        address = self._address(buffer)
        memory = _bytes_at(address, buffer.size)
        self._mappings[buffer.int_ptr], self._addresses[buffer.int_ptr] = (handle, memory), address
        return memory

    def _address(self, buffer: "cl.MemoryObjectHolder") -> int:
        # A blocking map would wait for all commands; the address is available at once.
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        mapped, _ = cl.enqueue_map_buffer(self._queue.handle, buffer, flags, 0, (1,), np.uint8, is_blocking=False)
        address = mapped.__array_interface__["data"][0]
        mapped.base.release(self._queue.handle)
        return int(address)

    def _probe(self) -> bool:
        """Return whether an earlier map shows what later commands write, at an address that does not change."""
        context, queue = self._queue.handle.context, self._queue.handle
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, _PROBE)
        address = self._address(buffer)
        memory, seen = _bytes_at(address, _PROBE), []
        for value in (1, 2):
            cl.enqueue_fill_buffer(queue, buffer, np.uint8(value), 0, _PROBE)
            self._queue.finish()
            seen.append(bool((memory == value).all()))
        return all(seen) and self._address(buffer) == address


def strided_array(memory: Any, dtype: np.dtype, layout: Layout) -> np.ndarray:
    """Return a view of memory with a layout."""
    itemsize = dtype.itemsize
    if layout.is_contiguous:
        return np.ndarray(layout.shape, dtype, memory, layout.offset * itemsize)
    return np.ndarray(layout.shape, dtype, memory, layout.offset * itemsize, [s * itemsize for s in layout.strides])


def _bytes_at(address: int, nbytes: int) -> np.ndarray:
    return np.frombuffer((c_char * nbytes).from_address(address), np.uint8)
