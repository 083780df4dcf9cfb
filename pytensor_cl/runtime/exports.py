"""The exports of device arrays: their methods that give memory to other code call these."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from pytensor_cl.runtime import dlpack, host_view, pyopencl_array
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.host_import import HostRanges
from pytensor_cl.runtime.memory.host_mapping import HostMappings


class Exports:
    """The exports of a context's arrays. What each one returns refers to the Python object of the buffer.

    So donation sees that the memory is in use, and the pool does not get it back.

    `device`, `mappings`: those of the context; `ranges`: the host memory that it uses.
    """

    def __init__(self, device: "cl.Device", mappings: HostMappings, ranges: HostRanges) -> None:
        self._mappings, self._ranges = mappings, ranges
        self._device = device

    def to_pyopencl(self, array: GpuArray, queue: "cl.CommandQueue | None") -> Any:
        """Return a ``pyopencl.array.Array`` over the memory (`GpuArray.to_pyopencl`)."""
        return pyopencl_array.to_pyopencl(array, queue)

    def to_buffer(self, array: GpuArray, queue: "cl.CommandQueue | None") -> tuple[Any, int]:
        """Return the buffer and an offset in bytes (`GpuArray.to_buffer`)."""
        return pyopencl_array.to_buffer(array, queue)

    def host_view(self, array: GpuArray, writeable: bool) -> np.ndarray:
        """Return a NumPy array over the memory (`GpuArray.host_view`)."""
        return host_view.host_view(array, self._mappings, self._ranges, writeable)

    def map(self, array: GpuArray, mode: str) -> AbstractContextManager[np.ndarray]:
        """Return a context manager (`GpuArray.map`)."""
        return host_view.mapped(array, self._mappings, self._ranges, mode)

    def to_numpy(self, array: GpuArray, dtype: Any, copy: bool | None) -> np.ndarray:
        """Return a NumPy array (`GpuArray.__array__`)."""
        return host_view.to_numpy(array, self._mappings, self._ranges, dtype, copy)

    def dlpack(self, array: GpuArray, **options: Any) -> Any:
        """Return a capsule (`GpuArray.__dlpack__`)."""
        array.context.queue.flush()
        return dlpack.export(array, self._mappings, self._ranges, dlpack.opencl_device(self._device), **options)

    def dlpack_device(self) -> tuple[int, int]:
        """Return the type and the number of the device (`GpuArray.__dlpack_device__`)."""
        return (dlpack.HOST, 0) if self._mappings.are_supported() else dlpack.opencl_device(self._device)
