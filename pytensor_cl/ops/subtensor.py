"""Basic indexing: views, and copies of which such a view is written."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.scalar import add
from pytensor.tensor.subtensor import unflatten_index_variables

from pytensor_cl.ops.base import DEVICE, EITHER, HOST, GpuOp, Routine, ViewRoutine
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.routines.elemwise import Cast, Copy, ElementFunction, Elemwise
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.scalar import element_function
from pytensor_cl.template import KernelSource

__all__ = ["GpuIncSubtensor", "GpuSubtensor"]


class _Index(ViewRoutine):
    def __init__(self, entries: tuple[int | slice, ...]) -> None:
        self._entries = entries

    def layout(self, layout: Layout, *values: Any) -> Layout:
        return layout.subscript(unflatten_index_variables([int(v) for v in values], self._entries))


class GpuSubtensor(GpuOp):
    """Device counterpart of `Subtensor`: integers and slices with any step, static or computed on the host."""

    view_map = {0: [0]}
    works = False
    demands = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _Index(tuple(self.host.idx_list))


class _Write:
    """Copy an array and write a view of the copy.

    Parameters
    ----------
    copy
        Makes the copy.
    index
        Makes the view.
    write
        Computes the view's elements: from those and the value, or from the value alone.
    adds
        Whether it reads the elements.
    """

    def __init__(self, copy: Copy, index: _Index, write: Elemwise, adds: bool) -> None:
        self._copy = copy
        self._index = index
        self._write = write
        self._adds = adds

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the copy and of the write."""
        return (*self._copy.sources(), *self._write.sources())

    def __call__(self, array: GpuArray, value: Any, *values: Any) -> tuple[GpuArray, ...]:
        layout = self._index.layout(Layout.contiguous(array.shape), *values)
        if isinstance(value, GpuArray):
            value = value.view(self._fitted(value.layout, layout.shape))
        (result,) = self._copy(array)
        if layout.size:
            view = result.view(layout)
            self._write.launch((view,), (view, value) if self._adds else (value,))
        return (result,)

    def _fitted(self, value: Layout, shape: tuple[int, ...]) -> Layout:
        """Broadcast the value; an assignment drops leading dimensions of length one, as NumPy's does."""
        extra = max(0, value.ndim - len(shape))
        if not self._adds and set(value.shape[:extra]) <= {1}:
            value = Layout(value.shape[extra:], value.strides[extra:], value.offset)
        try:
            return value.broadcast_to(shape)
        except ValueError as error:
            raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {shape}") from error


class GpuIncSubtensor(GpuOp):
    """Device counterpart of `IncSubtensor`: sets or adds, in a copy."""

    streams = True
    demands = (DEVICE, EITHER, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the copy with the write."""
        array, value = (v.type for v in node.inputs[:2])
        dtype, adds = array.dtype, not self.host.set_instead_of_inc
        by_value = is_by_value(node.inputs[1])
        entries = tuple(self.host.idx_list)
        ndim = array.ndim - sum(isinstance(entry, int) for entry in entries)
        function: ElementFunction = Cast(value.dtype, dtype)
        if adds:
            function = element_function(add, (dtype, value.dtype), (dtype,))
        first = 0 if adds else 1  # of the view and the value
        known = [(False,) * ndim, () if by_value else (True,) * ndim]
        write = Elemwise(context, function, known[first:], ndim, [False, by_value][first:])
        return _Write(Copy(context, dtype, array.ndim), _Index(entries), write, adds)
