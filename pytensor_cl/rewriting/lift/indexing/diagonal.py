"""ExtractDiag, FillDiagonal and FillDiagonalOffset -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import ExtractDiag
from pytensor.tensor.extra_ops import FillDiagonal, FillDiagonalOffset

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.indexing.diagonal import GpuExtractDiag, GpuFillDiagonal, GpuFillDiagonalOffset
from pytensor_cl.rewriting.placement.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS: dict[type[Op], type[GpuOp]] = {
    ExtractDiag: GpuExtractDiag,
    FillDiagonal: GpuFillDiagonal,
    FillDiagonalOffset: GpuFillDiagonalOffset,
}


@register_lift(*_OPS, every_dtype=True)
def lift_diagonal(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp:
    """ExtractDiag(x) -> GpuExtractDiag(x), and so on."""
    return _OPS[type(op)](op, context_name)
