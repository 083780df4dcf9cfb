"""Nonzero -> its device Op."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Nonzero

from pytensor_cl.ops.nonzero import GpuNonzero
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Nonzero, every_dtype=True)
def lift_nonzero(op: Nonzero, node: Apply, context_name: str, info: DeviceInfo) -> GpuNonzero:
    """Nonzero(x) -> GpuNonzero(x)."""
    return GpuNonzero(op, context_name)
