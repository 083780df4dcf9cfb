"""CumOp -> GpuCumOp."""

from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import CumOp

from pytensor_cl.ops.cumop import GpuCumOp
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(CumOp, every_dtype=True)
def lift_cumop(op: CumOp, node: Apply, context_name: str, info: DeviceInfo) -> GpuCumOp:
    """cumsum(x) -> GpuCumOp(x), cumprod(x) likewise."""
    return GpuCumOp(op, context_name)
