"""Sorting along an axis."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.runtime.context import Context

__all__ = ["GpuArgSort", "GpuSort"]


class GpuSort(GpuOp):
    """Device counterpart of `SortOp`; every kind is a stable sort."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels along the axis."""
        source = node.inputs[0].type
        return Sort(context, source.dtype, source.ndim, self.host.axis)


class GpuArgSort(GpuOp):
    """Device counterpart of `ArgSortOp`; every kind is a stable sort."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels along the axis."""
        source = node.inputs[0].type
        return ArgSort(context, source.dtype, source.ndim, self.host.axis)
