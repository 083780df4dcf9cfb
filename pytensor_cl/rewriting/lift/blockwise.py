"""Blockwise -> the device Op of a batch."""

from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.gemm import GpuMatmul
from pytensor_cl.ops.registry import NoKernel, batched_lift, device_op, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Blockwise, every_dtype=True)
def lift_blockwise(op: Blockwise, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp | NoKernel:
    """Blockwise(Dot)(A, B) -> GpuMatmul(A, B); without batch dimensions: the core Op's device Op."""
    if isinstance(op.core_op, Dot):
        return GpuMatmul(op, context_name)
    if op.batch_ndim(node) == 0:
        core = op.core_op.make_node(*node.inputs)
        if [o.type.dtype for o in core.outputs] == [o.type.dtype for o in node.outputs]:
            return device_op(core, context_name, info)
    lift = batched_lift(op.core_op, node)
    if lift is not None:
        return lift(op, node, context_name, info)
    known = getattr(node.tag, "opencl_no_kernel", None)
    return NoKernel(known or f"no batched OpenCL kernel for {type(op.core_op).__name__} yet")
