"""Cumulative sums and products along an axis."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.cumop import CumOp
from pytensor_cl.runtime.context import Context

__all__ = ["GpuCumOp"]


class GpuCumOp(GpuOp):
    """Device counterpart of `CumOp`: cumsum and cumprod."""

    streams = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel along the axis."""
        source = node.inputs[0].type
        return CumOp(context, self.host.mode, source.dtype, source.ndim, self.host.axis)
