"""Reductions along axes."""

from typing import Any

from pytensor.graph.basic import Apply
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import GpuOp, Routine
from pytensor_cl.routines.reduction.routine import Reduction
from pytensor_cl.runtime.context import Context

__all__ = ["OPERATIONS", "GpuCAReduce"]

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
