"""ARange, Eye and Bartlett -> arrays made on the device."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import ARange, Eye
from pytensor.tensor.extra_ops import Bartlett

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.creation import GpuARange, GpuBartlett, GpuEye
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(ARange, every_dtype=True)
def lift_arange(op: ARange, node: Apply, context_name: str, info: DeviceInfo) -> GpuARange | NoKernel:
    """ARange(start, stop, step) -> GpuARange(start, stop, step); the three numbers stay on the host."""
    if op.dtype == "bool" or is_complex(op.dtype):
        return NoKernel(f"no OpenCL kernel for ranges of {op.dtype}")
    return GpuARange(op, context_name)


@register_lift(Eye, every_dtype=True)
def lift_eye(op: Eye, node: Apply, context_name: str, info: DeviceInfo) -> GpuEye:
    """Eye(n, m, k) -> GpuEye(n, m, k); the three numbers stay on the host."""
    return GpuEye(op, context_name)


@register_lift(Bartlett)
def lift_bartlett(op: Bartlett, node: Apply, context_name: str, info: DeviceInfo) -> GpuBartlett:
    """Bartlett(n) -> GpuBartlett(n); the number stays on the host."""
    return GpuBartlett(op, context_name)
