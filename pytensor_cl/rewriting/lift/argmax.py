"""Argmax -> GpuArgmax."""

from pytensor.graph.basic import Apply
from pytensor.tensor.math import Argmax

from pytensor_cl.codegen.dtypes import is_complex
from pytensor_cl.ops.argmax import GpuArgmax
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(Argmax, every_dtype=True)
def lift_argmax(op: Argmax, node: Apply, context_name: str, info: DeviceInfo) -> GpuArgmax | NoKernel:
    """Argmax(x) -> GpuArgmax(x); argmin is the argmax of the negation already."""
    if is_complex(node.inputs[0].type.dtype):
        return NoKernel("no OpenCL kernel for the argmax of complex numbers")
    return GpuArgmax(op, context_name)
