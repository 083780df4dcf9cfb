"""An index at each place picks one of several elements."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.indexing.take_along_axis import Choose
from pytensor_cl.runtime.context import Context

__all__ = ["GpuChoose"]


class GpuChoose(GpuOp):
    """Device counterpart of `Choose` from the rows of an array."""

    is_memory_bound = True
    checks_data = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        index, choices = (v.type for v in node.inputs)
        return Choose(context, choices.dtype, index.dtype, index.ndim, choices.ndim, self.host.mode)
