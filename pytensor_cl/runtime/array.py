"""Arrays on a device: a buffer, a layout and the context that both belong to."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pytensor_cl.runtime.layout import Layout

if TYPE_CHECKING:
    from pytensor_cl.runtime import opencl as cl
    from pytensor_cl.runtime.context import Context

__all__ = ["GpuArray"]


class GpuArray:
    """An n-dimensional array in device memory.

    Parameters
    ----------
    context
        The open context that owns the buffer.
    buffer
        Device memory; several arrays may be views of one buffer.
    dtype
        Type of an element.
    layout
        Shape, strides and offset, in elements.
    """

    __slots__ = ("__weakref__", "buffer", "context", "dtype", "layout")
    __array_priority__ = 1000.0

    def __init__(self, context: "Context", buffer: "cl.Buffer", dtype: np.dtype, layout: Layout) -> None:
        self.context = context
        self.buffer = buffer
        self.dtype = dtype
        self.layout = layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Step of each dimension, in bytes, as NumPy's."""
        return tuple(s * self.dtype.itemsize for s in self.layout.strides)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> "GpuArray":
        """The array with its dimensions reversed; a view."""
        return self.view(self.layout.transpose())

    def view(self, layout: Layout) -> "GpuArray":
        """Return an array over the same buffer with another layout."""
        return GpuArray(self.context, self.buffer, self.dtype, layout)

    def __getitem__(self, items: Any) -> "GpuArray":
        """Apply basic indexing (integers, slices, ``...``); a view."""
        items = items if isinstance(items, tuple) else (items,)
        at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
        if at is not None:
            fill = (slice(None),) * (self.ndim - len(items) + 1)
            items = items[:at] + fill + items[at + 1 :]
        if not all(isinstance(item, (int, np.integer, slice)) for item in items):
            raise IndexError("device arrays take integers, slices and ... as indices; more in PyTensor graphs")
        return self.view(self.layout.subscript(items))

    def __len__(self) -> int:
        if not self.layout.shape:
            raise TypeError("len() of a 0-d array")
        return self.layout.shape[0]

    def sync(self) -> None:
        """Wait until the device has computed the array (and all that was enqueued before it)."""
        self.context.queue.wait()

    def to_host(self) -> np.ndarray:
        """Copy the array into a new NumPy array; waits until it is there."""
        return self.context.download(self)

    def copy(self) -> "GpuArray":
        """Return a copy on the same device; does not wait."""
        return self.context.duplicate(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "GpuArray":
        copied = memo[id(self)] = self.copy()
        return copied

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array on a device cannot be seen by NumPy without a copy")
        host = self.to_host()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """Export a copy on the host: OpenCL buffers have no address that other libraries could use."""
        return self.to_host().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def __reduce__(self) -> tuple[Any, ...]:
        return self.context.restore, (self.context.name, self.to_host())

    def __float__(self) -> float:
        return float(self.to_host())

    def __int__(self) -> int:
        return int(self.to_host())

    def __bool__(self) -> bool:
        return bool(self.to_host())

    def __repr__(self) -> str:
        # Never reads the device: a failing device must still be able to print its arrays.
        return f"GpuArray(shape={self.shape}, dtype={self.dtype}, context={self.context.name!r})"

    def to_pyopencl(self) -> Any:
        """Return a ``pyopencl.array.Array`` over the same buffer."""
        from pyopencl.array import Array

        offset = self.layout.offset * self.dtype.itemsize
        return Array(
            self.context.queue.share(),
            self.shape,
            self.dtype,
            strides=self.strides,
            data=self.buffer,
            offset=offset,
        )
