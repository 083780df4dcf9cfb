"""Convolutions and transposed convolutions, with the names and the argument order of Theano's ``conv2d``."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from pytensor.graph.basic import Variable
from pytensor.scalar import upcast
from pytensor.tensor import cast
from pytensor.tensor.type import discrete_dtypes, integer_dtypes, uint_dtypes
from pytensor.tensor.variable import TensorVariable

from pytensor_cl.nn.conv import Conv, ConvGradInput
from pytensor_cl.nn.conv_host import Geometry
from pytensor_cl.nn.windows import (
    as_flag,
    as_ints,
    as_pads,
    as_symbolic_ints,
    as_variable,
    known,
    refuse_keywords,
    resolve,
    with_static_shape,
)

_ELSEWHERE = {
    "image_shape": "it is input_shape here",
    "stride": "it is subsample here",
    "strides": "it is subsample here",
    "padding": "it is border_mode here",
    "dilation": "it is filter_dilation here",
    "groups": "it is num_groups here",
    "bias": "add it to the result, as in conv2d(x, w) + bias[:, None, None]",
}
"""Arguments of other libraries: how to say the same here."""


def _refuse(name: str, others: dict[str, Any]) -> None:
    if others.pop("unshared", False):
        raise NotImplementedError(f"{name}: there are no filters for each place: unshared must be False")
    refuse_keywords(name, others, _ELSEWHERE)


def _parameters(
    ndim: int, subsample: Any, dilation: Any, groups: Any, border_mode: Any, flip: Any, step: str = "subsample"
) -> Geometry:
    """Return the parameters of the Ops; `step` is the name of the argument that is the stride."""
    if isinstance(groups, Sequence | np.ndarray):
        raise TypeError(f"num_groups must be a positive integer, not {groups!r}")
    (count,) = as_ints(groups, 1, "num_groups")
    return Geometry(
        as_symbolic_ints(subsample, ndim, step),
        as_symbolic_ints(dilation, ndim, "filter_dilation"),
        count,
        as_pads(border_mode, ndim),
        as_flag(flip, "filter_flip"),
    )


def _operands(name: str, ndim: int, x: Any, w: Any, x_shape: Any, w_shape: Any) -> tuple[Variable, Variable]:
    """Return both arrays as variables; integers as wide as those that their sum is computed with.

    Raises `TypeError`: one is no tensor, or has another number of dimensions.
    """
    variables = []
    for argument, value, shape in (("input", x, x_shape), ("filters", w, w_shape)):
        variable = as_variable(value, f"{name}: {argument}")
        if variable.type.ndim != ndim + 2:
            layout = "batch, channels" if argument == "input" else "output channels, input channels"
            raise TypeError(
                f"{name}: {argument} must be a {ndim + 2}-d array ({layout} and {ndim} of space), not {variable.type}"
            )
        shape_name = "input_shape" if argument == "input" else "filter_shape"
        variables.append(with_static_shape(variable, shape, f"{name}: {shape_name}"))
    dtypes = [v.type.dtype for v in variables]
    if upcast(*dtypes) in discrete_dtypes:
        wide = "uint64" if all(d in uint_dtypes for d in dtypes) else "int64"
        variables = [cast(v, wide) for v in variables]
    return variables[0], variables[1]


def _check_channels(name: str, channels: int | None, expected: int | None, groups: int, source: str) -> None:
    """Refuse channels of the input that do not divide into the groups, or that are not those of the filters."""
    if channels is not None and channels % groups:
        raise ValueError(f"{name}: the {channels} channels of input do not divide into num_groups={groups}")
    if known(channels, expected) and channels != expected:
        raise ValueError(f"{name}: input has {channels} channels, but filters are for {expected} ({source})")


_DOC = """Convolve in {ndim} dimension{s}.

Parameters
----------
input
    Shape (N, C, {dims}): a batch of signals with C channels.
filters
    Shape (O, C / num_groups, {dims}): filters of O features.
input_shape, filter_shape
    Lengths of `input` and `filters` that are known, None where one is not; they are checked in the call.
border_mode
    ``"valid"``: only where a filter is inside the input. ``"half"``: half a filter of zeros at each side, so that
    filters of odd lengths keep the input's shape. ``"full"``: wherever they overlap. Or zeros at each side, an
    integer. Or a sequence with one of these, or a pair (before, after), for each dimension.
subsample
    An integer, or one per dimension: from place to place of the filters; torch's ``stride``. These integers, and those
    of `border_mode` and `filter_dilation`, may be 0-d integer variables.
