"""Slices whose offset differs from call to call, such as minibatches: one captured graph serves them all.

A slice of a shared variable, or of an argument, is a sub-buffer of its buffer. As long as shape and strides stay the
same, and the distance from the last address at which a sub-buffer may begin, every kernel does the same with another
sub-buffer.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from pytensor_cl.linker.graphs.buffers import BufferBinding
from pytensor_cl.runtime import opencl as cl
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.layout import Layout

__all__ = ["SliceBinding", "split_offset", "sub_buffer"]


def split_offset(layout: Layout, itemsize: int, alignment: int) -> tuple[int, Layout]:
    """Split the offset of an array into that of a sub-buffer, and the layout of the array in the sub-buffer.

    Parameters
    ----------
    layout
        Of the array in the whole buffer.
    itemsize
        Bytes of an element.
    alignment
        Bytes; a sub-buffer begins at a multiple of it.

    Returns
    -------
    int
        First byte of the sub-buffer.
    Layout
        Of the array, in the sub-buffer.
    """
    if not layout.size:
        return 0, layout._replace(offset=0)
    step = alignment // itemsize
    begin = layout.span[0] // step * step
    return begin * itemsize, layout._replace(offset=layout.offset - begin)


def sub_buffer(buffer: Any, begin: int) -> "cl.Buffer":
    """Return the bytes of a buffer from `begin` on, as a buffer."""
    whole = cl.Buffer.from_int_ptr(buffer.int_ptr, retain=True)  # the pool's type has no sub-buffers
    return whole.get_sub_region(begin, buffer.size - begin)


class SliceBinding:
    """Binds a slice, whose offset differs from call to call.

    Parameters
    ----------
    binding, source
        Of the slice, and of the array of which it is a slice.
    source_layout
        Layout of that array.
    itemsize
        Bytes of an element.
    alignment
        Bytes; a sub-buffer begins at a multiple of it.
    """

    def __init__(
        self, binding: BufferBinding, source: BufferBinding, source_layout: Layout, itemsize: int, alignment: int
    ) -> None:
        self._binding, self._source = binding, source
        self._source_layout = source_layout
        self._itemsize, self._alignment = itemsize, alignment
        self._sub_buffers: dict[int, Any] = {}
        self._bound_offset = -1  # of the sub-buffer that kernels have
        self._array_ref: Callable[[], GpuArray | None] = lambda: None

    def locate(self, routine: Any, values: Sequence[Any]) -> tuple[int, Layout]:
        """Return the offset of the sub-buffer for other values of the indices, and the layout of the slice in it."""
        return split_offset(routine.layout(self._source_layout, *values), self._itemsize, self._alignment)

    def rebind(self, offset: int) -> None:
        """Bind the sub-buffer that begins at a byte."""
        array = self._source.array_ref()
        if array is None:
            self._binding.bind(sub_buffer(self._source.buffer, offset))
            return
        if self._array_ref() is not array:
            sub_buffers = self._sub_buffers = {}
            # Sub-buffers keep the memory, so they go with the array.
            self._array_ref, self._bound_offset = ref(array, lambda _: sub_buffers.clear()), -1
        part = self._sub_buffers.get(offset)
        if part is None:
            part = self._sub_buffers[offset] = sub_buffer(self._source.buffer, offset)
        if self._bound_offset == offset:
            self._binding.buffer = part
        else:
            self._binding.bind(part)
            self._bound_offset = offset
