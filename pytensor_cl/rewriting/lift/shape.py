"""DimShuffle, Reshape, JoinDims, SplitDims, SpecifyShape, CpuContiguous and CheckAndRaise -> views on the device."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.raise_op import Assert, CheckAndRaise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CpuContiguous
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.shape import (
    GpuCheck,
    GpuCheckAndRaise,
    GpuCpuContiguous,
    GpuDimShuffle,
    GpuJoinDims,
    GpuReshape,
    GpuSpecifyShape,
    GpuSplitDims,
)
from pytensor_cl.rewriting.host_backend.guards import DIVISOR
from pytensor_cl.rewriting.placement.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS: dict[type[Op], type[GpuOp]] = {
    DimShuffle: GpuDimShuffle,
    Reshape: GpuReshape,
    SpecifyShape: GpuSpecifyShape,
    JoinDims: GpuJoinDims,
    SplitDims: GpuSplitDims,
    CpuContiguous: GpuCpuContiguous,
    CheckAndRaise: GpuCheckAndRaise,
    Assert: GpuCheckAndRaise,
}


@register_lift(*_OPS, every_dtype=True)
def lift_shape(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp:
    """DimShuffle(x) -> GpuDimShuffle(x), and so on."""
    if op == DIVISOR and len(node.inputs) == 2:  # kernels take any divisor
        return GpuCheck(op, context_name)
    kind = next(kind for kind in type(op).__mro__ if kind in _OPS)
    return _OPS[kind](op, context_name)
