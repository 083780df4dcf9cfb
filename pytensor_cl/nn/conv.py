"""Convolution Ops and their gradients, which are Ops of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scalar import upcast
from pytensor.tensor import as_tensor_variable, cast
from pytensor.tensor.type import discrete_dtypes, integer_dtypes, tensor, uint_dtypes

import pytensor_cl.nn.conv_host as conv_host
from pytensor_cl.nn.conv_host import Geometry
from pytensor_cl.nn.windows import Pads, Window, as_flag, as_ints, as_pads, as_variable, known, positions, resolve


def _as_extent(value: Any) -> Variable:
    extent = as_tensor_variable(value)
    if extent.type.ndim != 0 or extent.type.dtype not in integer_dtypes:
        raise TypeError(f"a length must be a 0-d integer, not {extent.type}")
    return extent


def _static(extent: Variable) -> int | None:
    data = getattr(extent, "data", None)
    return None if data is None else int(data)


def _is_disconnected(variable: Variable) -> bool:
    return isinstance(variable.type, DisconnectedType)


class _Convolution(Op):
    """Base class of a convolution and its gradients: holds the parameters.

    `ndim`: number of spatial dimensions: 1, 2 or 3.
    """

    __props__ = ("ndim", "strides", "dilation", "groups", "padding", "flip")

    def __init__(
        self,
        ndim: int,
        strides: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
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
    def geometry(self) -> Geometry:
        """The parameters as `conv_host` takes them."""
        return Geometry(self.strides, self.dilation, self.groups, self.padding, self.flip)

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

    def _counts(self, lengths: Sequence[Any], extents: Sequence[Any]) -> list[Any]:
        """Return the spatial shape of the output; None where one of the lengths is."""
        dims = zip(lengths, extents, self.strides, self.dilation, self.padding, strict=True)
        return [positions(n, Window(k, s, d, *resolve(p, k, d))) if known(n, k) else None for n, k, s, d, p in dims]

    def _check_static(self, channels: int | None, per_group: int | None) -> None:
        if known(channels, per_group) and channels != per_group * self.groups:  # type: ignore[operator]
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
        left, right, *lengths = inputs
        terms = []
        if not _is_disconnected(tangents[0]):
            terms.append(self(tangents[0], right, *lengths))
        if not _is_disconnected(tangents[1]):
            terms.append(self(left, tangents[1], *lengths))
        return [sum(terms[1:], terms[0]) if terms else disconnected_type()]


class Conv(_Convolution):
    """Convolve x (N, C, ...) with w (O, C / groups, ...) to (N, O, ...)."""

    def make_node(self, x: Any, w: Any) -> Apply:
        """Make a node."""
        x, w = self._tensors(x, w)
        self._check_static(x.type.shape[1], w.type.shape[1])
        counts = self._counts(x.type.shape[2:], w.type.shape[2:])
        return Apply(self, [x, w], self._output(x, w, (x.type.shape[0], w.type.shape[0], *counts)))

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape from those of x and w."""
        x, w = shapes
        return [(x[0], w[0], *self._counts(x[2:], w[2:]))]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Convolve on the host."""
        x, w = inputs
        output_storage[0][0] = conv_host.conv(x, w, self.geometry)

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        x, w = inputs
        lengths, extents = ([v.shape[2 + i] for i in range(self.ndim)] for v in (x, w))
        of_input = self._relative(ConvGradInput)(w, gradient, *lengths)
        return of_input, self._relative(ConvGradWeight)(x, gradient, *extents)


class ConvGradInput(_Convolution):
    """Gradient for x (N, C, ...), from w (O, C / groups, ...), dy (N, O, ...) and the spatial lengths of x."""

    def make_node(self, w: Any, dy: Any, *lengths: Any) -> Apply:
        """Make a node."""
        w, dy = self._tensors(w, dy)
        extents = [_as_extent(n) for n in lengths]
        per_group = w.type.shape[1]
        channels = None if per_group is None else per_group * self.groups
        shape = (dy.type.shape[0], channels, *map(_static, extents))
        return Apply(self, [w, dy, *extents], self._output(w, dy, shape))

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape from those of w and dy, and the lengths."""
        return [(shapes[1][0], shapes[0][1] * self.groups, *node.inputs[2:])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute the gradient on the host."""
        w, dy, *lengths = inputs
        output_storage[0][0] = conv_host.conv_grad_input(w, dy, tuple(map(int, lengths)), self.geometry)

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        w, dy, *_ = inputs
        extents = [w.shape[2 + i] for i in range(self.ndim)]
        of_weight = self._relative(ConvGradWeight)(gradient, dy, *extents)
        return of_weight, self._relative(Conv)(gradient, w)


class ConvGradWeight(_Convolution):
    """Gradient for w (O, C / groups, ...), from x (N, C, ...), dy (N, O, ...) and the spatial lengths of w."""

    def make_node(self, x: Any, dy: Any, *lengths: Any) -> Apply:
        """Make a node."""
        x, dy = self._tensors(x, dy)
        extents = [_as_extent(n) for n in lengths]
        channels = x.type.shape[1]
        per_group = None if channels is None else channels // self.groups
        shape = (dy.type.shape[1], per_group, *map(_static, extents))
        return Apply(self, [x, dy, *extents], self._output(x, dy, shape))

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shape from those of x and dy, and the lengths."""
        return [(shapes[1][1], shapes[0][1] // self.groups, *node.inputs[2:])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Compute the gradient on the host."""
        x, dy, *lengths = inputs
        output_storage[0][0] = conv_host.conv_grad_weight(x, dy, tuple(map(int, lengths)), self.geometry)

    def _derivatives(self, inputs: Sequence[Variable], gradient: Variable) -> tuple[Variable, Variable]:
        x, dy, *_ = inputs
        lengths = [x.shape[2 + i] for i in range(self.ndim)]
        of_input = self._relative(ConvGradInput)(gradient, dy, *lengths)
        return of_input, self._relative(Conv)(x, gradient)


def _parameters(ndim: int, strides: Any, dilation: Any, groups: int, border_mode: Any, flip: bool) -> tuple[Any, ...]:
    if isinstance(groups, Sequence | np.ndarray):
        raise TypeError(f"groups must be a positive integer, not {groups!r}")
    (count,) = as_ints(groups, 1, "groups")
    return (
        ndim,
        as_ints(strides, ndim, "strides"),
        as_ints(dilation, ndim, "dilation"),
        count,
        as_pads(border_mode, ndim),
        as_flag(flip, "filter_flip"),
    )


def _operands(name: str, ndim: int, x: Any, w: Any) -> tuple[Variable, Variable]:
    """Return both arrays as variables; integers as wide as those that their sum is computed with.

    Raises `TypeError`: one is no tensor, or has another number of dimensions.
    """
    variables = []
    for argument, value in (("x", x), ("w", w)):
        variable = as_variable(value, f"{name}: {argument}")
        if variable.type.ndim != ndim + 2:
            layout = "batch, channels" if argument == "x" else "output channels, input channels"
            raise TypeError(
                f"{name}: {argument} must be a {ndim + 2}-d array ({layout} and {ndim} of space), not {variable.type}"
            )
        variables.append(variable)
    dtypes = [v.type.dtype for v in variables]
    if upcast(*dtypes) in discrete_dtypes:
        wide = "uint64" if all(d in uint_dtypes for d in dtypes) else "int64"
        variables = [cast(v, wide) for v in variables]
    return variables[0], variables[1]


def _check_channels(name: str, channels: int | None, expected: int | None, groups: int, source: str) -> None:
    """Refuse channels of x that do not divide into the groups, or that are not those of w."""
    if channels is not None and channels % groups:
        raise ValueError(f"{name}: the {channels} channels of x do not divide into groups={groups}")
    if known(channels, expected) and channels != expected:
        raise ValueError(f"{name}: x has {channels} channels, but w has kernels for {expected} ({source})")


_DOC = """Convolve in {ndim} dimension{s}.

Parameters
----------
x
    Shape (N, C, {dims}): a batch of signals with C channels.
w
    Shape (O, C / groups, {dims}): kernels of O features.
border_mode
    ``"valid"``: only where a kernel is inside the input. ``"half"``: half a kernel of zeros at each side, so that
    kernels of odd lengths keep the input's shape. ``"full"``: wherever they overlap. Or zeros at each side, an
    integer. Or a sequence with one of these, or a pair (before, after), for each dimension.
strides, dilation
    An integer, or one per dimension: from place to place of the kernels, and from tap to tap inside them.
groups
    Channels and features fall into this many groups, which are convolved separately; C of them are a depthwise
    convolution.
filter_flip
    Whether the kernels are flipped, as mathematics has it (and Theano's ``conv2d``); with False this is the
    cross-correlation that most frameworks call convolution.

Returns
-------
TensorVariable
    Shape (N, O, {dims}); of length zero where the kernels do not fit in. Of the dtype that PyTensor gives a product of
    both; integers and booleans are summed, as by ``sum``, in int64, or uint64 if both arrays are unsigned.

Raises
------
TypeError
    An array has another number of dimensions, or a parameter is not of its type.
ValueError
    The shapes or parameters do not fit together; what static shapes do not show is found when the function is called.
"""

_TRANSPOSED_DOC = """Convolve with transposed kernels in {ndim} dimension{s}, as the gradient of ``conv{ndim}d`` does.

Parameters
----------
x
    Shape (N, C, {dims}): a batch of signals with C channels.
w
    Shape (C, O / groups, {dims}): kernels of O features.
border_mode, strides, dilation, groups, filter_flip
    As of ``conv{ndim}d``, whose input has the shape that this returns. Only the padding may not be symbolic.
output_padding
    An integer, or one per dimension: elements that the result is longer at its end, less than the stride: several
    lengths of it come down to one of ``x``.

Returns
-------
TensorVariable
    Shape (N, O, {dims}), of length ``(n - 1) * stride - padding + dilation * (k - 1) + 1 + output_padding``. The dtype
    is as of ``conv{ndim}d``.

Raises
------
TypeError
    An array has another number of dimensions, or a parameter is not of its type.
ValueError
    The shapes or parameters do not fit together, or the padding is longer than the result; what static shapes do not
    show is found when the function is called.
"""


def _documented(function: Any, ndim: int, name: str, text: str) -> Any:
    dims = ", ".join(("depth", "height", "width")[-ndim:]) if ndim > 1 else "length"
    function.__name__ = function.__qualname__ = f"{name}{ndim}d"
    function.__doc__ = text.format(ndim=ndim, s="s" * (ndim > 1), dims=dims)
    return function


def _make_conv(ndim: int) -> Any:
    def conv(
        x: Any,
        w: Any,
        border_mode: Any = "valid",
        *,
        strides: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        filter_flip: bool = True,
    ) -> Variable:
        name = f"conv{ndim}d"
        x, w = _operands(name, ndim, x, w)
        op = Conv(*_parameters(ndim, strides, dilation, groups, border_mode, filter_flip))
        features, per_group = w.type.shape[:2]
        expected = None if per_group is None else per_group * op.groups
        source = f"{per_group} in each of {op.groups} group(s), from w.shape[1]"
        _check_channels(name, x.type.shape[1], expected, op.groups, source)
        if features is not None and features % op.groups:
            raise ValueError(f"{name}: the {features} features of w do not divide into groups={op.groups}")
        return op(x, w)

    return _documented(conv, ndim, "conv", _DOC)


def _make_transposed(ndim: int) -> Any:
    def conv_transpose(
        x: Any,
        w: Any,
        border_mode: Any = "valid",
        *,
        strides: int | Sequence[int] = 1,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        filter_flip: bool = True,
    ) -> Variable:
        name = f"conv_transpose{ndim}d"
        x, w = _operands(name, ndim, x, w)
        op = ConvGradInput(*_parameters(ndim, strides, dilation, groups, border_mode, filter_flip))
        extra = as_ints(output_padding, ndim, "output_padding", least=0)
        if any(e >= s for e, s in zip(extra, op.strides, strict=True)):
            raise ValueError(f"output_padding must be less than the strides {op.strides}, not {output_padding!r}")
        _check_channels(name, x.type.shape[1], w.type.shape[0], op.groups, "w.shape[0]")
        if w.type.shape[0] is not None and w.type.shape[0] % op.groups:
            raise ValueError(f"{name}: the {w.type.shape[0]} channels of w do not divide into groups={op.groups}")
        lengths = [_grown(op, i, x, w, extra[i]) for i in range(ndim)]
        _check_lengths(name, op, w, lengths, border_mode)
        return op(w, x, *lengths)

    return _documented(conv_transpose, ndim, "conv_transpose", _TRANSPOSED_DOC)


def _grown(op: ConvGradInput, i: int, x: Variable, w: Variable, extra: int) -> Any:
    """Return the length of dimension i of a transposed convolution's result."""
    (n, k) = (v.type.shape[2 + i] if v.type.shape[2 + i] is not None else v.shape[2 + i] for v in (x, w))
    before, after = resolve(op.padding[i], k, op.dilation[i])
    return (n - 1) * op.strides[i] - before - after + (k - 1) * op.dilation[i] + 1 + extra


def _check_lengths(name: str, op: ConvGradInput, w: Variable, lengths: Sequence[Any], border_mode: Any) -> None:
    """Refuse padding that is longer than the result, as far as static shapes show it."""
    for i, length in enumerate(lengths):
        if isinstance(length, int) and length < 0:
            removed = sum(resolve(op.padding[i], w.type.shape[2 + i], op.dilation[i]))
            raise ValueError(
                f"{name}: border_mode={border_mode!r} takes {removed} elements from a result of length "
                f"{length + removed} in dimension {2 + i}"
            )


conv1d, conv2d, conv3d = map(_make_conv, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_make_transposed, (1, 2, 3))
