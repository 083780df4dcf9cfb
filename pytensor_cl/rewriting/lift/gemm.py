"""Dot22, Dot22Scalar, Gemm, Dot, BatchedDot and batched matmul -> GEMM on the device."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blas import BatchedDot, Dot22, Dot22Scalar, Gemm
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.gemm import GpuBatchedDot, GpuDot, GpuDot22, GpuDot22Scalar, GpuGemm, GpuMatmul
from pytensor_cl.rewriting.placement.registry import NoKernel, batched_lift, device_op, register_lift
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


@register_lift(Blockwise, every_dtype=True)
def lift_blockwise(op: Blockwise, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Blockwise(Dot)(A, B) -> GpuMatmul(A, B); an Op without batch dimensions is looked through."""
    if isinstance(op.core_op, Dot):
        return GpuMatmul(op, context_name)
    if op.batch_ndim(node) == 0:
        core = op.core_op.make_node(*node.inputs)
        if [o.type.dtype for o in core.outputs] == [o.type.dtype for o in node.outputs]:
            return device_op(core, context_name, info)
    lift = batched_lift(op.core_op, node)
    if lift is not None:
        return lift(op, node, context_name, info)
    return NoKernel(f"no batched OpenCL kernel for {type(op.core_op).__name__} yet")
