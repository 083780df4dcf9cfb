"""Matrix products -> GEMM on the device."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm
from pytensor.tensor.math import Dot

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.gemm import GpuBatchedDot, GpuDot, GpuDot22, GpuDot22Scalar, GpuGemm
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


_OPS: dict[type[Op], type[GpuOp]] = {
    Dot22: GpuDot22,
    Dot22Scalar: GpuDot22Scalar,
    Gemm: GpuGemm,
    Dot: GpuDot,
    BatchedDot: GpuBatchedDot,
}


@register_lift(*_OPS, every_dtype=True)
def lift_product(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp:
    """Dot22(A, B) -> GpuDot22(A, B), and so on."""
    return _OPS[type(op)](op, context_name)
