"""Elements of each row, picked by an index: Choose and PermuteRowElements."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.indexing.permute_row_elements import PermuteRowElements
from pytensor_cl.routines.indexing.take_along_axis import Choose
from pytensor_cl.runtime.context import Context

__all__ = ["GpuChoose", "GpuPermuteRowElements"]


class GpuChoose(GpuOp):
    """Device counterpart of `Choose` from the rows of an array."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        index, choices = (v.type for v in node.inputs)
        return Choose(context, choices.dtype, index.dtype, index.ndim, choices.ndim, self.host.mode)


class GpuPermuteRowElements(GpuOp):
    """Device counterpart of `PermuteRowElements`."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        x, index = (v.type for v in node.inputs)
        broadcast = x.broadcastable, index.broadcastable
        return PermuteRowElements(context, x.dtype, index.dtype, broadcast, self.host.inverse)
