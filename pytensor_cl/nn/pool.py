"""Pooling Ops and their gradients."""

from collections.abc import Sequence
from typing import Any

import pytensor
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import as_tensor_variable, cast
from pytensor.tensor.type import complex_dtypes, discrete_dtypes, tensor

import pytensor_cl.nn.pool_host as pool_host
from pytensor_cl.nn.batches import common_batch, shared_entry
from pytensor_cl.nn.pool_host import Geometry, Sliding


class _Pooling(Op):
    """Base class of pooling and its gradients: `windows` are what is pooled along the last dimensions."""

    __props__: tuple[str, ...] = ("windows",)

    def __init__(self, windows: Geometry) -> None:
        self.windows = windows

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.windows}}}"

    @property
    def ndim(self) -> int:
        """Number of dimensions that are pooled."""
        return len(self.windows.windows)

    def _relative(self, kind: Any) -> Any:
        """Return an Op of another class with the same parameters."""
        return kind(*(getattr(self, name) for name in self.__props__))

    def _pooled(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the output's shape; None where a length is."""
        leading = len(shape) - self.ndim
        dims = shape[leading:]
        counts = self.windows.counts([1 if n is None else n for n in dims])
        is_free = isinstance(self.windows, Sliding)
        return (*shape[:leading], *(None if n is None and is_free else c for n, c in zip(dims, counts, strict=True)))

    def _variables(self, *values: Any) -> list[Variable]:
        variables = [as_tensor_variable(v) for v in values]
        for v in variables:
            if v.type.ndim < self.ndim:
                raise TypeError(f"{type(self).__name__} pools {self.ndim} dimensions, but this has fewer: {v.type}")
        return variables


def _no_slope(x: Variable) -> Variable:
    """Return the gradient of an array that only chooses elements: zeros of its dtype, of floatX for integers."""
    return x.zeros_like(dtype=pytensor.config.floatX if x.type.dtype in discrete_dtypes else x.type.dtype)


def _is_disconnected(variable: Variable) -> bool:
    return isinstance(variable.type, DisconnectedType)


class MaxPool(_Pooling):
    """The largest element of each window; NaN if there is one in it."""

    def make_node(self, x: Any) -> Apply:
        """Make a node."""
        (x,) = self._variables(x)
        if x.type.dtype in complex_dtypes:
            raise TypeError(f"the largest of complex numbers: they have no order, and the input is {x.type}")
        return Apply(self, [x], [tensor(dtype=x.type.dtype, shape=self._pooled(x.type.shape))])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Count the windows."""
        return [self._pooled(shapes[0])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Pool on the host."""
        output_storage[0][0] = pool_host.max_pool(inputs[0], self.windows)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The gradient goes to the element that was chosen."""
        (x,), (gradient,) = inputs, cotangents
        return [disconnected_type() if _is_disconnected(gradient) else self._relative(MaxPoolScatter)(x, gradient)]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """The tangent of the element that was chosen."""
        (x,), (tangent,) = inputs, tangents
        return [disconnected_type() if _is_disconnected(tangent) else self._relative(MaxPoolGather)(x, tangent)]


class MaxPoolScatter(_Pooling):
    """Add each element of dy (...) to where the first largest element of its window of x (...) is."""

    def make_node(self, x: Any, dy: Any) -> Apply:
        """Make a node."""
        x, dy = self._variables(x, dy)
        return Apply(self, [x, dy], [tensor(dtype=dy.type.dtype, shape=x.type.shape)])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape of x."""
        return [shapes[0]]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Scatter on the host."""
        output_storage[0][0] = pool_host.max_scatter(inputs[0], inputs[1], self.windows)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Linear in dy; which element is chosen does not change with x, but at ties."""
        (x, _), (gradient,) = inputs, cotangents
        if _is_disconnected(gradient):
            return [disconnected_type(), disconnected_type()]
        return [_no_slope(x), self._relative(MaxPoolGather)(x, gradient)]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Linear in dy."""
        return [disconnected_type() if _is_disconnected(tangents[1]) else self(inputs[0], tangents[1])]


class MaxPoolGather(_Pooling):
    """The element of v (...) at the position of the first largest element of each window of x (...)."""

    def make_node(self, x: Any, v: Any) -> Apply:
        """Make a node."""
        x, v = self._variables(x, v)
        return Apply(self, [x, v], [tensor(dtype=v.type.dtype, shape=self._pooled(x.type.shape))])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Count the windows."""
        return [self._pooled(shapes[0])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Gather on the host."""
        output_storage[0][0] = pool_host.max_gather(inputs[0], inputs[1], self.windows)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Linear in v."""
        (x, _), (gradient,) = inputs, cotangents
        if _is_disconnected(gradient):
            return [disconnected_type(), disconnected_type()]
        return [_no_slope(x), self._relative(MaxPoolScatter)(x, gradient)]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Linear in v."""
        return [disconnected_type() if _is_disconnected(tangents[1]) else self(inputs[0], tangents[1])]


class MaxPoolIndices(_Pooling):
    """The number, in the flattened plane, of the first largest element of each window; not differentiable."""

    def make_node(self, x: Any) -> Apply:
        """Make a node."""
        (x,) = self._variables(x)
        if x.type.dtype in complex_dtypes:
            raise TypeError(f"the largest of complex numbers: they have no order, and the input is {x.type}")
        return Apply(self, [x], [tensor(dtype="int64", shape=self._pooled(x.type.shape))])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Count the windows."""
        return [self._pooled(shapes[0])]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Indices have no gradient."""
        return [[False]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Indices have no gradient."""
        return [disconnected_type()]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Indices have no gradient."""
        return [disconnected_type()]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Search on the host."""
        output_storage[0][0] = pool_host.max_indices(inputs[0], self.windows)


MODES = ("sum", "average_inc_pad", "average_exc_pad")
"""Kinds of results that are made of the sum of a window."""


class _Summing(_Pooling):
    """Base class of sums of windows and their gradient.

    `mode`: one of `MODES`; a sum is divided by the number of elements with or without padding.
    """

    __props__ = ("windows", "mode")

    def __init__(self, windows: Geometry, mode: str) -> None:
        super().__init__(windows)
        if mode not in MODES:
            raise ValueError(f"mode must be one of {MODES}, not {mode!r}")
        self.mode = mode

    def __str__(self) -> str:
        return f"{type(self).__name__}{{{self.windows}, {self.mode}}}"


class SumPool(_Summing):
    """The sum of each window, or its average."""

    def make_node(self, x: Any) -> Apply:
        """Make a node."""
        (x,) = self._variables(x)
        if x.type.dtype in discrete_dtypes and self.mode != "sum":
            raise TypeError(f"the average of {x.type.dtype} is no {x.type.dtype}: cast the input first")
        if x.type.dtype == "bool":
            raise TypeError("the sum of bool is no bool: cast the input first")
        return Apply(self, [x], [tensor(dtype=x.type.dtype, shape=self._pooled(x.type.shape))])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Count the windows."""
        return [self._pooled(shapes[0])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Pool on the host."""
        output_storage[0][0] = pool_host.sum_pool(inputs[0], self.windows, self.mode)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Each element of a window gets its share."""
        (x,), (gradient,) = inputs, cotangents
        if _is_disconnected(gradient):
            return [disconnected_type()]
        lengths = [x.shape[x.type.ndim - self.ndim + i] for i in range(self.ndim)]
        return [self._relative(SumPoolGrad)(gradient, *lengths)]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """It is linear."""
        return [disconnected_type() if _is_disconnected(tangents[0]) else self(tangents[0])]


class SumPoolGrad(_Summing):
    """Gradient of `SumPool` for x (...), from dy (...) and the lengths of x."""

    def make_node(self, dy: Any, *lengths: Any) -> Apply:
        """Make a node."""
        (dy,) = self._variables(dy)
        extents = [cast(as_tensor_variable(n), "int64") for n in lengths]
        static = [int(n.data) if hasattr(n, "data") else None for n in map(as_tensor_variable, lengths)]
        shape = (*dy.type.shape[: dy.type.ndim - self.ndim], *static)
        return Apply(self, [dy, *extents], [tensor(dtype=dy.type.dtype, shape=shape)])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the leading lengths of dy and the lengths that were given."""
        leading = node.inputs[0].type.ndim - self.ndim
        return [(*shapes[0][:leading], *node.inputs[1:])]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """The gradient is connected, lengths are not."""
        return [[i == 0] for i in range(len(node.inputs))]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Spread on the host."""
        dy, *lengths = inputs
        output_storage[0][0] = pool_host.sum_grad(dy, tuple(map(int, lengths)), self.windows, self.mode)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """It is linear in dy."""
        (gradient,) = cotangents
        first = disconnected_type() if _is_disconnected(gradient) else self._relative(SumPool)(gradient)
        return [first, *(disconnected_type() for _ in inputs[1:])]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """It is linear in dy."""
        return [disconnected_type() if _is_disconnected(tangents[0]) else self(tangents[0], *inputs[1:])]


@_vectorize_node.register(MaxPool)
@_vectorize_node.register(MaxPoolIndices)
@_vectorize_node.register(SumPool)
def _vectorize_pooling(op: _Pooling, node: Apply, x: Variable) -> Sequence[Variable]:
    return [op(x)]


@_vectorize_node.register(MaxPoolScatter)
@_vectorize_node.register(MaxPoolGather)
def _vectorize_with_choice(op: _Pooling, node: Apply, *inputs: Variable) -> Sequence[Variable]:
    arrays, _ = common_batch(inputs, [v.type.ndim for v in node.inputs])
    return [op(*arrays)]


@_vectorize_node.register(SumPoolGrad)
def _vectorize_spreading(op: SumPoolGrad, node: Apply, dy: Variable, *lengths: Variable) -> Sequence[Variable]:
    return [op(dy, *map(shared_entry, lengths))]
