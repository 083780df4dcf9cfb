"""Arrays and buffers of pyopencl over the memory of device arrays, and the other way round."""

import sys
from typing import Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray, MemoryOwner
from pytensor_cl.runtime.host_view import check_writable
from pytensor_cl.runtime.interfaces import DeviceContext
from pytensor_cl.runtime.layout import Layout, contiguous_strides


def is_pyopencl_array(value: Any) -> bool:
    """Return whether a value is such an array."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def refuse_pyopencl_array(value: Any) -> None:
    """Raise a TypeError for such an array: NumPy makes Python objects of its elements, each with a kernel (20 us)."""
    if is_pyopencl_array(value):
        raise TypeError("a pyopencl.array.Array is no NumPy array: pass x.get(), or pytensor_cl.from_pyopencl(x)")


# Exports


def _memory_of(array: GpuArray) -> Any:
    """Return the object that keeps the memory of an array from reuse: that of its owner if it is of pyopencl."""
    held: Any = None if array.owner is None else array.owner.held
    if is_pyopencl_array(held):
        held = held.base_data
    return held if isinstance(held, cl.MemoryObjectHolder) and held == array.buffer else array.buffer


def _order_for(array: GpuArray, queue: "cl.CommandQueue | None") -> None:
    """Let later commands of a queue run after those of the context. Raises `ValueError`: it is of another one."""
    check_writable(array)
    if queue is not None:
        if queue.context != array.context.cl_context:
            raise ValueError(
                f"the queue belongs to another OpenCL context than {array.context.name!r}: make it with "
                f"pyopencl.CommandQueue(pytensor_cl.queue({array.context.name!r}).context)"
            )
        array.context.queue.order_before(queue)


def to_pyopencl(array: GpuArray, queue: "cl.CommandQueue | None") -> Any:
    """Return a ``pyopencl.array.Array`` over the memory (`GpuArray.to_pyopencl`)."""
    from pyopencl.array import Array

    _order_for(array, queue)
    if queue is None or array.context.queue.is_same(queue):
        queue = array.context.queue.expose_handle()
    offset = array.layout.offset * array.dtype.itemsize
    made = Array(queue, array.shape, array.dtype, strides=array.strides, data=_memory_of(array), offset=offset)
    made.pytensor_cl_owner = array.owner
    return made


def to_buffer(array: GpuArray, queue: "cl.CommandQueue | None") -> tuple[Any, int]:
    """Return the buffer and the offset of the first element in bytes (`GpuArray.to_buffer`)."""
    _order_for(array, queue)
    array.context.queue.flush()
    return _memory_of(array), array.layout.offset * array.dtype.itemsize


# Imports


def from_pyopencl(context: DeviceContext, array: Any) -> GpuArray:
    """Return a device array over the memory of pyopencl's, without a copy; its commands run first.

    `array`: a ``pyopencl.array.Array``. Raises `TypeError`: it belongs to another OpenCL context, or is in shared
    virtual memory. Raises `ValueError`: its strides are no multiples of an element.
    """
    buffer, dtype = array.base_data, np.dtype(array.dtype)
    if not array.size:
        return context.empty(tuple(array.shape), context.check_dtype(dtype))
    if not isinstance(buffer, cl.MemoryObjectHolder):
        raise TypeError("the pyopencl.array.Array is in shared virtual memory, not in a buffer")
    if array.context != context.cl_context:
        raise TypeError(
            "the pyopencl.array.Array belongs to another OpenCL context: make its queue by pyopencl.CommandQueue("
            f"pytensor_cl.queue({context.name!r}).context), or take that queue"
        )
    made = over_buffer(
        context, buffer, array.shape, dtype, strides=array.strides, offset=array.offset, readonly=False, held=array
    )
    context.queue.wait_for_queue(array.queue, array.events)
    return made


def over_buffer(
    context: DeviceContext,
    buffer: Any,
    shape: Any,
    dtype: np.dtype,
    *,
    strides: Any,
    offset: int,
    readonly: bool,
    held: Any,
) -> GpuArray:
    """Return a device array over a buffer of the context (`interchange.from_buffer`); it keeps `held`."""
    dtype, itemsize = context.check_dtype(dtype), dtype.itemsize
    shape = tuple(int(n) for n in shape)
    steps = [n * itemsize for n in contiguous_strides(shape)] if strides is None else [int(step) for step in strides]
    if len(steps) != len(shape) or any(n < 0 for n in shape):
        raise ValueError(f"an array cannot have shape {shape} and strides {tuple(steps)}")
    if any(step % itemsize for step in (offset, *steps)):
        raise ValueError(
            f"offset {offset} and strides {tuple(steps)} must be multiples of the {itemsize} bytes of an element"
        )
    layout = Layout(shape, tuple(step // itemsize for step in steps), offset // itemsize)
    low, high = layout.span
    if layout.size and (low < 0 or high * itemsize > buffer.size):
        raise ValueError(
            f"an array of shape {shape}, strides {tuple(steps)} and offset {offset} needs the bytes from "
            f"{low * itemsize} to {high * itemsize} of a buffer that has {buffer.size}"
        )
    if not layout.size:
        layout = Layout(shape, layout.strides, 0)
    flags = buffer.get_info(cl.mem_info.FLAGS)
    if flags & cl.mem_flags.WRITE_ONLY:
        raise ValueError("the buffer was made with the flag WRITE_ONLY: kernels cannot read it")
    owner = MemoryOwner(held)
    context.queue.keep_for(owner, held)
    if not isinstance(buffer, cl.Buffer):  # of a pool: mappings would keep such a buffer
        buffer = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)
    return GpuArray(context, buffer, dtype, layout, readonly or bool(flags & cl.mem_flags.READ_ONLY), owner)
