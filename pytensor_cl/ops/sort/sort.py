"""Sorting along an axis."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.sort import ArgSortOp, SortOp

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_batched_lift, register_lift
from pytensor_cl.routines.sort.routine import ArgSort, Sort
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo

__all__ = ["GpuArgSort", "GpuSort"]


def _refuse_complex(node: Apply, info: DeviceInfo) -> NoKernel | None:
    is_refused = is_complex(node.inputs[0].type.dtype)
    return NoKernel("no OpenCL kernel that puts complex numbers in order") if is_refused else None


@register_lift(SortOp, numba_safe=True, every_dtype=True, refuse=_refuse_complex)
class GpuSort(GpuOp):
    """Device counterpart of `SortOp`; every kind is a stable sort."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels along the axis."""
        source = node.inputs[0].type
        return Sort(context, source.dtype, source.ndim, self.host.axis)


@register_lift(ArgSortOp, numba_safe=True, every_dtype=True, refuse=_refuse_complex)
class GpuArgSort(GpuOp):
    """Device counterpart of `ArgSortOp`; every kind is a stable sort."""

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernels along the axis."""
        source = node.inputs[0].type
        return ArgSort(context, source.dtype, source.ndim, self.host.axis)


@register_batched_lift(SortOp, ArgSortOp, every_dtype=True)
def lift_batched_sort(node: Apply, context_name: str, info: DeviceInfo) -> GpuSort | GpuArgSort | NoKernel:
    """Blockwise(sort)(x) -> GpuSort(x), along an axis of x after those of the batch."""
    core: Any = node.op.core_op
    moved = type(core)(core.kind, core.axis + node.op.batch_ndim(node))
    kind = GpuSort if isinstance(core, SortOp) else GpuArgSort
    return _refuse_complex(node, info) or kind(moved, context_name)
