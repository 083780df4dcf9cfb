"""Diagonals: views of a diagonal, and copies of an array with a new one."""

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.extra_ops import FillDiagonal, FillDiagonalOffset

from pytensor_cl.ops.base import ANY, DEVICE, HOST, GpuOp, Routine, ViewRoutine
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.routines.indexing.diagonal import FillDiagonal as FillDiagonalRoutine
from pytensor_cl.routines.indexing.diagonal import diagonal
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.layout import Layout


class _Diagonal(ViewRoutine):
    def __init__(self, offset: int, axis1: int, axis2: int) -> None:
        self._place = offset, axis1, axis2

    def layout(self, layout: Layout, *values: Any) -> Layout:
        return diagonal(layout, *self._place)


@register_lift(ExtractDiag, numba_safe=True, every_dtype=True)
class GpuExtractDiag(GpuOp):
    """Device counterpart of `ExtractDiag`: a view."""

    view_map = {0: [0]}
    is_compute = False

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the view."""
        return _Diagonal(self.host.offset, self.host.axis1, self.host.axis2)


@register_lift(FillDiagonal, numba_safe=False, every_dtype=True)
class GpuFillDiagonal(GpuOp):
    """Device counterpart of `FillDiagonal`."""

    is_memory_bound = True
    operand_placements: Sequence[str] = (DEVICE, ANY)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the copy and the fill."""
        kind = node.outputs[0].type
        return FillDiagonalRoutine(context, kind.dtype, kind.ndim)


@register_lift(FillDiagonalOffset, numba_safe=False, every_dtype=True)
class GpuFillDiagonalOffset(GpuFillDiagonal):
    """Device counterpart of `FillDiagonalOffset`."""

    operand_placements = (DEVICE, ANY, HOST)
