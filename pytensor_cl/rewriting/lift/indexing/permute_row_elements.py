"""PermuteRowElements -> its device Op."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import PermuteRowElements

from pytensor_cl.ops.indexing.permute_row_elements import GpuPermuteRowElements
from pytensor_cl.rewriting.placement.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(PermuteRowElements, every_dtype=True)
def lift_permute_row_elements(
    op: PermuteRowElements, node: Apply, context_name: str, info: DeviceInfo
) -> GpuPermuteRowElements | NoKernel:
    """PermuteRowElements(x, index) -> GpuPermuteRowElements(x, index)."""
    if not node.inputs[0].type.ndim:
        return NoKernel("a permutation of no elements")
    return GpuPermuteRowElements(op, context_name)
