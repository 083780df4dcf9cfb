"""Basic indexing: views, and copies of an array in which a view is updated."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import add
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, unflatten_index_variables

from pytensor_cl.codegen.template import KernelSource
from pytensor_cl.ops.alloc import GpuAllocEmpty
from pytensor_cl.ops.base import ANY, DEVICE, HOST, GpuOp, Routine, ViewRoutine
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.names import Show, host_name
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.elemwise.routine import Cast, Copy, ElementFunction, Elemwise
from pytensor_cl.routines.indexing.slice_update import Items, SliceUpdate
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.runtime.layout import Layout
from pytensor_cl.scalar.base import element_function


class _Index(ViewRoutine):
    def __init__(self, entries: tuple[int | slice, ...]) -> None:
        self._entries = entries

    def items(self, values: Sequence[Any]) -> Items:
        """Return the index with its values."""
        return tuple(unflatten_index_variables([int(v) for v in values], self._entries))

    def layout(self, layout: Layout, *values: Any) -> Layout:
        return layout.subscript(self.items(values))


@register_lift(Subtensor, numba_safe=True, every_dtype=True)
class GpuSubtensor(GpuOp):
    """Device counterpart of `Subtensor`: integers and slices with any step, static or computed on the host."""

    view_map = {0: [0]}
    is_compute = False
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _Index(tuple(self.host.idx_list))


class _Write:
    """Updates a view of an array: computes its elements from the value and, if it adds, from the old elements."""

    def __init__(self, index: _Index, write: Elemwise, adds: bool) -> None:
        self._index = index
        self._write = write
        self._adds = adds

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernel of the write."""
        return self._write.sources()

    def prepare(self, shape: tuple[int, ...], value: Any, *values: Any) -> tuple[Layout, Any, Items]:
        """Return the layout of the view, the value in its shape, and the index."""
        items = self._index.items(values)
        layout = Layout.contiguous(shape).subscript(items)
        if isinstance(value, GpuArray):
            value = value.with_layout(self._fitted(value.layout, layout.shape))
        return layout, value, items

    def launch(self, result: GpuArray, layout: Layout, value: Any) -> None:
        """Enqueue a prepared update."""
        if layout.size:
            view = result.with_layout(layout)
            self._write.launch((view,), (view, value) if self._adds else (value,))

    def _fitted(self, value: Layout, shape: tuple[int, ...]) -> Layout:
        """Broadcast the value; an assignment drops leading dimensions of length one, as NumPy's does."""
        value = value if self._adds else value.without_leading_ones(len(shape))
        try:
            return value.broadcast_to(shape)
        except ValueError as error:
            raise ValueError(f"could not broadcast input array from shape {value.shape} into shape {shape}") from error


class _Writes:
    """Copies an array and updates views of the copy, one after the other.

    There is no copy where the array has no values yet. Each write has a number of arguments: the value and the indices
    that are not static. `together` does all that with one kernel, for values that are arrays of the same dtype.
    """

    def __init__(
        self, copy: Copy | None, writes: Sequence[tuple[_Write, int]], together: SliceUpdate | None = None
    ) -> None:
        self._copy = copy
        self._writes = tuple(writes)
        self._together = together

    def sources(self) -> tuple[KernelSource, ...]:
        """Kernels of the copy and of the writes."""
        if self._together is not None:
            return self._together.sources()
        copies = () if self._copy is None else self._copy.sources()
        return (*copies, *(source for write, _ in self._writes for source in write.sources()))

    def __call__(self, array: GpuArray, *values: Any) -> tuple[GpuArray, ...]:
        rest = iter(values)
        ready = [write.prepare(array.shape, *(next(rest) for _ in range(n))) for write, n in self._writes]
        if self._together is not None and self._together.pays(array, sum(layout.size for layout, *_ in ready)):
            result = array.context.empty(array.shape, array.dtype)
            self._together.launch(result, array, [items for *_, items in ready], [value for _, value, _ in ready])
            return (result,)
        (result,) = (array.context.empty(array.shape, array.dtype),) if self._copy is None else self._copy(array)
        for (write, _), (layout, value, _) in zip(self._writes, ready, strict=True):
            write.launch(result, layout, value)
        return (result,)


