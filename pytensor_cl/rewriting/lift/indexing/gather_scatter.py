"""AdvancedSubtensor and AdvancedIncSubtensor -> their device Ops."""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from pytensor_cl.ops.base import ANY, DEVICE
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor, index_placements
from pytensor_cl.rewriting.placement.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["uncastable"]


def uncastable(target: str, value: str) -> NoKernel | None:
    """Say why values of a dtype cannot be added to an array of another, as NumPy does."""
    if np.can_cast(np.result_type(target, value), target, "same_kind"):
        return None
    return NoKernel(f"NumPy does not add {value} to an array of {target} in place")


@register_lift(AdvancedSubtensor, every_dtype=True)
def lift_advanced_subtensor(
    op: AdvancedSubtensor, node: Apply, context_name: str, info: DeviceInfo
) -> GpuAdvancedSubtensor:
    """x[i, :, j] -> a gather on the device; bounds of slices stay on the host."""
    return GpuAdvancedSubtensor(op, context_name, (DEVICE, *index_placements(op.idx_list, node.inputs[1:])))


@register_lift(AdvancedIncSubtensor, every_dtype=True)
def lift_advanced_inc_subtensor(
    op: AdvancedIncSubtensor, node: Apply, context_name: str, info: DeviceInfo
) -> GpuAdvancedIncSubtensor | NoKernel:
    """x[i, :, j] = y, or += y -> a scatter into a copy."""
    array, value, *index = node.inputs
    missing = None if op.set_instead_of_inc else uncastable(array.type.dtype, value.type.dtype)
    host = AdvancedIncSubtensor(
        op.idx_list, set_instead_of_inc=op.set_instead_of_inc, ignore_duplicates=op.ignore_duplicates
    )
    operand_placements = DEVICE, ANY, *index_placements(op.idx_list, index)
    return missing or GpuAdvancedIncSubtensor(host, context_name, operand_placements)
