"""Transfers between the host and devices, as Ops with gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor import _as_tensor_variable, as_tensor_variable
from pytensor.tensor.basic import register_transfer
from pytensor.tensor.type import TensorType

from pytensor_cl._compat.registration import has_other_transfers
from pytensor_cl.ops.names import Show, name_of
from pytensor_cl.routines.elemwise.routine import contiguous
from pytensor_cl.runtime.array import GpuArray
from pytensor_cl.runtime.registry import default_context_name, defined_contexts, get_context, undefined_context
from pytensor_cl.type import GpuArrayType, convert_to_device
from pytensor_cl.variable import GpuArrayVariable, constant_of


def download(array: GpuArray) -> np.ndarray:
    """Copy a device array to the host; strided views are packed on the device first."""
    if not array.layout.is_contiguous and array.size > 1:
        array = contiguous(array)
    return array.to_host()


class _Transfer(Op):
    """Common part of the transfers, which do not change the value."""

    is_transfer = True  # whether results are named after the input, in `pytensor_cl.ops.names`

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Any:
        """Return the input's shape."""
        return shapes

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """Return False: a constant is uploaded when the function is linked."""
        return False

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """The gradient flows through."""
        return [[True]]


class GpuFromHost(_Transfer):
    """Upload a tensor."""

    __props__ = ("context_name",)

    def __init__(self, context_name: str) -> None:
        self.context_name = context_name

    def __str__(self) -> str:
        return f"GpuFromHost<{self.context_name}>"

    def make_node(self, x: Any) -> Apply:
        """Make a node of a tensor-like value."""
        x = as_tensor_variable(x)
        if type(x.type) is not TensorType:  # sparse matrices are a subclass
            raise TypeError(f"{self} cannot take {x} of Type {x.type}")
        return Apply(self, [x], [GpuArrayType(x.type.dtype, x.type.shape, self.context_name)()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Upload a copy; the host array may change afterwards."""
        output_storage[0][0] = get_context(self.context_name).from_host(inputs[0])

    def pullback(self, inputs: Any, outputs: Any, cotangents: Sequence[Variable]) -> list[Variable]:
        """The gradient belongs on the host."""
        return [as_tensor_variable(cotangents[0])]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Sequence[Variable]) -> list[Variable]:
        """The tangent belongs on the device."""
        return [self(tangents[0])]


class HostFromGpu(_Transfer):
    """Download an array; only this Op waits for the device."""

    __props__ = ()

    def __str__(self) -> str:
        return "HostFromGpu"

    def make_node(self, x: Variable) -> Apply:
        """Make a node of a device variable."""
        if isinstance(x, GpuArray):
            x = constant_of(x)
        if not isinstance(getattr(x, "type", None), GpuArrayType):
            raise TypeError(
                f"host_from_gpu takes variables on a device, not {x!r}: gpu_from_host(x) and x.transfer('dev0') bring "
                "a value there"
            )
        return Apply(self, [x], [x.type.host_type()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Wait for the array and copy it."""
        output_storage[0][0] = download(inputs[0])

    def pullback(self, inputs: Sequence[Variable], outputs: Any, cotangents: Sequence[Variable]) -> list[Variable]:
        """The gradient belongs on the device."""
        return [GpuFromHost(inputs[0].type.context_name)(cotangents[0])]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Sequence[Variable]) -> list[Variable]:
        """The tangent belongs on the host."""
        return [as_tensor_variable(tangents[0])]


class GpuToGpu(_Transfer):
    """Copy an array to another context."""

    __props__ = ("context_name",)

    def __init__(self, context_name: str) -> None:
        self.context_name = context_name

    def __str__(self) -> str:
        return f"GpuToGpu<{self.context_name}>"

    def make_node(self, x: Variable) -> Apply:
        """Make a node of a device variable."""
        if not isinstance(x.type, GpuArrayType):
            raise TypeError(f"GpuToGpu takes device variables, got {x} of Type {x.type}")
        return Apply(self, [x], [x.type.clone(context_name=self.context_name)()])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Copy through the host: OpenCL contexts share no buffers."""
        output_storage[0][0] = get_context(self.context_name).from_host(download(inputs[0]), borrow=True)

    def pullback(self, inputs: Sequence[Variable], outputs: Any, cotangents: Sequence[Variable]) -> list[Variable]:
        """The gradient belongs where the input is."""
        return [_moved(cotangents[0], inputs[0].type.context_name)]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Sequence[Variable]) -> list[Variable]:
        """The tangent belongs where the output is."""
        return [_moved(tangents[0], self.context_name)]


host_from_gpu = HostFromGpu()


def _moved(x: Any, context_name: str) -> Variable:
    """Return a variable on a context, transferred if needed."""
    if not (isinstance(x, Variable) and isinstance(x.type, GpuArrayType)):
        return GpuFromHost(context_name)(x)
    return x if x.type.context_name == context_name else GpuToGpu(context_name)(x)


def gpu_from_host(x: Any, target: str | None = None) -> GpuArrayVariable:
    """Return `x` on a device.

    Parameters
    ----------
    x
        A tensor, a device variable, or an argument of ``pytensor.tensor.as_tensor``.
    target
        Name of a context; None is the default one.

    Returns
    -------
    GpuArrayVariable
        A variable of the same dtype and static shape; ``x.transfer(target)`` makes it too.

    Raises
    ------
    ContextNotDefined
        There is no such context.
    TypeError
        `x` is a string.
    """
    default = default_context_name()
    name = target or default
    if name not in defined_contexts():
        raise undefined_context(name)
    if isinstance(x, str):
        raise TypeError(f"gpu_from_host takes a tensor and the name of a context, gpu_from_host(x, {x!r})")
    moved: GpuArrayVariable = _moved(x, name)
    return moved


def _transfer(variable: Variable, target: str | None) -> Variable | None:
    """Return the variable for ``x.transfer(target)``; None leaves the target to another package.

    Raises `ContextNotDefined`: the target is no context, and no other package has targets.
    """
    default = default_context_name()
    if target is None or target in defined_contexts():
        return _moved(variable, target or default)
    if has_other_transfers():
        return None
    raise undefined_context(target)


@convert_to_device.register
def _from_tensor(kind: TensorType, variable: Variable, context_name: str) -> Variable | None:
    return GpuFromHost(context_name)(variable) if type(kind) is TensorType else None


@convert_to_device.register
def _from_device(kind: GpuArrayType, variable: Variable, context_name: str) -> Variable:
    return _moved(variable, context_name)


@_as_tensor_variable.register(GpuArray)
def _value_to_tensor(x: GpuArray, name: str | None, ndim: int | None, **options: Any) -> Variable:
    return as_tensor_variable(host_from_gpu(constant_of(x)), name=name, ndim=ndim, **options)


@_as_tensor_variable.register(GpuArrayVariable)
def _to_tensor(x: GpuArrayVariable, name: str | None, ndim: int | None, **options: Any) -> Variable:
    return as_tensor_variable(host_from_gpu(x), name=name, ndim=ndim, **options)


register_transfer(_transfer)


def names_of_nodes(graph: FunctionGraph, show: Show) -> list[str]:
    """Return the names of the nodes of a device graph but for transfers; those of the host are marked."""
    ops = [n.op for n in graph.toposort() if not isinstance(n.op, _Transfer)]
    names = [name_of(op, show) if hasattr(op, "named") else f"{name_of(op, show)} on the host" for op in ops]
    return names or ["nothing"]
