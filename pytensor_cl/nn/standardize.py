"""Markers of normalisation: values minus their mean, divided by their standard deviation, with scale and shift."""

from collections.abc import Sequence
from math import prod
from typing import Any

import pytensor
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pytensor_cl.nn.marker import Marker


def working_dtype(dtype: str) -> str:
    """Return the type in which numbers of a type are computed."""
    return "float32" if dtype == "float16" else dtype


def is_disconnected(variable: Variable) -> bool:
    """Return whether a cotangent is that of a result that the cost does not depend on."""
    return isinstance(variable.type, DisconnectedType)


def differentiate(op: Marker, inputs: Sequence[Variable], cotangents: Sequence[Variable]) -> list[Variable]:
    """Return the pullback of a marker as the derivative of its inner graph."""
    dummies = [v.type() for v in inputs]
    used = [i for i, c in enumerate(cotangents) if not is_disconnected(c)]
    if not used:
        return [disconnected_type() for _ in inputs]
    outer = [cotangents[i].type() for i in used]
    # copies: with `known_grads`, nothing of other outputs would reach an output that they are computed from
    outputs = [pt.tensor_copy(o) for o in op.build_inner_graph(*dummies)]
    gradients = pytensor.grad(
        None,
        dummies,
        known_grads={outputs[i]: c for i, c in zip(used, outer, strict=True)},
        disconnected_inputs="ignore",
        return_disconnected="disconnected",
    )
    connected = [g for g in gradients if not is_disconnected(g)]
    given = [*inputs, *(cotangents[i] for i in used)]
    replaced = iter(clone_replace(connected, dict(zip([*dummies, *outer], given, strict=True))))
    # the gradient of a change of dtype has the dtype of its result
    return [
        g if is_disconnected(g) else pt.cast(next(replaced), v.type.dtype)
        for g, v in zip(gradients, inputs, strict=True)
    ]


def broadcast_axes(type_: Any) -> tuple[int, ...]:
    """Return the dimensions along which one element stands for all."""
    return tuple(i for i, one in enumerate(type_.broadcastable) if one)


def element_count(x: Variable, axes: Sequence[int]) -> Variable:
    """Return the number of elements along some axes, an int64."""
    known = [x.type.shape[a] for a in axes]
    if None in known:
        return prod((x.shape[a] for a in axes), start=pt.constant(1, dtype="int64"))
    return pt.constant(prod(known), dtype="int64")


def _divisor(x: Variable, axes: Sequence[int]) -> Variable:
    """Return the number of elements along some axes, at least one, in the dtype of x."""
    return pt.cast(pt.maximum(element_count(x, axes), 1), x.dtype)


def mean(x: Variable, axes: Sequence[int]) -> Variable:
    """Return the mean along some axes, which stay with length one; zero of no elements."""
    return x.sum(axis=list(axes), keepdims=True) / _divisor(x, axes)


