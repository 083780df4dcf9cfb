"""DimShuffle, Reshape, JoinDims, SplitDims and SpecifyShape -> views on the device."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.shape import GpuDimShuffle, GpuJoinDims, GpuReshape, GpuSpecifyShape, GpuSplitDims
from pytensor_cl.rewriting.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS: dict[type[Op], type[GpuOp]] = {
    DimShuffle: GpuDimShuffle,
    Reshape: GpuReshape,
    SpecifyShape: GpuSpecifyShape,
    JoinDims: GpuJoinDims,
    SplitDims: GpuSplitDims,
}


@register_lift(*_OPS)
def lift_shape(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp:
    """DimShuffle(x) -> GpuDimShuffle(x), and so on."""
    return _OPS[type(op)](op, context_name)