filter_flip
    Whether the filters are flipped, as mathematics has it (and Theano's ``conv2d``); with False this is the
    cross-correlation that most frameworks call convolution.
filter_dilation
    An integer, or one per dimension: from tap to tap inside the filters.
num_groups
    Channels and features fall into this many groups, which are convolved separately; C of them are a depthwise
    convolution.

Returns
-------
TensorVariable
    Shape (N, O, {dims}); of length zero where the filters do not fit in. Of the dtype that PyTensor gives a product of
    both; integers and booleans are summed, as by ``sum``, in int64, or uint64 if both arrays are unsigned.

Raises
------
TypeError
    An array has another number of dimensions, or a parameter is not of its type, or has the name of another library.
ValueError
    The shapes or parameters do not fit together; what static shapes do not show is found when the function is called.
NotImplementedError
    Theano's ``unshared=True``.
"""

_TRANSPOSED_DOC = """Convolve with transposed filters in {ndim} dimension{s}, as the gradient of ``conv{ndim}d`` does.

Parameters
----------
input
    Shape (N, C, {dims}): a batch of signals with C channels.
filters
    Shape (C, O / num_groups, {dims}): filters of O features.
output_shape
    Shape of the result: {count} integers, which may be 0-d integer variables, or None where one follows from the
    others; or a vector of so many. None: the smallest.
filter_shape
    Lengths of `filters` that are known, None where one is not.
border_mode, filter_flip, filter_dilation, num_groups
    As of ``conv{ndim}d``, whose input has the shape that this returns.
input_dilation
    An integer, or one per dimension: the ``subsample`` of that convolution, from element to element of `input` in the
    result; torch's ``stride``.
output_padding
    An integer, or one per dimension: elements that the smallest result is longer at its end, less than
    `input_dilation`: several lengths of it come down to one of ``input``. Not together with `output_shape`.

Returns
-------
TensorVariable
    Shape (N, O, {dims}), of length ``(n - 1) * input_dilation - padding + filter_dilation * (k - 1) + 1 +
    output_padding`` if `output_shape` does not say otherwise. The dtype is as of ``conv{ndim}d``.

Raises
------
TypeError
    An array has another number of dimensions, or a parameter is not of its type, or has the name of another library.
ValueError
    The shapes or parameters do not fit together, or the padding is longer than the result; what static shapes do not
    show is found when the function is called.
NotImplementedError
    Theano's ``unshared=True``.
"""


class Convolution(Protocol):
    """Type of ``conv1d``, ``conv2d`` and ``conv3d``."""

    def __call__(
        self,
        input: Any,
        filters: Any,
        input_shape: Sequence[int | None] | None = None,
        filter_shape: Sequence[int | None] | None = None,
        border_mode: Any = "valid",
        subsample: int | Sequence[int] = 1,
        filter_flip: bool = True,
        filter_dilation: int | Sequence[int] = 1,
        num_groups: int = 1,
    ) -> TensorVariable:
        """Return the convolution of a batch."""


class TransposedConvolution(Protocol):
    """Type of ``conv1d_transpose``, ``conv2d_transpose`` and ``conv3d_transpose``."""

    def __call__(  # noqa: PLR0913 - as many as Theano has
        self,
        input: Any,
        filters: Any,
        output_shape: Any = None,
        filter_shape: Sequence[int | None] | None = None,
        border_mode: Any = "valid",
        input_dilation: int | Sequence[int] = 1,
        filter_flip: bool = True,
        filter_dilation: int | Sequence[int] = 1,
        num_groups: int = 1,
        *,
        output_padding: int | Sequence[int] = 0,
    ) -> TensorVariable:
        """Return the transposed convolution of a batch."""


def _documented[F](function: F, ndim: int, name: str, text: str) -> F:
    dims = ", ".join(("depth", "height", "width")[-ndim:]) if ndim > 1 else "length"
    function.__name__ = function.__qualname__ = name  # type: ignore[attr-defined]
    function.__doc__ = text.format(ndim=ndim, s="s" * (ndim > 1), dims=dims, count=ndim + 2)
    return function


def _make_conv(ndim: int) -> Convolution:
    name = f"conv{ndim}d"

    def conv(
        input: Any,
        filters: Any,
        input_shape: Sequence[int | None] | None = None,
        filter_shape: Sequence[int | None] | None = None,
        border_mode: Any = "valid",
        subsample: int | Sequence[int] = 1,
        filter_flip: bool = True,
        filter_dilation: int | Sequence[int] = 1,
        num_groups: int = 1,
        **others: Any,
    ) -> TensorVariable:
        _refuse(name, others)
        x, w = _operands(name, ndim, input, filters, input_shape, filter_shape)
        g = _parameters(ndim, subsample, filter_dilation, num_groups, border_mode, filter_flip)
        features, per_group = w.type.shape[:2]
        expected = None if per_group is None else per_group * g.groups
        source = f"{per_group} in each of {g.groups} group(s), from filters.shape[1]"
        _check_channels(name, x.type.shape[1], expected, g.groups, source)
        if features is not None and features % g.groups:
            raise ValueError(f"{name}: the {features} features of filters do not divide into num_groups={g.groups}")
        return Conv.call(g, x, w)

    return _documented(conv, ndim, name, _DOC)


def _make_transposed(ndim: int) -> TransposedConvolution:
    name = f"conv{ndim}d_transpose"

    def conv_transpose(  # noqa: PLR0913 - as many as Theano has
        input: Any,
        filters: Any,
        output_shape: Any = None,
        filter_shape: Sequence[int | None] | None = None,
        border_mode: Any = "valid",
        input_dilation: int | Sequence[int] = 1,
        filter_flip: bool = True,
        filter_dilation: int | Sequence[int] = 1,
        num_groups: int = 1,
        *,
        output_padding: int | Sequence[int] = 0,
        **others: Any,
    ) -> TensorVariable:
        _refuse(name, others)
        x, w = _operands(name, ndim, input, filters, None, filter_shape)
        g = _parameters(ndim, input_dilation, filter_dilation, num_groups, border_mode, filter_flip, "input_dilation")
        extra = as_ints(output_padding, ndim, "output_padding", least=0)
        if any(isinstance(s, int) and e >= s for e, s in zip(extra, g.strides, strict=True)):
            raise ValueError(f"output_padding must be less than input_dilation={g.strides}, not {output_padding!r}")
        _check_channels(name, x.type.shape[1], w.type.shape[0], g.groups, "filters.shape[0]")
        if w.type.shape[0] is not None and w.type.shape[0] % g.groups:
            raise ValueError(
                f"{name}: the {w.type.shape[0]} channels of filters do not divide into num_groups={g.groups}"
            )
        given = _as_output_shape(name, output_shape, ndim)
        if any(extra) and any(n is not None for n in given[2:]):
            raise ValueError(f"{name}: output_padding and output_shape both say how long the result is: give one")
        smallest = [_smallest(g, i, x, w) for i in range(ndim)]
        lengths = [s + e if n is None else n for n, s, e in zip(given[2:], smallest, extra, strict=True)]
        _check_lengths(name, g, w, lengths, border_mode)
        _check_reachable(name, g, smallest, lengths)
        features = w.type.shape[1]
        static = (x.type.shape[0], None if features is None else features * g.groups)
        for n, m, what in zip(given, static, ("batch", "features"), strict=False):
            if isinstance(n, int) and m is not None and n != m:
                raise ValueError(f"{name}: output_shape={output_shape!r}, but the {what} of the result are {m}")
        return ConvGradInput.call(g, w, x, *lengths)

    return _documented(conv_transpose, ndim, name, _TRANSPOSED_DOC)


def _as_output_shape(name: str, value: Any, ndim: int) -> list[Any]:
    """Return the lengths of a transposed convolution's result: integers, variables, and None."""
    count = ndim + 2
    message = f"{name}: output_shape must be None, or {count} integers or None (batch, channels, space), not {value!r}"
    if value is None:
        return [None] * count
    if isinstance(value, Variable):
        if value.type.ndim != 1 or value.type.dtype not in integer_dtypes or value.type.shape[0] not in (count, None):
            raise TypeError(message)
        return [value[i] for i in range(count)]
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
        raise TypeError(message)
    if len(value) != count:
        raise ValueError(message)
    lengths = []
    for n in value:
        if isinstance(n, Variable) and (n.type.ndim or n.type.dtype not in integer_dtypes):
            raise TypeError(message)
        if not (n is None or isinstance(n, Variable)):
            if isinstance(n, bool) or not isinstance(n, int | np.integer):
                raise TypeError(message)
            if n < 0:
                raise ValueError(message)
            n = int(n)
        lengths.append(n)
    return lengths


def _smallest(g: Geometry, i: int, x: Variable, w: Variable) -> Any:
    """Return the smallest length of dimension i of a transposed convolution's result."""
    (n, k) = (v.type.shape[2 + i] if v.type.shape[2 + i] is not None else v.shape[2 + i] for v in (x, w))
    before, after = resolve(g.padding[i], k, g.dilation[i])
    return (n - 1) * g.strides[i] - before - after + (k - 1) * g.dilation[i] + 1


def _check_lengths(name: str, g: Geometry, w: Variable, lengths: Sequence[Any], border_mode: Any) -> None:
    """Refuse padding that is longer than the result, as far as static shapes show it."""
    for i, length in enumerate(lengths):
        if isinstance(length, int) and length < 0:
            removed = sum(resolve(g.padding[i], w.type.shape[2 + i], g.dilation[i]))
            raise ValueError(
                f"{name}: border_mode={border_mode!r} takes {removed} elements from a result of length "
                f"{length + removed} in dimension {2 + i}"
            )


def _check_reachable(name: str, g: Geometry, smallest: Sequence[Any], lengths: Sequence[Any]) -> None:
    """Refuse lengths of the result that no input has, as far as static shapes show it."""
    for i, (low, length, stride) in enumerate(zip(smallest, lengths, g.strides, strict=True)):
        if all(isinstance(n, int) for n in (low, length, stride)) and low >= 0 and not low <= length < low + stride:
            raise ValueError(
                f"{name}: output_shape must be {low} to {low + stride - 1} in dimension {2 + i} for this input, "
                f"not {length}"
            )


conv1d, conv2d, conv3d = map(_make_conv, (1, 2, 3))
conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_make_transposed, (1, 2, 3))
