"""Flat indices from the indices along each dimension, and back."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pytensor_cl.ops.base import DEVICE, HOST, GpuOp, Routine
from pytensor_cl.routines.indexing.ravel_multi_index import RavelMultiIndex, UnravelIndex
from pytensor_cl.runtime.context import Context

__all__ = ["GpuRavelMultiIndex", "GpuUnravelIndex"]


class GpuRavelMultiIndex(GpuOp):
    """Device counterpart of `RavelMultiIndex`; the extents stay on the host.

    Parameters
    ----------
    host, context_name
        See `GpuOp`.
    count
        Number of index arrays.
    """

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
        return RavelMultiIndex(context, dtypes, ndims, self.host.mode, self.host.order)


class GpuUnravelIndex(GpuOp):
    """Device counterpart of `UnravelIndex`; the extents stay on the host."""

    is_memory_bound = True
    checks_data = True
    operand_placements = (DEVICE, HOST)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel."""
        kind = node.inputs[0].type
        return UnravelIndex(context, kind.dtype, kind.ndim, len(node.outputs), self.host.order)
