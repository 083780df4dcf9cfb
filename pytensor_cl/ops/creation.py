"""Arrays that are computed from a few host values."""

from pytensor.graph.basic import Apply

from pytensor_cl.ops.base import HOST, GpuOp, Routine
from pytensor_cl.routines.creation import ARange, Bartlett, Eye
from pytensor_cl.runtime.context import Context

__all__ = ["GpuARange", "GpuBartlett", "GpuEye"]


class GpuARange(GpuOp):
    """Device counterpart of `ARange`, where a device Op reads its values."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of evenly spaced values."""
        return ARange(context, node.outputs[0].type.dtype)


class GpuEye(GpuOp):
    """Device counterpart of `Eye`, where a device Op reads its values."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels that fill a matrix and its diagonal."""
        return Eye(context, node.outputs[0].type.dtype)


class GpuBartlett(GpuOp):
    """Device counterpart of `Bartlett`, where a device Op reads its values."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the window."""
        return Bartlett(context, node.outputs[0].type.dtype)
