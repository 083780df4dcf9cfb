"""Flat indices from the indices along each dimension, and back."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.extra_ops import RavelMultiIndex, UnravelIndex

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.indexing import ravel_multi_index as routines
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo


class GpuRavelMultiIndex(GpuOp):
    """Device counterpart of `RavelMultiIndex` of `count` index arrays; the extents stay on the host."""

    __props__ = ("host", "context_name", "count")
    is_memory_bound = True
    checks_data = True

    def __init__(self, host: Op, context_name: str, count: int) -> None:
        super().__init__(host, context_name)
        self.count = count
        self.operand_placements = (*(DEVICE,) * count, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        kinds = [v.type for v in node.inputs[: self.count]]
        dtypes, ndims = [k.dtype for k in kinds], [k.ndim for k in kinds]
        return routines.RavelMultiIndex(context, dtypes, ndims, self.host.mode, self.host.order)


@register_lift(RavelMultiIndex, numba_safe=False)
def lift_ravel_multi_index(node: Apply, context_name: str, info: DeviceInfo) -> GpuRavelMultiIndex:
    """RavelMultiIndex(i, j, dims) -> GpuRavelMultiIndex(i, j, dims)."""
    return GpuRavelMultiIndex(node.op, context_name, len(node.inputs) - 1)


def _refuse_empty(node: Apply, info: DeviceInfo) -> NoKernel | None:
    return None if node.outputs else NoKernel("an index into an array of no dimensions")


@register_lift(UnravelIndex, numba_safe=False, refuse=_refuse_empty)
class GpuUnravelIndex(GpuOp):
    """Device counterpart of `UnravelIndex`; the extents stay on the host."""

    is_memory_bound = True
    checks_data = True
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        kind = node.inputs[0].type
        return routines.UnravelIndex(context, kind.dtype, kind.ndim, len(node.outputs), self.host.order)
