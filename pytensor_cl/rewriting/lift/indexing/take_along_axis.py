"""Choose -> its device Op."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Choose

from pytensor_cl.ops.indexing.take_along_axis import GpuChoose
from pytensor_cl.rewriting.placement.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Choose, every_dtype=True)
def lift_choose(op: Choose, node: Apply, context_name: str, info: DeviceInfo) -> GpuChoose | NoKernel:
    """Choose(index, choices) -> GpuChoose(index, choices)."""
    if node.inputs[0].type.dtype == "uint64":
        return NoKernel("NumPy takes no uint64 as an index")
    return GpuChoose(op, context_name)
