"""Subtensor and IncSubtensor -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from pytensor_cl.ops.subtensor import GpuIncSubtensor, GpuSubtensor
from pytensor_cl.rewriting.advanced_subtensor import uncastable
from pytensor_cl.rewriting.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Subtensor, every_dtype=True)
def lift_subtensor(op: Subtensor, node: Apply, context_name: str, info: DeviceInfo) -> GpuSubtensor:
    """x[i, a:b:c] -> a view on the device; the indices stay on the host."""
    return GpuSubtensor(op, context_name)


@register_lift(IncSubtensor, every_dtype=True)
def lift_inc_subtensor(
    op: IncSubtensor, node: Apply, context_name: str, info: DeviceInfo
) -> GpuIncSubtensor | NoKernel:
    """x[i, a:b:c] = y, or += y -> a copy of x, and a kernel that writes into a view of it."""
    missing = None if op.set_instead_of_inc else uncastable(node.inputs[0].type.dtype, node.inputs[1].type.dtype)
    host = IncSubtensor(op.idx_list, set_instead_of_inc=op.set_instead_of_inc)
    return missing or GpuIncSubtensor(host, context_name)
