"""Elementwise functions."""

from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType

from pytensor_cl.ops.base import ANY, GpuOp, Routine, as_host_variable
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.routines.elemwise.routine import Elemwise as ElemwiseRoutine
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.base import element_function, supported
from pytensor_cl.type import GpuArrayType


def is_by_value(variable: Variable) -> bool:
    """Return whether kernels take a variable by value: it is 0-d and on the host."""
    return variable.type.ndim == 0 and not isinstance(variable.type, GpuArrayType)


class GpuElemwise(GpuOp):
    """Device counterpart of `Elemwise`, Composite or not, of one or several outputs.

    A 0-d host value is passed by value, whatever the dimensions of the arrays.
    """

    is_memory_bound = True

    def placement_of(self, index: int) -> str:
        """Arrays must be on the device; 0-d inputs may be host values."""
        return ANY

    def accepts_donation(self, index: int) -> bool:
        """Each element is read before the element at its position is written."""
        return True

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; host tensors are transferred unless they are 0-d."""
        placed = [v if is_by_value(v) else self.on_device(v) for v in inputs]
        host_node = self.host.make_node(*self._host_inputs(placed, max(v.type.ndim for v in placed)))
        return self.apply(placed, [o.type for o in host_node.outputs])

    @staticmethod
    def _host_inputs(inputs: list[Variable], ndim: int) -> list[Variable]:
        """Return host variables of the same Types; variables for host values have as many dimensions as the outputs."""
        return [TensorType(v.type.dtype, (1,) * ndim)() if is_by_value(v) else as_host_variable(v) for v in inputs]

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes that the host Op infers; host values count as arrays of length one."""
        ones = (1,) * node.outputs[0].type.ndim
        padded = [ones if is_by_value(v) else s for v, s in zip(node.inputs, shapes, strict=True)]
        inputs = self._host_inputs(node.inputs, node.outputs[0].type.ndim)
        return self.host.infer_shape(self.host.make_node(*inputs), padded)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the kernel of the scalar Op over the node's dimensions."""
        dtypes_in = tuple(v.type.dtype for v in node.inputs)
        dtypes_out = tuple(v.type.dtype for v in node.outputs)
        return ElemwiseRoutine(
            context,
            element_function(self.host.scalar_op, dtypes_in, dtypes_out),
            tuple(() if is_by_value(v) else v.type.broadcastable for v in node.inputs),
            node.outputs[0].type.ndim,
            tuple(is_by_value(v) for v in node.inputs),
        )


def unsupported_scalar(node: Apply, info: DeviceInfo) -> str | None:
    """Say why a device has no code for an Elemwise node's scalar Op; None if it has."""
    inputs = tuple(v.type.dtype for v in node.inputs)
    outputs = tuple(v.type.dtype for v in node.outputs)
    return supported(node.op.scalar_op, inputs, outputs, info.has_fp64)


@register_lift(Elemwise, numba_safe=True, every_dtype=True)
def lift_elemwise(node: Apply, context_name: str, info: DeviceInfo) -> GpuElemwise | NoKernel:
    """Elemwise(x, ...) -> GpuElemwise(x, ...), which does not work in place."""
    reason = unsupported_scalar(node, info)
    return NoKernel(reason) if reason else GpuElemwise(Elemwise(node.op.scalar_op, name=node.op.name), context_name)
