"""Ops of reductions that users write."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from pytensor import scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import as_tensor_variable, cast, constant, expand_dims
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.extra_ops import broadcast_shape
from pytensor.tensor.math import Max, Min, Prod, Sum
from pytensor.tensor.type import TensorType

from pytensor_cl.codegen.dtypes import needs_fp64
from pytensor_cl.ops.base import ANY, DEVICE, GpuOp, Routine, as_host_variable
from pytensor_cl.ops.elemwise import is_by_value
from pytensor_cl.ops.registry import NoKernel, register_lift
from pytensor_cl.ops.user_kernels.elementwise import ElementwiseOp
from pytensor_cl.ops.user_kernels.op import Gradient, KernelOp
from pytensor_cl.runtime.context import Context
from pytensor_cl.runtime.device import DeviceInfo
from pytensor_cl.scalar.user_kernel import UserScalar
from pytensor_cl.user_kernels.reduction import ReductionKernel
from pytensor_cl.user_kernels.reduction_function import ReductionFunctions, reduction_functions
from pytensor_cl.user_kernels.reduction_routine import UserReduction, accumulator_of

_BITS = {"and": ps.and_, "or": ps.or_, "xor": ps.xor}


class ReductionOp(KernelOp):
    """An Op whose result a `ReductionKernel` computes.

    It is called with the axes, ``op(x, axis=1, keepdims=True)``. `axes`: axes of the broadcast inputs; None: all.
    """

    kernel: ReductionKernel
    repeats_gradients = True

    def __init__(
        self,
        kernel: ReductionKernel,
        name: str,
        gradient: Gradient = None,
        perform_on_host: Callable[..., Any] | None = None,
        outputs: tuple[tuple[str, str], ...] = (),
        axes: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(kernel, name, gradient, perform_on_host, outputs)
        self.axes = axes

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.axes)

    def __str__(self) -> str:
        return self.name if self.axes is None else f"{self.name}{{axes={self.axes}}}"

    def over(self, axes: tuple[int, ...] | None) -> "ReductionOp":
        """Return the Op that reduces other axes."""
        return ReductionOp(self.kernel, self.name, self.gradient, self.perform_on_host, self.outputs, axes)

    def __call__(self, *inputs: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        """Return the result of a reduction.

        Parameters
        ----------
        inputs
            Variables or numbers, which are broadcast; at least one is not raw.
        axis
            The axes that are reduced; None: all.
        keepdims
            Keep the reduced axes, with length 1.
        options
            Options of PyTensor's ``Op.__call__``.

        Raises
        ------
        numpy.exceptions.AxisError
            There is no such axis.
        """
        ndim = len(self.broadcast(inputs)[1])
        axes = None if axis is None else tuple(sorted(normalize_axis_tuple(axis, ndim)))
        op = self if axes is None else self.over(axes)
        result = Op.__call__(op, *inputs, **options)
        if not keepdims or not ndim:
            return result
        every = tuple(range(ndim)) if axes is None else axes
        if isinstance(result, list):
            return [expand_dims(one, every) for one in result]
        return expand_dims(result, every)

    def _axes_of(self, ndim: int) -> tuple[int, ...]:
        return tuple(range(ndim)) if self.axes is None else self.axes

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node; inputs that are not raw get as many dimensions as the one that has most.

        Raises as `KernelOp.broadcast`.
        """
        padded, shape = self.broadcast(inputs)
        axes = self._axes_of(len(shape))
        kept = tuple(n for d, n in enumerate(shape) if d not in axes)
        return Apply(self, padded, [TensorType(self.functions_of(padded).output_dtype, kept)()])

    def functions_of(self, inputs: Sequence[Any]) -> ReductionFunctions:
        """Return the functions of the kernel for variables."""
        return reduction_functions(self.kernel.definition, self.types(inputs, inputs))

    def ndim_of(self, inputs: Sequence[Any]) -> int:
        """Return how many dimensions the inputs have."""
        return max((v.type.ndim for v, p in self.pairs(inputs) if not p.is_raw), default=0)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Variable, ...]]:
        """Return the shape to which the inputs broadcast, without the reduced axes."""
        full = broadcast_shape(*(s for s, p in self.pairs(shapes) if not p.is_raw), arrays_are_shapes=True)
        axes = self._axes_of(len(full))
        return [tuple(as_tensor_variable(n) for d, n in enumerate(full) if d not in axes)]

    def output_shapes(self, node: Apply, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the shape of the output."""
        full = self.full_shape(node, shapes)
        axes = self._axes_of(len(full))
        return [tuple(n for d, n in enumerate(full) if d not in axes)]

    def compute(self, node: Apply, context: Context, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the result for arrays of the host, computed on a device."""
        arrays = [context.from_host(np.asarray(x)) for x in inputs]
        output = context.empty(self.output_shapes(node, [x.shape for x in arrays])[0], node.outputs[0].type.dtype)
        self.kernel(*arrays, axis=self.axes, out=output)
        return [output.to_host()]

    def as_gradient_sees(self, inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Variable]:
        """Return outputs and cotangents with the reduced axes, of length 1."""
        axes = self._axes_of(self.ndim_of(inputs))
        return [expand_dims(v, axes) if axes else v for v in results]

    def gradient_shapes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Variable]:
        """Return a variable of the shape that is reduced, for each input that is not raw."""
        full = _largest([v for v, p in self.pairs(inputs) if not p.is_raw])
        return [v if p.is_raw else full for v, p in self.pairs(inputs)]

    def gradient_op(self, kernel: Any) -> Op:
        """Return the Op of an elementwise kernel that computes gradients."""
        return ElementwiseOp(kernel, kernel.name)

    def spelled_out(self, node: Apply, shape_of: Callable[[Any, int], Any]) -> Variable | None:
        """Return the result as an elementwise function, a reduction and another function, which are fused.

        `shape_of`: returns the length of an axis of a variable.

        None: the reduction is none of PyTensor's, or the empty sum is another number than PyTensor's.
        """
        functions = self.functions_of(node.inputs)
        definition = functions.definition
        if not functions.is_fusable or not definition.has_neutral_identity or functions.mapped.definition.is_isolated:
            return None
        mapped = Elemwise(UserScalar(functions.mapped, self.name))(*node.inputs)
        axes = self._axes_of(mapped.type.ndim)
        reduced = _reduced(str(definition.operation), mapped, axes, str(functions.dtype))
        numbers: list[Any] = []
        if len(functions.posted.input_dtypes) > 1:
            count: Any = constant(1, dtype="int64")
            for d in axes:
                count = count * cast(self._length(node, d, shape_of), "int64")
            numbers.append(count)
        return Elemwise(UserScalar(functions.posted, f"{self.name}_result"))(reduced, *numbers)

    @staticmethod
    def _length(node: Apply, axis: int, shape_of: Callable[[Any, int], Any]) -> Any:
        """Return the length of an axis of the broadcast inputs."""
        known = [v.type.shape[axis] for v in node.inputs]
        long = next((v for v, n in zip(node.inputs, known, strict=True) if n != 1), None)
        return constant(1, dtype="int64") if long is None else shape_of(long, axis)