def _writes(array: Variable, parts: Sequence[tuple[IncSubtensor, Sequence[Variable]]], context: Context) -> _Writes:
    """Return the routine that updates slices of an array; each part is an Op with its value and indices."""
    kind = array.type
    is_empty = array.owner is not None and isinstance(array.owner.op, GpuAllocEmpty)
    copy = None if is_empty else Copy(context, kind.dtype, kind.ndim)
    writes = [(_write(host, array, own[0], context), len(own)) for host, own in parts]
    are_arrays = all(own[0].type.dtype == kind.dtype and not is_by_value(own[0]) for _, own in parts)
    if is_empty or not are_arrays or not SliceUpdate.takes(context, kind.dtype, kind.ndim, len(parts)):
        return _Writes(copy, writes)
    adds = [not host.set_instead_of_inc for host, _ in parts]
    return _Writes(copy, writes, SliceUpdate(context, kind.dtype, kind.ndim, adds))


def _write(host: IncSubtensor, array: Variable, value: Variable, context: Context) -> _Write:
    """Return the update of a view of an array by a value."""
    dtype, adds = array.type.dtype, not host.set_instead_of_inc
    by_value = is_by_value(value)
    entries = tuple(host.idx_list)
    ndim = array.type.ndim - sum(isinstance(entry, int) for entry in entries)
    function: ElementFunction = Cast(value.type.dtype, dtype)
    if adds:
        function = element_function(add, (dtype, value.type.dtype), (dtype,))
    first = 0 if adds else 1  # adding reads the view, too; setting only reads the value
    known = [(False,) * ndim, () if by_value else (True,) * ndim]
    return _Write(_Index(entries), Elemwise(context, function, known[first:], ndim, [False, by_value][first:]), adds)


class GpuIncSubtensor(GpuOp):
    """Device counterpart of `IncSubtensor`: sets or adds, in a copy."""

    is_memory_bound = True
    operand_placements = (DEVICE, ANY, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the copy with the update."""
        return _writes(node.inputs[0], [(self.host, node.inputs[1:])], context)


class GpuMergedIncSubtensor(GpuOp):
    """Several `GpuIncSubtensor`, each applied to the result of the one before, with one copy.

    The inputs are the array, then for each host Op its value and its indices, whose number is in `counts`.
    """

    __props__ = ("hosts", "counts", "context_name")
    is_memory_bound = True

    def __init__(self, hosts: Sequence[IncSubtensor], counts: Sequence[int], context_name: str) -> None:
        self.hosts = tuple(hosts)
        self.counts = tuple(counts)
        self.context_name = context_name

    def named(self, show: Show) -> str:
        """Return the name; `show` joins the names of parts."""
        return f"GpuMergedIncSubtensor{{{show([host_name(host, show) for host in self.hosts])}}}"

    def placement_of(self, index: int) -> str:
        """Inputs keep the placements of the merged Ops."""
        return ANY

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node of the inputs of the merged nodes."""
        kind = inputs[0].type
        return self.apply(inputs, [kind.host_type])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the array's shape."""
        return [shapes[0]]

    def parts(self, node: Apply) -> Iterator[tuple[IncSubtensor, list[Variable]]]:
        """Yield each Op with its value and its indices."""
        rest = iter(node.inputs[1:])
        for host, count in zip(self.hosts, self.counts, strict=True):
            yield host, [next(rest) for _ in range(count)]

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the copy with the updates."""
        return _writes(node.inputs[0], list(self.parts(node)), context)


def reason_against_casting(target: str, value: str) -> NoKernel | None:
    """Say why values of a dtype cannot be added to an array of another, as NumPy does; None if they can."""
    if np.can_cast(np.result_type(target, value), target, "same_kind"):
        return None
    return NoKernel(f"NumPy does not add {value} to an array of {target} in place")


@register_lift(IncSubtensor, numba_safe=True, every_dtype=True)
def lift_inc_subtensor(node: Apply, context_name: str, info: DeviceInfo) -> GpuIncSubtensor | NoKernel:
    """x[i, a:b:c] = y, or += y -> a copy of x, and a kernel that writes into a view of it."""
    op: Any = node.op
    array, value = node.inputs[:2]
    missing = None if op.set_instead_of_inc else reason_against_casting(array.type.dtype, value.type.dtype)
    host = IncSubtensor(op.idx_list, set_instead_of_inc=op.set_instead_of_inc)
    return missing or GpuIncSubtensor(host, context_name)
