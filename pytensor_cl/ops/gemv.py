"""Products of a matrix and a vector."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import DEVICE, EITHER, GpuOp, Routine
from pytensor_cl.ops.gemm import CheckedAddend
from pytensor_cl.routines.gemv import Gemv
from pytensor_cl.runtime.context import Context

__all__ = ["GpuGemv"]


class GpuGemv(GpuOp):
    """Device counterpart of `Gemv`: ``beta * y + alpha * A @ x``; y is not overwritten."""

    demands = (DEVICE, EITHER, DEVICE, DEVICE, EITHER)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the GEMV."""
        return CheckedAddend(Gemv(context, node.outputs[0].type.dtype, has_y=True), node)
