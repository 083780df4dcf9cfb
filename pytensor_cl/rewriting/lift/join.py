"""Join, Split and MakeVector -> their device Ops."""

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.basic import Join, MakeVector, Split

from pytensor_cl.ops.base import GpuOp
from pytensor_cl.ops.join import GpuJoin, GpuMakeVector, GpuSplit
from pytensor_cl.ops.registry import register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []

_OPS: dict[type[Op], type[GpuOp]] = {Join: GpuJoin, Split: GpuSplit, MakeVector: GpuMakeVector}


@register_lift(*_OPS, every_dtype=True)
def lift_join(op: Op, node: Apply, context_name: str, info: DeviceInfo) -> GpuOp:
    """Join(x, y) -> GpuJoin(x, y), and so on."""
    return _OPS[type(op)](op, context_name)
