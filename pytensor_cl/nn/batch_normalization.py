"""Batch normalisation: with the statistics of the batch, and with given ones."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.raise_op import CheckAndRaise

from pytensor_cl.nn.marker import Marker
from pytensor_cl.nn.standardize import Normalization, differentiate, element_count, working_dtype

_LENGTH_ONE = CheckAndRaise(
    ValueError, "a parameter of batch normalisation must have length one along the normalised axes, or lack them"
)


def align(parameter: Variable, ndim: int, axes: Sequence[int]) -> Variable:
    """Return a parameter with `ndim` dimensions and length one along `axes`, which it may lack."""
    if parameter.type.ndim == ndim:
        return pt.specify_broadcastable(_with_length_one(parameter, axes), *axes)
    kept = iter(range(parameter.type.ndim))
    return parameter.dimshuffle(["x" if a in axes else next(kept) for a in range(ndim)])


def _with_length_one(parameter: Variable, axes: Sequence[int]) -> Variable:
    """Return a parameter whose lengths along `axes` are checked in the call, if they are not known."""
    unknown = [pt.eq(parameter.shape[a], 1) for a in axes if parameter.type.shape[a] is None]
    return _LENGTH_ONE(parameter, *unknown) if unknown else parameter


def compact(statistic: Variable, axes: Sequence[int]) -> Variable:
    """Return a statistic without the dimensions `axes`, along which it has length one."""
    return statistic.dimshuffle([a for a in range(statistic.type.ndim) if a not in axes])


class BatchNormalization(Normalization):
    """Normalisation over a batch, without running statistics."""

    def predict(self, node: Apply) -> Sequence[Variable | None] | None:
        """A prediction needs running statistics."""
        raise ValueError(
            "a prediction graph needs the running statistics of batch_normalization_train, which were not given: pass "
            "running_mean and running_var where the training graph is built"
        )


class RunningBatchNormalization(Normalization):
    """Normalisation over a batch, and the next running statistics.

    Inputs before those of `Normalization`: running mean, running variance, weight of the new value. Outputs behind its
    outputs: the new running mean and variance.
    """

    states = ((0, 3), (1, 4))

    def build_inner_graph(self, *inputs: Variable) -> list[Variable]:
        """The running variance takes the unbiased one; that of one value is not defined and leaves it as it is."""
        running_mean, running_var, factor, x, *parameters = inputs
        results, variance = self._results(x, parameters)
        count = element_count(x, self.axes)
        unbiased = variance * pt.cast(count / pt.maximum(count - 1, 1), variance.dtype)
        new_mean = self._moved(running_mean, results[1], factor, count >= 1)
        return [*results, new_mean, self._moved(running_var, unbiased, factor, count >= 2)]

    def _moved(self, old: Variable, value: Variable, factor: Variable, is_defined: Variable) -> Variable:
        """Return old (1 - factor) + value factor where the value is defined, else old."""
        if old.type.ndim == value.type.ndim:
            old = _with_length_one(old, self.axes)
        else:
            value = compact(value, self.axes)
        dtype = working_dtype(old.dtype)
        factor = pt.cast(factor, dtype)
        moved = pt.cast(old, dtype) * (1 - factor) + pt.cast(value, dtype) * factor
        return pt.switch(is_defined, pt.cast(moved, old.dtype), old)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Gradients stop at running statistics."""
        pattern = super().connection_pattern(node)
        return [[i >= 3 and o < 3 and row[o] for o in range(len(row))] for i, row in enumerate(pattern)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The gradient is that of the normalisation."""
        gradients = super().pullback(inputs[3:], outputs[:3], cotangents[:3])
        return [*(disconnected_type() for _ in range(3)), *gradients]

    def predict(self, node: Apply) -> Sequence[Variable | None] | None:
        """The result of the node -> that with the running statistics which the node read."""
        running_mean, running_var, _, x, *parameters = node.inputs
        op = GivenNormalization(
            axes=self.axes, epsilon=self.epsilon, has_scale=self.has_scale, has_shift=self.has_shift, dtype=self.dtype
        )
        statistics = [align(v, x.type.ndim, self.axes) for v in (running_mean, running_var)]
        return [op(x, *statistics, *parameters), None, None, None, None]


class GivenNormalization(Marker):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift of given statistics, which have length one along `axes`.

    Inputs: x, mean, variance, the scale and the shift if there are. Output: the result in `dtype`.
    """

    __props__ = ("axes", "epsilon", "has_scale", "has_shift", "dtype")
    axes: tuple[int, ...]
    epsilon: float
    has_scale: bool
    has_shift: bool
    dtype: str

    def factor(self, variance: Variable, scale: Variable | None) -> Variable:
        """Return scale / sqrt(variance + epsilon)."""
        work = working_dtype(self.dtype)
        invstd = pt.reciprocal(pt.sqrt(pt.cast(variance, work) + pt.constant(self.epsilon, dtype=work)))
        return invstd if scale is None else pt.cast(scale, work) * invstd

    def parts(self, inputs: Sequence[Variable]) -> tuple[Variable, Variable, Variable, Variable | None]:
        """Return x, the mean, the factor of the difference, and the shift."""
        x, center, variance, *parameters = inputs
        factor = self.factor(variance, parameters[0] if self.has_scale else None)
        return x, center, factor, parameters[-1] if self.has_shift else None

    def build_inner_graph(self, *inputs: Variable) -> list[Variable]:
        """The mean is subtracted first: factors of both would lose digits where it is large."""
        x, center, factor, shift = self.parts(inputs)
        result = (pt.cast(x, factor.dtype) - pt.cast(center, factor.dtype)) * factor
        if shift is not None:
            result = result + pt.cast(shift, factor.dtype)
        return [pt.cast(result, self.dtype)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        """The gradient is that of the inner graph."""
        return differentiate(self, inputs, cotangents)
