"""Convolve1d and Convolve2d, alone and in a Blockwise -> GpuConvolve."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.conv import GpuConvolve
from pytensor_cl.rewriting.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_batched_lift(Convolve1d, Convolve2d)
@register_lift(Convolve1d, Convolve2d)
def lift_convolve(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuConvolve | NoKernel:
    """Convolve1d(x, w, full) -> GpuConvolve(x, w, full), Convolve2d likewise."""
    if node.outputs[0].type.dtype == "bool":
        return NoKernel("no OpenCL kernel for convolutions of bool")
    mode = node.inputs[2].type
    if isinstance(mode, TensorType) and not all(mode.broadcastable):
        return NoKernel("no OpenCL kernel for a batch of convolutions of different modes")
    return GpuConvolve(op, context_name)
