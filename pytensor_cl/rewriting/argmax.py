"""Argmax -> GpuArgmax."""

from pytensor.graph.basic import Apply
from pytensor.tensor.math import Argmax

from pytensor_cl.ops.argmax import GpuArgmax
from pytensor_cl.rewriting.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Argmax)
def lift_argmax(op: Argmax, node: Apply, context_name: str, info: DeviceInfo) -> GpuArgmax:
    """Argmax(x) -> GpuArgmax(x); argmin is the argmax of the negation already."""
    return GpuArgmax(op, context_name)