def _largest(variables: Sequence[Any]) -> Any:
    """Return a variable of the shape to which others broadcast."""
    result = variables[0]
    for v in variables[1:]:
        if result.type.shape != v.type.shape:
            result = result.zeros_like(dtype="bool") | v.zeros_like(dtype="bool")
    return result


def _reduced(operation: str, mapped: Any, axes: tuple[int, ...], dtype: str) -> Any:
    """Return a reduction of axes."""
    if operation in ("add", "mul"):
        kind = Sum if operation == "add" else Prod
        return kind(axis=axes, dtype=dtype, acc_dtype=accumulator_of(operation, dtype))(mapped)
    if operation in ("maximum", "minimum"):
        return (Max if operation == "maximum" else Min)(axis=axes)(mapped)
    return CAReduce(_BITS[operation], axis=axes)(mapped)


@_vectorize_node.register(ReductionOp)
def _vectorize_reduction(op: ReductionOp, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    """Batch dimensions come before the others; raw inputs, and numbers of elements, are not batched.

    Raises `NotImplementedError`: the kernel has one of them.
    """
    definition = op.kernel.definition
    functions = op.functions_of(node.inputs)
    if functions.map.definition.is_indexed:
        raise NotImplementedError(
            f"op {op.name}: a reduction with raw inputs or numbers of elements cannot be vectorized"
        )
    ndim = op.ndim_of(node.inputs)
    lead = op.ndim_of(inputs) - ndim
    assert len(inputs) == len(definition.inputs)
    axes = tuple(axis + lead for axis in op._axes_of(ndim))
    results: Sequence[Variable] = op.over(axes).make_node(*inputs).outputs
    return results


class GpuUserReduction(GpuOp):
    """Device counterpart of `ReductionOp`, for those that are not spelled out."""

    def placement_of(self, index: int) -> str:
        """Raw arrays must be on the device; other inputs may be 0-d host values."""
        host: Any = self.host
        return DEVICE if host.kernel.definition.inputs[index].is_raw else ANY

    def make_node(self, *inputs: Variable) -> Apply:
        """Make a node; host tensors are transferred unless they are 0-d and passed by value."""
        placed = [
            v if is_by_value(v) and self.placement_of(k) is ANY else self.on_device(v) for k, v in enumerate(inputs)
        ]
        host_node = self.host.make_node(*map(as_host_variable, placed))
        return self.apply(placed, [o.type for o in host_node.outputs])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes that the host Op infers."""
        host_node = self.host.make_node(*map(as_host_variable, node.inputs))
        pairs = zip(host_node.inputs, shapes, strict=True)
        return self.host.infer_shape(host_node, [(*(1,) * (v.type.ndim - len(s)), *s) for v, s in pairs])

    def routine(self, node: Apply, context: Context) -> Routine:
        """Return the routine of the kernel for the node's dtypes, dimensions and axes."""
        host: Any = self.host
        by_value = [is_by_value(v) and self.placement_of(k) is ANY for k, v in enumerate(node.inputs)]
        ndims = [None if value else v.type.ndim for v, value in zip(node.inputs, by_value, strict=True)]
        known = [v.type.broadcastable for v in node.inputs]
        functions, ndim = host.functions_of(node.inputs), host.ndim_of(node.inputs)
        return UserReduction(context, functions, ndims, ndim, host.axes, broadcast=known)


@register_lift(ReductionOp, numba_safe=False, every_dtype=True)
def lift_reduction(node: Apply, context_name: str, info: DeviceInfo) -> GpuUserReduction | NoKernel:
    """Lift a `ReductionOp` to `GpuUserReduction`."""
    op: Any = node.op
    functions = op.functions_of(node.inputs)
    dtypes = functions.map.dtypes | functions.reduce.dtypes | functions.post.dtypes
    if not info.has_fp64 and any(map(needs_fp64, dtypes)):
        return NoKernel(f"{info.name} has no double precision", missing_fp64=True)
    return GpuUserReduction(op, context_name)
