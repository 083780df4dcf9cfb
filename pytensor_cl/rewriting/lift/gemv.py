"""Products of a matrix and a vector -> GEMV on the device."""

from pytensor.graph.basic import Apply
from pytensor.tensor.blas import Gemv

from pytensor_cl.ops.gemv import GpuGemv
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Gemv, every_dtype=True)
def lift_gemv(op: Gemv, node: Apply, context_name: str, info: DeviceInfo) -> GpuGemv:
    """Gemv(y, alpha, A, x, beta) -> GpuGemv(y, alpha, A, x, beta)."""
    return GpuGemv(op, context_name)
