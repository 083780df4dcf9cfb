"""Convolution Ops and their gradients, which are Ops of their own."""

from collections.abc import Sequence
from typing import Any

from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar import upcast
from pytensor.tensor import as_tensor_variable
from pytensor.tensor.type import integer_dtypes, tensor

import pytensor_cl.nn.conv_host as conv_host
from pytensor_cl.nn.conv_host import Geometry
from pytensor_cl.nn.windows import Pads, Window, filled, known, positions, resolve, split


def _as_extent(value: Any) -> Variable:
    extent = as_tensor_variable(value)
    if extent.type.ndim != 0 or extent.type.dtype not in integer_dtypes:
        raise TypeError(f"a length must be a 0-d integer, not {extent.type}")
    return extent


def _static(extent: Variable) -> int | None:
    data = getattr(extent, "data", None)
    return None if data is None else int(data)


def _count_missing(template: Any) -> int:
    """Return how many entries of nested tuples are None."""
    return sum(map(_count_missing, template)) if isinstance(template, tuple) else int(template is None)


def _as_integers(inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a call with integers of Python after the two arrays."""
    return [*inputs[:2], *map(int, inputs[2:])]


def _is_disconnected(variable: Variable) -> bool:
    return isinstance(variable.type, DisconnectedType)


class _Convolution(Op):
    """Base class of a convolution and its gradients: holds the parameters.

    `ndim`: number of spatial dimensions: 1, 2 or 3. A parameter that is None is symbolic: its value is an input, after
    the arrays and lengths, in the order of `Geometry`.
    """

    has_lengths = True
    """Whether the arrays are followed by the spatial lengths of the result."""

    __props__ = ("ndim", "strides", "dilation", "groups", "padding", "flip")

    def __init__(
        self,
        ndim: int,
        strides: tuple[int | None, ...],
        dilation: tuple[int | None, ...],
        groups: int | None,
        padding: Pads,
        flip: bool,
    ) -> None:
        self.ndim = ndim
        self.strides = strides
        self.dilation = dilation
        self.groups = groups
        self.padding = padding
        self.flip = flip

    @property
    def first_parameter(self) -> int:
        """Position of the first input that is a parameter."""
        return 2 + self.ndim * self.has_lengths

    @property
    def symbolic_parameters(self) -> int:
        """Number of inputs that are parameters."""
        return _count_missing(self._template)

    @property
    def _template(self) -> tuple[Any, ...]:
        return self.strides, self.dilation, self.groups, self.padding

    def geometry(self, inputs: Sequence[Any]) -> Geometry:
        """Return the parameters, from the inputs of a node or their values."""
        strides, dilation, groups, padding = filled(self._template, iter(inputs[self.first_parameter :]))
        return Geometry(strides, dilation, groups, padding, self.flip)

    @classmethod
    def call(cls, geometry: Geometry, left: Any, right: Any, *lengths: Any) -> Any:
        """Apply an Op of this class to arrays and lengths, with parameters that may be symbolic."""
        (strides, dilation, groups, padding), variables = split(geometry[:-1])
        op: Any = cls(len(geometry.strides), strides, dilation, groups, padding, geometry.flip)
        return op(left, right, *lengths, *variables)

    def _inputs(self, left: Any, right: Any, others: Sequence[Any]) -> list[Variable]:
        """Return the inputs of a node as variables.

        Raises `TypeError`: one is of a wrong type, or there are not so many.
        """
        if len(others) != self.first_parameter - 2 + self.symbolic_parameters:
            raise TypeError(f"{type(self).__name__}: {len(others)} lengths and parameters do not fit {self}")
        return [*self._tensors(left, right), *map(_as_extent, others)]

    def _relative(self, kind: "type[_Convolution]") -> Any:
        """Return an Op of another class with the same parameters."""
        return kind(*(getattr(self, name) for name in self.__props__))

    def _tensors(self, *values: Any) -> list[Variable]:
        """Return arrays as variables with batch, channels and the spatial dimensions."""
        variables = [as_tensor_variable(v) for v in values]
        for v in variables:
            if v.type.ndim != self.ndim + 2:
                raise TypeError(f"{type(self).__name__} in {self.ndim}-d needs {self.ndim + 2}-d arrays, not {v.type}")
        return variables

    def _output(self, left: Variable, right: Variable, shape: Sequence[int | None]) -> list[Variable]:
        return [tensor(dtype=upcast(left.type.dtype, right.type.dtype), shape=tuple(shape))]

    def _counts(self, lengths: Sequence[Any], extents: Sequence[Any], inputs: Sequence[Any] = ()) -> list[Any]:
        """Return the spatial shape of the output; None where one of the lengths or parameters is.

        `inputs`: the inputs of the node, if symbolic parameters count.
        """
        g = self.geometry(inputs) if inputs else self
        dims = zip(lengths, extents, g.strides, g.dilation, g.padding, strict=True)
        return [
            positions(n, Window(k, s, d, *resolve(p, k, d))) if known(n, k, s, d, *p) else None
            for n, k, s, d, p in dims
        ]

    def _check_static(self, channels: int | None, per_group: int | None) -> None:
        if known(channels, per_group, self.groups) and channels != per_group * self.groups:  # type: ignore[operator]
            raise ValueError(
                f"Shape mismatch: {channels} channels, but kernels for {per_group} in each of {self.groups} group(s)"
            )

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Arrays are connected, lengths are not."""
        return [[i < 2] for i in range(len(node.inputs))]

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        """Return the gradients for the two arrays."""
        raise NotImplementedError

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """Gradients are convolutions again."""
        (gradient,) = cotangents
        if _is_disconnected(gradient):
            return [disconnected_type() for _ in inputs]
        return [*self._derivatives(inputs, gradient), *(disconnected_type() for _ in inputs[2:])]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        """Both arrays enter linearly."""
        left, right, *others = inputs
        terms = []
        if not _is_disconnected(tangents[0]):
            terms.append(self(tangents[0], right, *others))
        if not _is_disconnected(tangents[1]):
            terms.append(self(left, tangents[1], *others))
        return [sum(terms[1:], terms[0]) if terms else disconnected_type()]


class Conv(_Convolution):
    """Convolve x (N, C, ...) with w (O, C / groups, ...) to (N, O, ...)."""

    has_lengths = False

    def make_node(self, x: Any, w: Any, *parameters: Any) -> Apply:
        """Make a node."""
        x, w, *values = self._inputs(x, w, parameters)
        self._check_static(x.type.shape[1], w.type.shape[1])
        counts = self._counts(x.type.shape[2:], w.type.shape[2:])
        return Apply(self, [x, w, *values], self._output(x, w, (x.type.shape[0], w.type.shape[0], *counts)))

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape from those of x and w."""
        x, w, *_ = shapes
        return [(x[0], w[0], *self._counts(x[2:], w[2:], node.inputs))]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Convolve on the host."""
        x, w, *_ = inputs
        output_storage[0][0] = conv_host.conv(x, w, self.geometry(_as_integers(inputs)))

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        x, w, *parameters = inputs
        lengths, extents = ([v.shape[2 + i] for i in range(self.ndim)] for v in (x, w))
        of_input = self._relative(ConvGradInput)(w, gradient, *lengths, *parameters)
        return of_input, self._relative(ConvGradWeight)(x, gradient, *extents, *parameters)


class ConvGradInput(_Convolution):
    """Gradient for x (N, C, ...), from w (O, C / groups, ...), dy (N, O, ...) and the spatial lengths of x."""

    def make_node(self, w: Any, dy: Any, *others: Any) -> Apply:
        """Make a node."""
        w, dy, *values = self._inputs(w, dy, others)
        per_group, groups = w.type.shape[1], self.groups
        channels = None if per_group is None or groups is None else per_group * groups
        shape = (dy.type.shape[0], channels, *map(_static, values[: self.ndim]))
        return Apply(self, [w, dy, *values], self._output(w, dy, shape))

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape from those of w and dy, and the lengths."""
        groups = self.geometry(node.inputs).groups
        return [(shapes[1][0], shapes[0][1] * groups, *node.inputs[2 : 2 + self.ndim])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute the gradient on the host."""
        w, dy, *integers = _as_integers(inputs)
        lengths, geometry = integers[: self.ndim], self.geometry((w, dy, *integers))
        output_storage[0][0] = conv_host.conv_grad_input(w, dy, lengths, geometry)

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        w, dy, *_ = inputs
        parameters = inputs[self.first_parameter :]
        extents = [w.shape[2 + i] for i in range(self.ndim)]
        of_weight = self._relative(ConvGradWeight)(gradient, dy, *extents, *parameters)
        return of_weight, self._relative(Conv)(gradient, w, *parameters)


class ConvGradWeight(_Convolution):
    """Gradient for w (O, C / groups, ...), from x (N, C, ...), dy (N, O, ...) and the spatial lengths of w."""

    def make_node(self, x: Any, dy: Any, *others: Any) -> Apply:
        """Make a node."""
        x, dy, *values = self._inputs(x, dy, others)
        channels, groups = x.type.shape[1], self.groups
        per_group = None if channels is None or groups is None else channels // groups
        shape = (dy.type.shape[1], per_group, *map(_static, values[: self.ndim]))
        return Apply(self, [x, dy, *values], self._output(x, dy, shape))

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape from those of x and dy, and the lengths."""
        groups = self.geometry(node.inputs).groups
        return [(shapes[1][1], shapes[0][1] // groups, *node.inputs[2 : 2 + self.ndim])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute the gradient on the host."""
        x, dy, *integers = _as_integers(inputs)
        extents, geometry = integers[: self.ndim], self.geometry((x, dy, *integers))
        output_storage[0][0] = conv_host.conv_grad_weight(x, dy, extents, geometry)

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        x, dy, *_ = inputs
        parameters = inputs[self.first_parameter :]
        lengths = [x.shape[2 + i] for i in range(self.ndim)]
        of_input = self._relative(ConvGradInput)(gradient, dy, *lengths, *parameters)
        return of_input, self._relative(Conv)(x, gradient, *parameters)
