"""Convolve1d and Convolve2d, alone and in a Blockwise -> GpuConvolve; Conv and its gradients -> GpuConv and its own."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.signal.conv import Convolve1d, Convolve2d
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.nn.conv import Conv, ConvGradInput, ConvGradWeight
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.conv import GpuConv, GpuConvGradInput, GpuConvGradWeight, GpuConvolve
from pytensor_cl.ops.registry import NoKernel, register_batched_lift, register_lift
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


_DEVICE_OPS: dict[type[Op], type[GpuOp]] = {
    Conv: GpuConv,
    ConvGradInput: GpuConvGradInput,
    ConvGradWeight: GpuConvGradWeight,
}


@register_lift(*_DEVICE_OPS, every_dtype=True)
def lift_conv(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Conv(x, w) -> GpuConv(x, w), and so on."""
    dtype = node.outputs[0].type.dtype
    if dtype == "bool" or is_complex(dtype):
        return NoKernel(f"no OpenCL kernel for convolutions of {dtype}")
    return _DEVICE_OPS[type(op)](op, context_name)
