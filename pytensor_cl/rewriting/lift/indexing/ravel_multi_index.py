"""RavelMultiIndex and UnravelIndex -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import RavelMultiIndex, UnravelIndex

from pytensor_cl.ops.indexing.ravel_multi_index import GpuRavelMultiIndex, GpuUnravelIndex
from pytensor_cl.rewriting.placement.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(RavelMultiIndex)
def lift_ravel_multi_index(op: RavelMultiIndex, node: Apply, context_name: str, info: DeviceInfo) -> GpuRavelMultiIndex:
    """RavelMultiIndex(i, j, dims) -> GpuRavelMultiIndex(i, j, dims)."""
    return GpuRavelMultiIndex(op, context_name, len(node.inputs) - 1)


@register_lift(UnravelIndex)
def lift_unravel_index(
    op: UnravelIndex, node: Apply, context_name: str, info: DeviceInfo
) -> GpuUnravelIndex | NoKernel:
    """UnravelIndex(flat, dims) -> GpuUnravelIndex(flat, dims)."""
    if not node.outputs:
        return NoKernel("an index into an array of no dimensions")
    return GpuUnravelIndex(op, context_name)
