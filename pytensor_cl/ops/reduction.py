"""Reductions along axes."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen import dtypes
from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.reduction.routine import OPERATIONS as ROUTINE_OPERATIONS
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo

# Name of a scalar Op's class -> operation of the routine.
OPERATIONS: dict[str, str] = {
    "Add": "add",
    "Mul": "mul",
    "Maximum": "maximum",
    "Minimum": "minimum",
    "AND": "and",
    "OR": "or",
    "XOR": "xor",
    "MulWithoutZeros": "mul_without_zeros",
}


def _refuse(node: Apply, info: DeviceInfo) -> NoKernel | None:
    op = node.op
    name = type(op.scalar_op).__name__
    if name not in OPERATIONS:
        return NoKernel(f"no OpenCL kernel for reductions by {name} yet")
    if op.acc_dtype is not None and not dtypes.is_supported(op.acc_dtype):
        return NoKernel(f"device arrays cannot hold the accumulator's dtype {op.acc_dtype}")
    source, target = node.inputs[0].type.dtype, node.outputs[0].type.dtype
    are_complex = [dtypes.is_complex(dtype) for dtype in (source, op.acc_dtype or target, target)]
    if not any(are_complex):
        return None
    if not all(are_complex):
        return NoKernel(f"no OpenCL kernel for reductions of {source} to {target}")
    has_kernel = ROUTINE_OPERATIONS[OPERATIONS[name]].pairs
    return None if has_kernel else NoKernel(f"no OpenCL kernel for {name} of complex numbers")


@register_lift(CAReduce, numba_safe=True, every_dtype=True, refuse=_refuse)
class GpuCAReduce(GpuOp):
    """Device counterpart of `CAReduce` and its subclasses: Sum, Prod, ProdWithoutZeros, Max, Min, All, Any."""

    is_memory_bound = True

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the operation over the axes."""
        host, source = self.host, node.inputs[0].type
        target = node.outputs[0].type.dtype
        axes = tuple(range(source.ndim)) if host.axis is None else tuple(host.axis)
        return Reduction(
            context,
            OPERATIONS[type(host.scalar_op).__name__],
            source.dtype,
            host.acc_dtype or target,
            target,
            source.ndim,
            axes,
            initial=bool(getattr(host, "initial", False)),
        )

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node; the host Op may replace itself by one with explicit axes and dtypes."""
        (x,) = map(self.on_device, inputs)
        host_node = self.host.make_node(x.type.host_type())
        op = self if host_node.op == self.host else type(self)(host_node.op, self.context_name)
        if host_node.inputs[0].owner is not None:
            raise TypeError(f"{self} takes bool, not {x.type.dtype}")
        types: list[TensorType] = [o.type for o in host_node.outputs]
        return op.apply([x], types)
