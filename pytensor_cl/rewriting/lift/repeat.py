"""Repeat -> its device Op."""

from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import Repeat

from pytensor_cl.ops.registry import register_lift
from pytensor_cl.ops.repeat import GpuRepeat
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Repeat, every_dtype=True)
def lift_repeat(op: Repeat, node: Apply, context_name: str, info: DeviceInfo) -> GpuRepeat:
    """Repeat(x, repeats) -> GpuRepeat(x, repeats)."""
    return GpuRepeat(op, context_name)
