"""NumPy arrays over the buffers of drivers that compute in the host's memory: no copy, where a read would make one."""

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
from pytensor_cl.runtime.memory.huge_pages import PAGE, ask_for_large_pages
from pytensor_cl.runtime.queue import Queue

__all__ = ["HostMappings", "address_of", "memory_before", "pays", "wrapped"]

_HANDED = 1 << 16
"""Bytes: smaller results are copied, which costs less than keeping a buffer for them."""
_MANY = 2 * PAGE  # bytes from which a buffer has a large page in it wherever it begins
_PROBE = 64


def _references(array: Any) -> int:
    """Count the references to an array's buffer; the count includes some of this function's own."""
    return sys.getrefcount(array.buffer)


class _Example:
    """An array with a buffer that nobody else has."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = object()


_SOLE = _references(_Example())
"""References to a buffer that one array alone holds: versions of Python count differently."""


def pays(layout: Layout, dtype: np.dtype, nbytes: int) -> bool:
    """Whether an array is better handed over, with its buffer of `nbytes` bytes, than copied."""
    used = layout.size * dtype.itemsize
    return used >= _HANDED and layout.is_contiguous and 2 * used >= nbytes


def address_of(array: np.ndarray) -> int:
    """Return where the elements of a contiguous array begin."""
    try:
        return addressof(c_char.from_buffer(array))  # takes half as long
    except (TypeError, ValueError, BufferError):  # it is read-only, or empty
        return int(array.__array_interface__["data"][0])


def memory_before(array: np.ndarray, nbytes: int) -> np.ndarray:
    """Return the bytes of a contiguous array and some before it, which must lie in the same page."""
    address = address_of(array)
    data = {"data": (address - nbytes, True), "shape": (nbytes + array.nbytes,), "typestr": "|u1", "version": 3}
    return np.asarray(_Held(array, data))


@cache
def _wrapping() -> Any:
    """Return the Type of buffers that are an array's memory; loading drivers waits until a context opens."""

    class Wrapping(cl.Buffer):
        """Knows where it is."""

    return Wrapping


def wrapped(context: "cl.Context", array: np.ndarray, address: int) -> "cl.Buffer":
    """Return a read-only buffer that is the memory of an array, which begins at `address`, and keeps it."""
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
    buffer = _wrapping()(context, flags, hostbuf=array)
    buffer.address = address
    return buffer


