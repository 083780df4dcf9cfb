"""Arrays that are computed from a few host values."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import ARange, Eye
from pytensor.tensor.extra_ops import Bartlett

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.base import HOST, GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines import creation
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


def _refuse_dtype(node: Apply, info: DeviceInfo) -> NoKernel | None:
    dtype = node.op.dtype
    is_refused = dtype == "bool" or is_complex(dtype)
    return NoKernel(f"no OpenCL kernel for ranges of {dtype}") if is_refused else None


@register_lift(ARange, numba_safe=True, every_dtype=True, refuse=_refuse_dtype)
class GpuARange(GpuOp):
    """Device counterpart of `ARange`, where a device Op reads its values."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of evenly spaced values."""
        return creation.ARange(context, node.outputs[0].type.dtype)


@register_lift(Eye, numba_safe=True, every_dtype=True)
class GpuEye(GpuOp):
    """Device counterpart of `Eye`, where a device Op reads its values."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels that fill a matrix and its diagonal."""
        return creation.Eye(context, node.outputs[0].type.dtype)


@register_lift(Bartlett, numba_safe=False)
class GpuBartlett(GpuOp):
    """Device counterpart of `Bartlett`, where a device Op reads its values."""

    is_compute = False
    is_source = True
    operand_placements = (HOST,)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the window."""
        return creation.Bartlett(context, node.outputs[0].type.dtype)
