"""CAReduce and its children -> GpuCAReduce."""

from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce

from pytensor_cl.codegen import dtypes
from pytensor_cl.ops.reduction import OPERATIONS, GpuCAReduce
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.reduction.routine import OPERATIONS as REDUCTIONS
from pytensor_cl.runtime.device import DeviceInfo

__all__: list[str] = []


def _refused_pairs(op: CAReduce, node: Apply) -> NoKernel | None:
    """Say why there is no reduction of complex numbers; None if there is, or there are none."""
    source, target = node.inputs[0].type.dtype, node.outputs[0].type.dtype
    taking_part = [dtypes.is_complex(dtype) for dtype in (source, op.acc_dtype or target, target)]
    if not any(taking_part):
        return None
    if not all(taking_part):
        return NoKernel(f"no OpenCL kernel for reductions of {source} to {target}")
    name = type(op.scalar_op).__name__
    return None if REDUCTIONS[OPERATIONS[name]].pairs else NoKernel(f"no OpenCL kernel for {name} of complex numbers")


@register_lift(CAReduce, every_dtype=True)
def lift_careduce(op: CAReduce, node: Apply, context_name: str, info: DeviceInfo) -> GpuCAReduce | NoKernel:
    """CAReduce(x) -> GpuCAReduce(x); a float64 accumulator becomes compensated float32 where there is no fp64."""
    name = type(op.scalar_op).__name__
    if name not in OPERATIONS:
        return NoKernel(f"no OpenCL kernel for reductions by {name} yet")
    if op.acc_dtype is not None and not dtypes.is_supported(op.acc_dtype):
        return NoKernel(f"device arrays cannot hold the accumulator's dtype {op.acc_dtype}")
    return _refused_pairs(op, node) or GpuCAReduce(op, context_name)
