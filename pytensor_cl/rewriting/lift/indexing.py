"""Indexing Ops -> their device Ops."""

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import Choose, ExtractDiag, PermuteRowElements
from pytensor.tensor.extra_ops import FillDiagonal, FillDiagonalOffset, RavelMultiIndex, UnravelIndex
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, IncSubtensor, Subtensor

from pytensor_cl.ops.base import ANY, DEVICE, GpuOp
from pytensor_cl.ops.indexing.diagonal import GpuExtractDiag, GpuFillDiagonal, GpuFillDiagonalOffset
from pytensor_cl.ops.indexing.gather_scatter import GpuAdvancedIncSubtensor, GpuAdvancedSubtensor, index_placements
from pytensor_cl.ops.indexing.ravel_multi_index import GpuRavelMultiIndex, GpuUnravelIndex
from pytensor_cl.ops.indexing.slice_update import GpuIncSubtensor, GpuSubtensor
from pytensor_cl.ops.indexing.take_along_axis import ChooseOf, GpuChoose, GpuChooseOf, GpuPermuteRowElements
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


def _reason_against_casting(target: str, value: str) -> NoKernel | None:
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
    missing = None if op.set_instead_of_inc else _reason_against_casting(array.type.dtype, value.type.dtype)
    host = AdvancedIncSubtensor(
        op.idx_list, set_instead_of_inc=op.set_instead_of_inc, ignore_duplicates=op.ignore_duplicates
    )
    operand_placements = DEVICE, ANY, *index_placements(op.idx_list, index)
    return missing or GpuAdvancedIncSubtensor(host, context_name, operand_placements)


@register_lift(Subtensor, every_dtype=True)
def lift_subtensor(op: Subtensor, node: Apply, context_name: str, info: DeviceInfo) -> GpuSubtensor:
    """x[i, a:b:c] -> a view on the device; the indices stay on the host."""
    return GpuSubtensor(op, context_name)


@register_lift(IncSubtensor, every_dtype=True)
def lift_inc_subtensor(
    op: IncSubtensor, node: Apply, context_name: str, info: DeviceInfo
) -> GpuIncSubtensor | NoKernel:
    """x[i, a:b:c] = y, or += y -> a copy of x, and a kernel that writes into a view of it."""
    array, value = node.inputs[:2]
    missing = None if op.set_instead_of_inc else _reason_against_casting(array.type.dtype, value.type.dtype)
    host = IncSubtensor(op.idx_list, set_instead_of_inc=op.set_instead_of_inc)
    return missing or GpuIncSubtensor(host, context_name)


@register_lift(Choose, every_dtype=True)
def lift_choose(op: Choose, node: Apply, context_name: str, info: DeviceInfo) -> GpuChoose | NoKernel:
    """Choose(index, choices) -> GpuChoose(index, choices)."""
    if node.inputs[0].type.dtype == "uint64":
        return NoKernel("NumPy takes no uint64 as an index")
    return GpuChoose(op, context_name)


@register_lift(ChooseOf, every_dtype=True)
def lift_choose_of(op: ChooseOf, node: Apply, context_name: str, info: DeviceInfo) -> GpuChooseOf | NoKernel:
    """ChooseOf(index, *choices) -> GpuChooseOf(index, *choices)."""
    if node.inputs[0].type.dtype == "uint64":
        return NoKernel("NumPy takes no uint64 as an index")
    return GpuChooseOf(op, context_name)


@register_lift(PermuteRowElements, every_dtype=True)
def lift_permute_row_elements(
    op: PermuteRowElements, node: Apply, context_name: str, info: DeviceInfo
) -> GpuPermuteRowElements | NoKernel:
    """PermuteRowElements(x, index) -> GpuPermuteRowElements(x, index)."""
    if not node.inputs[0].type.ndim:
        return NoKernel("a permutation of no elements")
    return GpuPermuteRowElements(op, context_name)


@register_lift(RavelMultiIndex)
def lift_ravel_multi_index(op: RavelMultiIndex, node: Apply, context_name: str, info: DeviceInfo) -> GpuRavelMultiIndex:
    """RavelMultiIndex(i, j, dims) -> GpuRavelMultiIndex(i, j, dims)."""
    return GpuRavelMultiIndex(op, context_name, len(node.inputs) - 1)


@register_lift(UnravelIndex)
def lift_unravel_index(
    op: UnravelIndex, node: Apply, context_name: str, info: DeviceInfo
) -> GpuUnravelIndex | NoKernel:
    """UnravelIndex(flat, dims) -> GpuUnravelIndex(flat, dims)."""
    if not node.outputs:
        return NoKernel("an index into an array of no dimensions")
    return GpuUnravelIndex(op, context_name)


_DIAGONAL_OPS: dict[type[Op], type[GpuOp]] = {
    ExtractDiag: GpuExtractDiag,
    FillDiagonal: GpuFillDiagonal,
    FillDiagonalOffset: GpuFillDiagonalOffset,
}


@register_lift(*_DIAGONAL_OPS, every_dtype=True)
def lift_diagonal(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp:
    """ExtractDiag(x) -> GpuExtractDiag(x), and so on."""
    return _DIAGONAL_OPS[type(op)](op, context_name)
