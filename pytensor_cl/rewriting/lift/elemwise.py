"""Elemwise -> GpuElemwise."""

from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import Elemwise

from pytensor_cl.ops.elemwise import GpuElemwise
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.base import supported

__all__ = ["unsupported_scalar"]


def unsupported_scalar(node: Apply, info: DeviceInfo) -> str | None:
    """Say why a device has no code for an Elemwise node's scalar Op; None if it has."""
    inputs = tuple(v.type.dtype for v in node.inputs)
    outputs = tuple(v.type.dtype for v in node.outputs)
    return supported(node.op.scalar_op, inputs, outputs, info.has_fp64)


@register_lift(Elemwise, every_dtype=True)
def lift_elemwise(op: Elemwise, node: Apply, context_name: str, info: DeviceInfo) -> GpuElemwise | NoKernel:
    """Elemwise(x, ...) -> GpuElemwise(x, ...)."""
    reason = unsupported_scalar(node, info)
    return NoKernel(reason) if reason else GpuElemwise(Elemwise(op.scalar_op, name=op.name), context_name)
