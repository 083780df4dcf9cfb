"""MaxPool, MaxPoolScatter, MaxPoolGather, AvgPool and AvgPoolGrad -> their device counterparts."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.nn.pool import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGather, MaxPoolScatter
from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.pool import GpuAvgPool, GpuAvgPoolGrad, GpuMaxPool, GpuMaxPoolGather, GpuMaxPoolScatter
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_DEVICE_OPS: dict[type[Op], type[GpuOp]] = {
    AvgPool: GpuAvgPool,
    AvgPoolGrad: GpuAvgPoolGrad,
    MaxPool: GpuMaxPool,
    MaxPoolGather: GpuMaxPoolGather,
    MaxPoolScatter: GpuMaxPoolScatter,
}


@register_lift(*_DEVICE_OPS, every_dtype=True)
def lift_pool(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """MaxPool(x) -> GpuMaxPool(x), and so on."""
    if any(is_complex(v.type.dtype) for v in node.inputs):
        return NoKernel("no OpenCL kernel for pooling of complex numbers")
    return _DEVICE_OPS[type(op)](op, context_name)
