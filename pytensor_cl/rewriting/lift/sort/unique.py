"""Unique -> GpuUnique."""

from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import Unique

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.sort.unique import GpuUnique
from pytensor_cl.rewriting.placement.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Unique)
def lift_unique(op: Unique, node: Apply, context_name: str, info: DeviceInfo) -> GpuUnique | NoKernel:
    """unique(x) -> GpuUnique(x), of values or along an axis."""
    if is_complex(node.inputs[0].type.dtype):
        return NoKernel("no OpenCL kernel that puts complex numbers in order")
    return GpuUnique(op, context_name)
