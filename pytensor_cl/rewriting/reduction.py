"""CAReduce and its children -> GpuCAReduce."""

from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce

from pytensor_cl import dtypes
from pytensor_cl.ops.reduction import OPERATIONS, GpuCAReduce
from pytensor_cl.rewriting.registry import NoKernel, register_lift
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


@register_lift(CAReduce)
def lift_careduce(op: CAReduce, node: Apply, context_name: str, info: DeviceInfo) -> GpuCAReduce | NoKernel:
    """CAReduce(x) -> GpuCAReduce(x); a float64 accumulator becomes compensated float32 where there is no fp64."""
    name = type(op.scalar_op).__name__
    if name not in OPERATIONS:
        return NoKernel(f"no OpenCL kernel for reductions by {name} yet")
    if op.acc_dtype is not None and not dtypes.is_supported(op.acc_dtype):
        return NoKernel(f"device arrays cannot hold the accumulator's dtype {op.acc_dtype}")
    return GpuCAReduce(op, context_name)
