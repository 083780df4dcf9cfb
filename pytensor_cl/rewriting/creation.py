"""ARange and Eye -> arrays made on the device."""

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import ARange, Eye

from pytensor_cl.ops.creation import GpuARange, GpuEye
from pytensor_cl.rewriting.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(ARange)
def lift_arange(op: ARange, node: Apply, context_name: str, info: DeviceInfo) -> GpuARange | NoKernel:
    """ARange(start, stop, step) -> GpuARange(start, stop, step); the three numbers stay on the host."""
    if op.dtype == "bool":
        return NoKernel("no OpenCL kernel for ranges of bool")
    return GpuARange(op, context_name)


@register_lift(Eye)
def lift_eye(op: Eye, node: Apply, context_name: str, info: DeviceInfo) -> GpuEye:
    """Eye(n, m, k) -> GpuEye(n, m, k); the three numbers stay on the host."""
    return GpuEye(op, context_name)
