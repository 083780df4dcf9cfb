"""Permutation of the elements of each row."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.indexing.permute_row_elements import PermuteRowElements
from pytensor_cl.runtime.context import Context

__all__ = ["GpuPermuteRowElements"]


class GpuPermuteRowElements(GpuOp):
    """Device counterpart of `PermuteRowElements`."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        x, index = (v.type for v in node.inputs)
        broadcast = x.broadcastable, index.broadcastable
        return PermuteRowElements(context, x.dtype, index.dtype, broadcast, self.host.inverse)