class Normalization(Marker):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift along `axes`.

    Inputs: x; the scale and the shift, if there are, with the dimensions of x and static length one where they are
    broadcast. Outputs: the result in `dtype`; the mean, if the values are centred; 1 / sqrt(variance + epsilon). The
    last two have length one along `axes` and are in the working dtype.
    """

    __props__ = ("axes", "epsilon", "is_centred", "has_scale", "has_shift", "dtype")
    axes: tuple[int, ...]
    epsilon: float
    is_centred: bool
    has_scale: bool
    has_shift: bool
    dtype: str

    def _statistics(self, x: Variable) -> tuple[Variable, Variable | None, Variable]:
        """Return the values minus their mean, the mean, and the variance; without centring, that about zero."""
        center = mean(x, self.axes) if self.is_centred else None
        centred = x if center is None else x - center
        return centred, center, mean(pt.sqr(centred), self.axes)

    def _normalized(self, centred: Variable, invstd: Variable, parameters: Sequence[Variable]) -> Variable:
        result, rest = centred * invstd, list(parameters)
        if self.has_scale:
            result = result * pt.cast(rest.pop(0), invstd.dtype)
        if self.has_shift:
            result = result + pt.cast(rest.pop(0), invstd.dtype)
        return pt.cast(result, self.dtype)

    def _results(self, x: Variable, parameters: Sequence[Variable]) -> tuple[list[Variable], Variable]:
        """Return the outputs, and the variance."""
        work = working_dtype(self.dtype)
        centred, center, variance = self._statistics(pt.cast(x, work))
        invstd = pt.reciprocal(pt.sqrt(variance + pt.constant(self.epsilon, dtype=work)))
        statistics = [invstd] if center is None else [center, invstd]
        return [self._normalized(centred, invstd, parameters), *statistics], variance

    def build_inner_graph(self, x: Variable, *parameters: Variable) -> list[Variable]:
        return self._results(x, parameters)[0]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The gradient is a marker too; the statistics that it needs are outputs of this one."""
        x, *parameters = inputs
        dy, *statistics_cotangents = cotangents
        results: list[Any] = [disconnected_type() for _ in inputs]
        if not is_disconnected(dy):
            op = NormalizationGrad(
                axes=self.axes,
                is_centred=self.is_centred,
                has_scale=self.has_scale,
                shift_axes=broadcast_axes(parameters[-1].type) if self.has_shift else None,
                dtypes=tuple(v.type.dtype for v in inputs),
            )
            scale = parameters[:1] if self.has_scale else []
            results = op(dy, x, *scale, *outputs[1:3], return_list=True)
        if not all(map(is_disconnected, statistics_cotangents)):
            dx = self._through_statistics(x, outputs[1:], statistics_cotangents)
            results[0] = pt.cast(dx if is_disconnected(results[0]) else results[0] + dx, x.type.dtype)
        return results

    def _through_statistics(
        self, x: Variable, statistics: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> Variable:
        """Return what the mean and the inverse standard deviation contribute to the gradient of x."""
        *center, invstd = statistics
        x = pt.cast(x, invstd.dtype)
        count, total = _divisor(x, self.axes), pt.zeros_like(x)
        *center_cotangent, invstd_cotangent = cotangents
        if not is_disconnected(invstd_cotangent):
            centred = x - center[0] if center else x
            total = total - invstd_cotangent * invstd**3 * centred / count
        if center and not is_disconnected(center_cotangent[0]):
            total = total + center_cotangent[0] / count
        return total


class NormalizationGrad(Marker):
    """Gradients of a `Normalization` from that of its result.

    Inputs: gradient of the result, x, the scale if there is one, the mean if values are centred, the inverse standard
    deviation. Outputs: gradients of x, of the scale, and of the shift, summed over its `shift_axes`, if there is one.
    `dtypes`: theirs.
    """

    __props__ = ("axes", "is_centred", "has_scale", "shift_axes", "dtypes")
    axes: tuple[int, ...]
    is_centred: bool
    has_scale: bool
    shift_axes: tuple[int, ...] | None
    dtypes: tuple[str, ...]

    def build_inner_graph(self, dy: Variable, x: Variable, *rest: Variable) -> list[Variable]:
        """With g = dy scale and y = (x - mean) invstd: dx = invstd (g - mean(g) - y mean(g y)).

        Of centred values y enters with the other sign: mean - x is not the x - mean of the forward pass, so nothing
        keeps that array for the backward pass, which reads x and the mean instead.
        """
        invstd, work = rest[-1], rest[-1].dtype
        dy, x = pt.cast(dy, work), pt.cast(x, work)
        scale = pt.cast(rest[0], work) if self.has_scale else None
        y = (rest[-2] - x if self.is_centred else x) * invstd
        covers = self.has_scale and set(self.axes) <= set(broadcast_axes(rest[0].type))
        # a scale that is one number along the axes is a factor of the sums, which its own gradient shares
        g = dy if scale is None or covers else dy * scale
        count = _divisor(x, self.axes)
        products = (g * y).sum(axis=list(self.axes), keepdims=True)
        inner = g - y * (products / count)
        totals = g.sum(axis=list(self.axes), keepdims=True)
        if self.is_centred:
            inner = inner - totals / count
        factor = invstd * scale if covers else invstd
        gradients = [inner * factor]
        if scale is not None:
            axes = broadcast_axes(rest[0].type)
            of_scale = self._remaining(products, axes) if covers else _sum(dy * y, axes)
            gradients.append(-of_scale if self.is_centred else of_scale)
        if self.shift_axes is not None:
            shares = set(self.axes) <= set(self.shift_axes) and (covers or scale is None)
            gradients.append(self._remaining(totals, self.shift_axes) if shares else _sum(dy, self.shift_axes))
        return [pt.cast(g, dtype) for g, dtype in zip(gradients, self.dtypes, strict=True)]

    def _remaining(self, sums: Variable, axes: Sequence[int]) -> Variable:
        """Return sums along `axes` of what has been summed along the axes of this Op already."""
        return _sum(sums, [a for a in axes if a not in self.axes])

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The second gradient is that of the inner graph."""
        return differentiate(self, inputs, cotangents)


def _sum(x: Variable, axes: Sequence[int]) -> Variable:
    return x.sum(axis=list(axes), keepdims=True) if axes else x


class WindowSum(Marker):
    """Sums along axis 1 of each element, `before` elements before it and `after` behind it; zero outside."""

    __props__ = ("before", "after")
    before: int
    after: int

    def build_inner_graph(self, x: Variable) -> list[Variable]:
        def zeros(count: int) -> Variable:
            return pt.zeros((x.shape[0], count, *x.shape[2:]), dtype=x.dtype)

        padded = pt.concatenate([zeros(self.before), x, zeros(self.after)], axis=1)
        windows = [padded[:, i : i + x.shape[1]] for i in range(self.before + self.after + 1)]
        return [sum(windows[1:], start=windows[0])]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The sum over the windows that an element is in: they reach as far to the other side."""
        if is_disconnected(cotangents[0]):
            return [disconnected_type()]
        return [WindowSum(before=self.after, after=self.before)(cotangents[0])]
