"""Ops of elementwise kernels that users write."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor import as_tensor_variable, cast, constant
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.extra_ops import broadcast_shape
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from pytensor_cl.codegen.dtypes import needs_fp64
from pytensor_cl.ops.base import ANY, DEVICE, GpuOp, Routine, as_host_variable
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.user_kernels.op import KernelOp
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.user_kernel import UserScalar
from pytensor_cl.user_kernels.elementwise import ElementwiseKernel, user_function
from pytensor_cl.user_kernels.function import UserFunction
from pytensor_cl.user_kernels.parameters import Parameter
from pytensor_cl.user_kernels.routine import Indexed, UserElemwise


class ElementwiseOp(KernelOp):
    """An Op whose results an `ElementwiseKernel` computes."""

    kernel: ElementwiseKernel

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node; inputs that are not raw get as many dimensions as the outputs.

        Raises `TypeError`: there are more or fewer inputs than parameters, or dtypes do not fit. Raises `ValueError`:
        shapes do not fit.
        """
        padded, shape = self.broadcast(inputs)
        return Apply(self, padded, [TensorType(dtype, shape)() for dtype in self.function_of(padded).output_dtypes])

    def function_of(self, inputs: Sequence[Any]) -> UserFunction:
        """Return the function of the kernel for variables."""
        return user_function(self.kernel.definition, self.types(inputs, inputs))

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Variable, ...]]:
        """Return the shape to which the inputs broadcast, once for each output."""
        broadcast = [s for s, p in self.pairs(shapes) if not p.is_raw]
        shape = tuple(map(as_tensor_variable, broadcast_shape(*broadcast, arrays_are_shapes=True)))
        return [shape] * len(node.outputs)

    def output_shapes(self, node: Apply, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs."""
        return [self.full_shape(node, shapes)] * len(node.outputs)

    def compute(self, node: Apply, context: Context, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results for arrays of the host, computed on a device."""
        arrays = [context.from_host(np.asarray(x)) for x in inputs]
        shape = self.output_shapes(node, [x.shape for x in arrays])[0]
        outputs = [context.empty(shape, v.type.dtype) for v in node.outputs]
        self.kernel(*arrays, *outputs)
        return [output.to_host() for output in outputs]

    def gradient_op(self, kernel: Any) -> Op:
        """Return the Op of a kernel that computes gradients."""
        return ElementwiseOp(kernel, kernel.name)

    def gradient_shapes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Variable]:
        """Return the output for each input, but raw inputs themselves: those are not broadcast."""
        return [v if p.is_raw else outputs[0] for v, p in self.pairs(inputs)]


def spelled_out(node: Apply, used: Sequence[int], shape_of: Callable[[Any, int], Any]) -> dict[int, Variable]:
    """Return for each used output of a node an elementwise function that is fused with its neighbours, or nothing.

    There is none for operations with raw arrays or the number of the element, and for kernels that need a program of
    their own. Several outputs become one kernel again because PyTensor fuses nodes that share an input of the shape of
    the outputs; where they do not, each computes the function, which is to be short.

    `shape_of`: returns the length of an axis of a variable.
    """
    op: ElementwiseOp = node.op
    definition = op.kernel.definition
    if definition.is_isolated or "i" in definition.numbers or any(p.is_raw for p in definition.inputs):
        return {}
    inputs = list(node.inputs)
    if definition.numbers:  # the number of elements, which becomes a further input
        definition = replace(definition, inputs=(*definition.inputs, Parameter("n", "int64")))
        inputs.append(_number_of_elements(node, shape_of))
    function = user_function(definition, op.types(node.inputs, node.inputs))
    if len(used) > 1 and (function.is_long or not any(map(_joins_outputs, node.inputs, repeat(node.outputs[0])))):
        return {}
    return {k: Elemwise(UserScalar(function, op.name, k))(*inputs) for k in used}


def _number_of_elements(node: Apply, shape_of: Callable[[Any, int], Any]) -> Variable:
    """Return how many elements an output of a node has, from the shapes of inputs."""
    count: Any = constant(1, dtype="int64")
    for axis in range(node.outputs[0].type.ndim):
        long = next((v for v in node.inputs if v.type.shape[axis] != 1), None)
        if long is not None:
            count = count * cast(shape_of(long, axis), "int64")
    return count


def _joins_outputs(variable: Any, output: Any) -> bool:
    """Return whether PyTensor fuses nodes of the shape of an output that share an input."""
    is_repeated = isinstance(variable, TensorConstant) and variable.unique_value is not None
    return not is_repeated and variable.type.broadcastable == output.type.broadcastable


class GpuElementwise(GpuOp):
    """Device counterpart of `ElementwiseOp`, for those that are not fused.

    A 0-d host value is passed by value, unless the parameter is raw.
    """

    def placement_of(self, index: int) -> str:
        """Raw arrays must be on the device; other inputs may be 0-d host values."""
        return DEVICE if self._parameters[index].is_raw else ANY

    @property
    def _parameters(self) -> Sequence[Parameter]:
        parameters: Sequence[Parameter] = self.host.kernel.definition.inputs
        return parameters

    def accepts_donation(self, index: int) -> bool:
        """Each element is read before the element at its position is written, but for raw arrays."""
        return not self.host.kernel.definition.is_indexed

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; host tensors are transferred unless they are 0-d and passed by value."""
        pairs = zip(inputs, self._parameters, strict=True)
        placed = [v if is_by_value(v) and not p.is_raw else self.on_device(v) for v, p in pairs]
        host_node = self.host.make_node(*map(as_host_variable, placed))
        return self.apply(placed, [o.type for o in host_node.outputs])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes that the host Op infers."""
        host_node = self.host.make_node(*map(as_host_variable, node.inputs))
        inner = [v.type.ndim for v in host_node.inputs]
        padded = [(*(1,) * (n - len(s)), *s) for n, s in zip(inner, shapes, strict=True)]
        return self.host.infer_shape(host_node, padded)

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine of the kernel for the node's dtypes and dimensions."""
        function = self.host.function_of(node.inputs)
        by_value = [is_by_value(v) and not p.is_raw for v, p in zip(node.inputs, self._parameters, strict=True)]
        if self.host.kernel.definition.is_indexed:
            ndims = [None if value else v.type.ndim for v, value in zip(node.inputs, by_value, strict=True)]
            known = [v.type.broadcastable for v in node.inputs]
            return Indexed(context, function, (*ndims, *(v.type.ndim for v in node.outputs)), broadcast=known)
        broadcast = tuple(() if value else v.type.broadcastable for v, value in zip(node.inputs, by_value, strict=True))
        return UserElemwise(context, function, broadcast, node.outputs[0].type.ndim, by_value)


def lacks_double(op: ElementwiseOp, node: Apply, info: DeviceInfo) -> NoKernel | None:
    """Return why a device cannot compute a kernel: it has no double precision; None if it can."""
    if not info.has_fp64 and any(map(needs_fp64, op.function_of(node.inputs).dtypes)):
        return NoKernel(f"{info.name} has no double precision", missing_fp64=True)
    return None


@register_lift(ElementwiseOp, numba_safe=False, every_dtype=True)
def lift_elementwise(node: Apply, context_name: str, info: DeviceInfo) -> GpuElementwise | NoKernel:
    """Lift an `ElementwiseOp` to `GpuElementwise`."""
    op: Any = node.op
    return lacks_double(op, node, info) or GpuElementwise(op, context_name)
