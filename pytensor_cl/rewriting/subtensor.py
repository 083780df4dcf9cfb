"""Subtensor -> GpuSubtensor."""

from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import Subtensor

from pytensor_cl.ops.subtensor import GpuSubtensor
from pytensor_cl.rewriting.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Subtensor)
def lift_subtensor(op: Subtensor, node: Apply, context_name: str, info: DeviceInfo) -> GpuSubtensor:
    """x[i, a:b:c] -> a view on the device; the indices stay on the host."""
    return GpuSubtensor(op, context_name)
