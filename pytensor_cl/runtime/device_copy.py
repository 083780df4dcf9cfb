"""Copies of whole stretches of memory, and of arrays of any strides."""

from functools import cache
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from pytensor_cl.codegen.dtypes import carrier
from pytensor_cl.codegen.structs import Struct
from pytensor_cl.codegen.template import kernel_source, render
from pytensor_cl.integers import ceil_div
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.layout import collapse
from pytensor_cl.runtime.program import Kernel, ProgramCache
from pytensor_cl.runtime.queue import Queue

PAST_CACHE = 24 << 20
"""Bytes read and written from which results are stored past the cache: little of them would stay there."""

_WORTH_A_KERNEL = 1 << 20  # bytes
_SEGMENT = 4096  # elements of a row that a work-item takes at a time, on schedule cpu
_GROUP = 64  # work-items, on schedule simt
_DIMS = (1, 2, 4, 8)  # dimensions that there are kernels for


@cache
def _geometry_struct(dims: int) -> Struct:
    return Struct(("long", f"shape[{dims}] strides[{dims}] units segment segments"), name="geometry")


class Copies:
    """Copies between buffers of a context.

    A CPU driver's own copy may be a ``memcpy`` by one thread (PoCL), half as fast as all threads together: there a
    kernel copies what is large.
    """

    def __init__(self, queue: Queue, programs: ProgramCache, info: DeviceInfo) -> None:
        self._queue, self._programs = queue, programs
        self._smallest = _WORTH_A_KERNEL if info.schedule == "cpu" else info.global_memory
        self._work_items = 4 * info.compute_units
        self._is_cpu = info.schedule == "cpu"
        self._kernel: Kernel | None = None
        self._gathering: dict[tuple[str, int], Kernel] = {}
        self._lock = Lock()  # a kernel holds its arguments between two calls of the driver

    def start(self, target: "cl.Buffer", source: "cl.Buffer", begin: int, count: int) -> None:
        """Enqueue a copy of `count` bytes of `source`, from byte `begin`, to the beginning of another buffer."""
        if count < self._smallest:
            self._queue.copy(target, source, count, 0, begin)
            return
        is_large = np.int32(2 * count >= PAST_CACHE)
        with self._lock:
            if self._kernel is None:
                self._kernel = self._programs.kernel(
                    kernel_source("runtime/copy_bytes", preambles=(render("common/non_temporal"),))
                )
            arguments = target, source, np.int64(begin), np.int64(count), is_large
            self._kernel.launch(self._queue, (self._work_items,), (1,), *arguments)

    def gather(self, target: GpuArray, source: GpuArray) -> None:
        """Enqueue a copy of an array of any strides to a C-contiguous one of the same shape and dtype."""
        shape, (strides,) = collapse(source.shape, (source.layout.strides,))
        self._gather(target, target.layout.offset, source, source.layout.offset, shape, strides)

    def _gather(
        self, target: GpuArray, to: int, source: GpuArray, at: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        if len(shape) > _DIMS[-1]:
            size = prod(shape[1:])
            for k in range(shape[0]):
                self._gather(target, to + k * size, source, at + k * strides[0], shape[1:], strides[1:])
            return
        dims = next(n for n in _DIMS if n >= len(shape))
        unused = dims - len(shape)
        lengths, steps = (1,) * unused + shape, (0,) * unused + strides
        segment = min(lengths[-1], _SEGMENT)
        segments = ceil_div(lengths[-1], segment)
        units = prod(lengths[:-1]) * segments if self._is_cpu else prod(lengths)
        geometry = _geometry_struct(dims).pack_values(*lengths, *steps, units, segment, segments)
        items = (
            min(self._work_items, units)
            if self._is_cpu
            else _GROUP * min(_GROUP * self._work_items, ceil_div(units, _GROUP))
        )
        with self._lock:
            kernel = self._gathering_kernel(carrier(source.dtype), dims)
            sizes = (items,), ((1,) if self._is_cpu else None)
            arguments = target.buffer, source.buffer, np.int64(to), np.int64(at), geometry
            kernel.launch(self._queue, *sizes, *arguments)

    def _gathering_kernel(self, unit: str, dims: int) -> Kernel:
        if (unit, dims) not in self._gathering:
            schedule = "cpu" if self._is_cpu else "simt"
            arguments: dict[str, Any] = {
                "unit": unit,
                "geometry": _geometry_struct(dims),
                "dims": dims,
                "schedule": schedule,
            }
            source = kernel_source("runtime/gather_elements", **arguments)
            self._gathering[unit, dims] = self._programs.kernel(source)
        return self._gathering[unit, dims]
