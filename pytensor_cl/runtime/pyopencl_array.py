"""Arrays of pyopencl (`pyopencl.array.Array`) as values of device arrays, and the error where they cannot be."""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray, MemoryOwner
from pytensor_cl.runtime.layout import Layout

if TYPE_CHECKING:
    from pytensor_cl.runtime.context import Context


def is_pyopencl_array(value: Any) -> bool:
    """Return whether a value is such an array."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def refuse_pyopencl_array(value: Any) -> None:
    """Raise a TypeError for such an array: NumPy makes Python objects of its elements, each with a kernel (20 us)."""
    if is_pyopencl_array(value):
        raise TypeError(
            "a pyopencl.array.Array is no NumPy array: pass x.get(), or let the function take it without a copy, by an "
            f"input of type pytensor_cl.GpuArrayType({str(value.dtype)!r}, shape={(None,) * value.ndim})"
        )


def from_pyopencl(context: "Context", array: Any) -> GpuArray:
    """Return a device array over the memory of pyopencl's, without a copy, after its commands have ended.

    `array`: a `pyopencl.array.Array`. It is kept until the caller waits for the device, and must not change before
    that. Raises `TypeError`: it belongs to another OpenCL context, or is in shared virtual memory, or its strides are
    no multiples of an element.
    """
    buffer, dtype = array.base_data, np.dtype(array.dtype)
    if not array.size:
        return context.empty(array.shape, dtype)
    if not isinstance(buffer, cl.MemoryObjectHolder):
        raise TypeError("the pyopencl.array.Array is in shared virtual memory, not in a buffer")
    if array.context != context.cl_context:
        raise TypeError(
            "the pyopencl.array.Array belongs to another OpenCL context: make its queue by pyopencl.CommandQueue("
            f"get_context({context.name!r}).cl_context), with pytensor_cl.runtime.registry.get_context"
        )
    if any(step % dtype.itemsize for step in (array.offset, *array.strides)):
        raise TypeError("offset and strides of the pyopencl.array.Array must be multiples of an element")
    array.finish()
    if array.queue is not None:
        array.queue.finish()
    held = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)  # not of a pool: mappings keep a pool's buffers
    strides = tuple(step // dtype.itemsize for step in array.strides)
    layout = Layout(tuple(array.shape), strides, array.offset // dtype.itemsize)
    owner = MemoryOwner(array)
    context.queue.keep_until_wait(owner, array)
    return GpuArray(context, held, dtype, layout, owner=owner)