class _Held:
    """Lets NumPy see memory, and keeps its owner."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self._owner = owner
        self.__array_interface__ = interface


class _Owned:
    """Memory that is there as long as its owner; NumPy makes arrays of it."""

    __slots__ = ("_memory", "_owner")

    def __init__(self, memory: np.ndarray, owner: Any) -> None:
        self._memory, self._owner = memory, owner

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self._memory)


class HostMappings:
    """Where the host finds the pool's buffers.

    A map tells the address of a buffer. Drivers of CPUs never move it, so it is asked once: a map costs PoCL 60 us, a
    wait 10 us. The standard wants a map for each access, therefore a probe finds out what the driver does.

    Parameters
    ----------
    queue
        The context's queue.
    info
        Facts of the device.
    """

    def __init__(self, queue: Queue, info: DeviceInfo) -> None:
        self._queue = queue
        self._may_work = info.kind == "cpu" and info.shares_host_memory and info.features.maps
        self._works: bool | None = None
        # By handle. A driver may use the handle of a buffer that is gone for a new one: these are kept.
        self._known: dict[int, tuple[cl.Buffer, np.ndarray]] = {}
        self._addresses: dict[int, int] = {}  # of the same

    def view(self, array: GpuArray) -> np.ndarray | None:
        """Return a NumPy array over the memory of an array that the pool allocated; None if there is no such thing.

        Whoever reads it waits for the device first, and keeps `array` alive.
        """
        memory = self._memory(array.buffer)
        return None if memory is None else _seen(memory, array.dtype, array.layout)

    def part(self, buffer: "cl.Buffer", offset: int, dtype: np.dtype, layout: Layout) -> np.ndarray | None:
        """Return a NumPy array over a part of a buffer that stays until `forget`, from byte `offset` on."""
        memory = self.know(buffer)
        return None if memory is None else _seen(memory[offset:], dtype, layout)

    def hand_over(self, array: GpuArray) -> np.ndarray | None:
        """Return the memory itself of a large array that nobody else refers to, as its caller's own; wait for it.

        None if somebody else may see that it changes, or if it is a small part of its buffer.
        """
        if self._queue.capture is not None or _references(array) > _SOLE:
            return None
        if not pays(array.layout, array.dtype, array.buffer.size) or self._memory(array.buffer) is None:
            return None
        self._queue.wait()
        return self.own(array)

    def own(self, array: GpuArray) -> np.ndarray:
        """Return the memory of an array that is its caller's alone, and that the device has finished with."""
        memory, (shape, _, offset), dtype = self._memory(array.buffer), array.layout, array.dtype
        memory = self.memory_of(array.buffer) if memory is None else memory  # it is none of the pool's
        return np.ndarray(shape, dtype, _Owned(memory, array.buffer), offset * dtype.itemsize)

    def address(self, buffer: "cl.MemoryObjectHolder") -> int:
        """Return where a buffer is, which may be a part of another one. Of others than the pool's it is asked anew."""
        address = getattr(buffer, "address", None) or self._addresses.get(buffer.int_ptr)
        if address is not None:
            return int(address)
        if not isinstance(buffer, cl.Buffer):
            return self._noted(buffer)
        whole = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
        return self._address(buffer) if whole is None else self._beginning(whole) + buffer.get_info(cl.mem_info.OFFSET)

    def _beginning(self, whole: "cl.Buffer") -> int:
        """Return where a buffer that has parts is; a map would wait for all that was enqueued."""
        address = self._addresses.get(whole.int_ptr)
        if address is not None:
            return address
        flags = whole.get_info(cl.mem_info.FLAGS)
        if flags & cl.mem_flags.USE_HOST_PTR:
            return int(whole.get_host_array((1,), np.uint8).__array_interface__["data"][0])
        if flags & cl.mem_flags.COPY_HOST_PTR:
            return self._address(whole)
        return self._noted(whole)  # it is the pool's, or the arena's

    def _noted(self, buffer: "cl.MemoryObjectHolder") -> int:
        """Return where a buffer is that stays until `forget`, which another thread may call at any time."""
        memory = self.know(buffer)
        assert memory is not None
        return int(memory.__array_interface__["data"][0])

    def keeper(self, buffer: "cl.MemoryObjectHolder | np.ndarray") -> "cl.Buffer | np.ndarray":
        """Return what keeps the memory of a buffer, as the driver keeps that of arguments: the pool may reuse it."""
        if isinstance(buffer, cl.Buffer | np.ndarray):
            return buffer
        known = self._known.get(buffer.int_ptr)
        return cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True) if known is None else known[0]

    def memory_of(self, buffer: "cl.Buffer") -> np.ndarray:
        """Return the bytes of a buffer, which its caller keeps as long as them."""
        return _at(self._address(buffer), buffer.size)

    def works(self) -> bool:
        """Whether the host can see the pool's buffers."""
        if self._works is None:
            self._works = self._may_work and self._probe()
        return self._works

    def enlarge(self, buffer: "cl.MemoryObjectHolder") -> None:
        """Have a new buffer in large pages, if it is many of them and its memory the host's."""
        if self._may_work and buffer.size >= _MANY:
            with suppress(cl.Error):  # it is no more than advice
                ask_for_large_pages(self._address(buffer), buffer.size)

    def forget(self) -> None:
        """Let go of all buffers, so that they can be freed."""
        self._known.clear()
        self._addresses.clear()

    def _memory(self, buffer: "cl.MemoryObjectHolder") -> np.ndarray | None:
        if not self._may_work:
            return None
        if buffer.int_ptr in self._known:
            return self._known[buffer.int_ptr][1]
        # The pool's are of a Type of their own. Others come and go: to keep them would be to keep them for good.
        return None if isinstance(buffer, cl.Buffer) else self.know(buffer)

    def know(self, buffer: "cl.MemoryObjectHolder") -> np.ndarray | None:
        """Find out where a buffer is, which stays until `forget`; return its memory."""
        known = self._known.get(buffer.int_ptr)
        if known is not None:
            return known[1]
        return self._find(buffer) if self.works() else None

    def _find(self, buffer: "cl.MemoryObjectHolder") -> np.ndarray:
        handle = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)
        address = self._address(buffer)
        memory = _at(address, buffer.size)
        self._known[buffer.int_ptr], self._addresses[buffer.int_ptr] = (handle, memory), address
        return memory

    def _address(self, buffer: "cl.MemoryObjectHolder") -> int:
        # Only the address is asked for, which is known at once: a map that blocks waits for all that was enqueued.
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        mapped, _ = cl.enqueue_map_buffer(self._queue.handle, buffer, flags, 0, (1,), np.uint8, is_blocking=False)
        address = mapped.__array_interface__["data"][0]
        mapped.base.release(self._queue.handle)
        return int(address)

    def _probe(self) -> bool:
        """Whether what a command writes is seen at the address of an earlier map, and that address stays the same."""
        context, queue = self._queue.handle.context, self._queue.handle
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, _PROBE)
        address = self._address(buffer)
        memory, seen = _at(address, _PROBE), []
        for value in (1, 2):
            cl.enqueue_fill_buffer(queue, buffer, np.uint8(value), 0, _PROBE)
            self._queue.finish()
            seen.append(bool((memory == value).all()))
        return all(seen) and self._address(buffer) == address


def _seen(memory: np.ndarray, dtype: np.dtype, layout: Layout) -> np.ndarray:
    """Return a view of memory with a layout."""
    itemsize = dtype.itemsize
    if layout.is_contiguous:
        return np.ndarray(layout.shape, dtype, memory, layout.offset * itemsize)
    return np.ndarray(layout.shape, dtype, memory, layout.offset * itemsize, [s * itemsize for s in layout.strides])


def _at(address: int, nbytes: int) -> np.ndarray:
    return np.frombuffer((c_char * nbytes).from_address(address), np.uint8)
