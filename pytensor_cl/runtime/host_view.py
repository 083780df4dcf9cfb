"""NumPy arrays over the memory of device arrays: views that last, mapped arrays, and snapshots."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.host_import import HostRanges
from pytensor_cl.runtime.layout import Layout, contiguous_strides
from pytensor_cl.runtime.memory.host_mapping import HostMappings, strided_array

MODES = ("r", "w", "rw")
"""The modes of `GpuArray.map`: the host reads, writes or both."""


def normalised(layout: Layout) -> Layout:
    """Return a layout whose strides are those of a contiguous array where they do not matter."""
    if not layout.size:
        return Layout(layout.shape, contiguous_strides(layout.shape))
    pairs = zip(layout.shape, layout.strides, contiguous_strides(layout.shape), strict=True)
    return layout._replace(strides=tuple(plain if n == 1 else step for n, step, plain in pairs))


def overlaps(layout: Layout) -> bool:
    """Return whether some elements are at the same place: an array that was broadcast."""
    return layout.size > 0 and any(n > 1 and not step for n, step in zip(layout.shape, layout.strides, strict=True))


def check_writable(array: GpuArray) -> None:
    """Raise a ValueError for an array that must not be written."""
    if array.readonly:
        raise ValueError("assignment destination is read-only: write to a copy, r.copy()")
    if overlaps(array.layout):
        raise ValueError("several elements of a broadcast array are at the same place: write to a copy, r.copy()")


def host_view(array: GpuArray, mappings: HostMappings, ranges: HostRanges, writeable: bool) -> np.ndarray:
    """Return a NumPy array over the memory of a device array, whose commands have ended.

    Raises `ValueError`: the host cannot see the memory, or `writeable` is set and the array must not be written.
    """
    context = array.context
    if writeable:
        check_writable(array)
    context.queue.wait()
    context.deferred_errors.check()
    if not mappings.are_supported():
        raise ValueError(
            f"{context.name!r} has a memory of its own, which NumPy cannot see: np.asarray(r) is a copy, and "
            "'with r.map() as a' copies to the host and back"
        )
    memory = mappings.owned_memory(array)
    ranges.add(memory.address, memory.address + memory.nbytes, memory)
    view = strided_array(memory, array.dtype, normalised(array.layout))
    view.flags.writeable = writeable
    return view


@contextmanager
def mapped(array: GpuArray, mappings: HostMappings, ranges: HostRanges, mode: str) -> Iterator[np.ndarray]:
    """Yield a NumPy array with the values of a device array, which gets what was written to it at the end.

    Raises `ValueError`: the mode is none of `MODES`, or the array must not be written.
    """
    if mode not in MODES:
        raise ValueError(f"the mode of a map is one of {', '.join(map(repr, MODES))}, not {mode!r}")
    is_written = "w" in mode
    if is_written:
        check_writable(array)
    if mappings.are_supported():
        view = host_view(array, mappings, ranges, is_written)
        try:
            yield view
        finally:
            view.flags.writeable = False  # it shows the memory as long as it is kept, but this is not the time to write
        return
    yield from _copied(array, mode)


def _copied(array: GpuArray, mode: str) -> Iterator[np.ndarray]:
    """Yield a copy on the host, which is uploaded at the end if the mode says so."""
    queue, layout, dtype = array.context.queue, normalised(array.layout), array.dtype
    low, high = layout.span
    host = np.empty(high - low, dtype)
    is_read = mode != "w" or high - low > layout.size  # the elements between those of the array must stay
    if is_read and host.nbytes:
        queue.read(host, array.buffer, low * dtype.itemsize)
        array.context.deferred_errors.check()
    view = strided_array(host, dtype, layout._replace(offset=layout.offset - low))
    view.flags.writeable = "w" in mode
    try:
        yield view
    finally:
        view.flags.writeable = False
        if "w" in mode and host.nbytes:
            queue.write(array.buffer, host, low * dtype.itemsize)


def to_numpy(array: GpuArray, mappings: HostMappings, ranges: HostRanges, dtype: Any, copy: bool | None) -> np.ndarray:
    """Return a NumPy array of the values, as ``__array__``: a copy, or a read-only view if `copy` is False."""
    if copy is not False:
        host = array.to_host()
        return host if dtype is None else host.astype(dtype, copy=False)
    if dtype is not None and np.dtype(dtype) != array.dtype:
        raise ValueError(f"an array of {array.dtype} does not become {np.dtype(dtype)} without a copy: np.asarray(r)")
    try:
        return host_view(array, mappings, ranges, writeable=False)
    except ValueError as error:
        raise ValueError(f"NumPy cannot see the array without a copy: write np.asarray(r). {error}") from error
